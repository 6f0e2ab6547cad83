"""CrewAI: each agent of a crew is a session.

    llm = tenuto.adapters.crewai.wrap_model(crewai.LLM(model="openai/gpt-5"))

| of CrewAI | is |
|---|---|
| the `tenuto.run` around `kickoff` and its kin | the run |
| an agent, by its role | a session below the scope around the crew |
| another agent of the same role, as in `kickoff_for_each` | another instance |
"""

from __future__ import annotations

import contextlib
import functools
import types
from typing import Any, TypeVar

from tenuto.adapters.members import Scoped, scope_of
from tenuto.dialects import Choice
from tenuto.errors import ConfigError
from tenuto.openai import wrap

L = TypeVar("L")

# What makes a client on demand, and where earlier releases keep one.
_CLIENTS = (
    ("_get_sync_client", "_client", "client"),
    ("_get_async_client", "_async_client", "async_client"),
)


def wrap_model(llm: L, *, dialect: Choice | None = None) -> L:
    """Mark the calls of a CrewAI model, and have the agents that it is given to be sessions.

    Args:
        llm: `crewai.LLM(...)` of a provider that CrewAI calls by openai's client. It and its
            clients are changed in place.
        dialect: as `tenuto.wrap` takes it.

    Returns:
        The same object.

    Raises:
        ConfigError: it calls by another client, such as litellm's, or the dialect is unknown.
    """
    clients = [client for names in _CLIENTS if (client := _client_of(llm, *names)) is not None]
    if not clients:
        raise ConfigError(
            "wrap_model() takes a model that CrewAI calls by openai's client, "
            f"got {type(llm).__name__}"
        )
    for client in clients:
        wrap(client, dialect=dialect)
    kind: type[Any] = type(llm)
    if not hasattr(kind, "__tenuto_llm__"):
        # CrewAI's models may be pydantic's, whose own `__setattr__` is for fields.
        object.__setattr__(llm, "__class__", _session_class(kind))
    return llm


def _client_of(llm: Any, made: str, *kept: str) -> Any:
    make = getattr(llm, made, None)
    if make is not None:
        return make()
    return next((client for name in kept if (client := getattr(llm, name, None))), None)


@functools.lru_cache(maxsize=64)
def _session_class(base: type[Any]) -> type[Any]:
    def call(self: Any, *args: Any, **given: Any) -> Any:
        with _scope(given):
            return base.call(self, *args, **given)

    async def acall(self: Any, *args: Any, **given: Any) -> Any:
        with _scope(given):
            return await base.acall(self, *args, **given)

    body: dict[str, Any] = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__tenuto_llm__": True,
        "call": call,
        "acall": acall,
    }
    # Its own metaclass: it may be a pydantic model's.
    return types.new_class(base.__name__, (base,), exec_body=lambda names: names.update(body))


def _scope(given: dict[str, Any]) -> Scoped:
    agent = given.get("from_agent")
    role = str(getattr(agent, "role", "")).strip()
    return scope_of(role, agent) if role else contextlib.nullcontext()
