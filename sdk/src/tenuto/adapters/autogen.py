"""AutoGen: each agent of a team is a session.

    client = tenuto.adapters.autogen.wrap_model(OpenAIChatCompletionClient(model="gpt-5"))
    planner = tenuto.adapters.autogen.wrap_agent(AssistantAgent("planner", client))

| of AutoGen | is |
|---|---|
| the `tenuto.run` around `run` or `run_stream` of a team or an agent | the run |
| an agent, by its name | a session below the scope around it |
| an agent in a team that is itself an agent | its child |
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from tenuto.adapters.members import scope_of
from tenuto.dialects import Choice
from tenuto.errors import ConfigError
from tenuto.openai import wrap

M = TypeVar("M")


def wrap_model(model: M, *, dialect: Choice | None = None) -> M:
    """Mark the calls of an AutoGen model client with the session that they are made in.

    Args:
        model: `OpenAIChatCompletionClient` or `AzureOpenAIChatCompletionClient`. Its openai
            client is changed in place.
        dialect: as `tenuto.wrap` takes it.

    Returns:
        The same object.

    Raises:
        ConfigError: it has no openai client, or the dialect is unknown.
    """
    client: Any = getattr(model, "_client", None)
    if client is None:
        raise ConfigError(
            f"wrap_model() takes an AutoGen client of openai, got {type(model).__name__}"
        )
    wrap(client, dialect=dialect)
    return model


def wrap_agent(agent: M) -> M:
    """Make an agent a session of its own, below the scope that it is run in.

    Args:
        agent: of autogen-agentchat, such as `AssistantAgent`. It is changed in place; that
            its model's calls are marked is for `wrap_model`.

    Returns:
        The same object.

    Raises:
        ConfigError: it is no agent of autogen-agentchat.
    """
    kind: type[Any] = type(agent)
    if not hasattr(kind, "on_messages_stream"):
        raise ConfigError(f"wrap_agent() takes an agent of autogen-agentchat, got {kind.__name__}")
    if not hasattr(kind, "__tenuto_agent__"):
        agent.__class__ = _session_class(kind)
    return agent


@functools.lru_cache(maxsize=64)
def _session_class(base: type[Any]) -> type[Any]:
    async def on_messages(self: Any, *args: Any, **given: Any) -> Any:
        with scope_of(str(self.name), self):
            return await base.on_messages(self, *args, **given)

    async def on_messages_stream(self: Any, *args: Any, **given: Any) -> Any:
        with scope_of(str(self.name), self):
            async for message in base.on_messages_stream(self, *args, **given):
                yield message

    # The names stay: AutoGen writes an agent's configuration by its class's own.
    body: dict[str, Any] = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__tenuto_agent__": True,
        "on_messages": on_messages,
        "on_messages_stream": on_messages_stream,
    }
    return type(base.__name__, (base,), body)
