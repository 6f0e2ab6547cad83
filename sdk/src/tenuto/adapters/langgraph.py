"""LangGraph: nodes are sessions, with nothing to change in the graph.

    llm = wrap_model(ChatOpenAI(...))

| of LangGraph | is |
|---|---|
| the scope around the call of the graph, or else its `thread_id`, or else the call | the run |
| nodes, of subgraphs below those they run in | the agent's path |
| a task of `Send`, or of `@task` | an instance of its agent |
| a node in a loop, tried again, or resumed | the same session |

What is read is public in LangChain: the config of the runnable that a call is made in, and a
callback handler, which sees each runnable begin and end.
"""

from __future__ import annotations

import importlib
import threading
from collections import OrderedDict
from contextvars import ContextVar
from typing import Any, TypeVar

from tenuto import process
from tenuto.adapters.graph_calls import Running
from tenuto.adapters.langchain_clients import clients_of
from tenuto.context import REFINES
from tenuto.dialects import Choice
from tenuto.entries import Entry
from tenuto.errors import ConfigError
from tenuto.openai import wrap
from tenuto.session import Hints, Session

M = TypeVar("M")

# Runnables under way that are remembered; those that were left without an end go.
_MOST = 65_536


def wrap_model(model: M, *, dialect: Choice | None = None) -> M:
    """Mark the calls of a LangChain model, and have LangGraph's nodes be sessions.

    Args:
        model: `ChatOpenAI`, `AzureChatOpenAI`, `OpenAIEmbeddings` or another model of
            langchain-openai, also with tools bound, with fallbacks or alternatives, or in a chain.
            Its own openai clients are changed in place, and never the HTTP client below, which
            LangChain shares between models.
        dialect: as `tenuto.wrap` takes it.

    Returns:
        The same object.

    Raises:
        ConfigError: no openai client is found in it, or the dialect is unknown.
    """
    clients = list(clients_of(model))
    if not clients:
        raise ConfigError(
            f"wrap_model() takes a model of langchain-openai, got {type(model).__name__}"
        )
    for client in clients:
        wrap(client, dialect=dialect)
    enable()
    return model


def enable() -> None:
    """Have LangGraph's nodes be sessions, also where they call a wrapped openai client directly.

    It takes effect once, for graphs that are called after it.

    Raises:
        ConfigError: LangChain is not installed.
    """
    with _LangChain.joining:
        if _refine in REFINES:
            return
        try:
            tracers = importlib.import_module("langchain_core.tracers.context")
            configs = importlib.import_module("langchain_core.runnables.config")
            _LangChain.config = configs.var_child_runnable_config
            handler = _handler()
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"LangChain cannot be joined: {error}") from error
        given = ContextVar[Any]("tenuto_langchain", default=handler)
        tracers.register_configure_hook(given, inheritable=True)
        REFINES.append(_refine)


class _LangChain:
    """What is taken of LangChain once it is there."""

    joining = threading.Lock()
    config: Any
    handler: Any = None


def _refine(entry: Entry | None) -> tuple[Session | None, Hints] | None:
    try:
        running = _here()
        if running is None or not running.nodes:
            return None
        thread = _LangChain.config.get().get("configurable", {}).get("thread_id")
        return running.session(entry, None if thread is None else str(thread))
    except Exception:
        process.pass_over("find the node of")
        return None


def _here() -> Running | None:
    """Return the runnable that the caller is in."""
    config: Any = _LangChain.config.get()
    callbacks: Any = config.get("callbacks") if config else None
    return _RUNNING.get(getattr(callbacks, "parent_run_id", None))


# By the id of the run, in LangChain's words.
_RUNNING: OrderedDict[Any, Running] = OrderedDict()


def _begins(run_id: Any, parent_run_id: Any, metadata: Any) -> None:
    try:
        # Callbacks of the program's own, given within a runnable, hide which it is.
        above = _RUNNING.get(parent_run_id) if parent_run_id is not None else _here()
        _RUNNING[run_id] = Running.begun(above, metadata)
        if len(_RUNNING) > _MOST:
            _RUNNING.popitem(last=False)
    except Exception:
        process.pass_over("find the node of")


def _ends(run_id: Any) -> None:
    try:
        running = _RUNNING.pop(run_id, None)
        if running is not None and running.is_first:
            running.call.ended()
    except Exception:
        process.pass_over("find the node of")


def _handler() -> Any:
    """Return the handler, of a class that is made where there is a LangChain."""
    if _LangChain.handler is not None:
        return _LangChain.handler
    base: Any = importlib.import_module("langchain_core.callbacks").BaseCallbackHandler

    class Handler(base):
        """Sees runnables begin and end."""

        # In the task or thread of the runnable.
        run_inline = True
        ignore_llm = ignore_chat_model = ignore_retry = ignore_custom_event = True

        def _begins(
            self, *_: Any, run_id: Any, parent_run_id: Any = None, metadata: Any = None, **__: Any
        ) -> None:
            _begins(run_id, parent_run_id, metadata)

        def _ends(self, *_: Any, run_id: Any, **__: Any) -> None:
            _ends(run_id)

        on_chain_start = on_tool_start = on_retriever_start = _begins
        on_chain_end = on_tool_end = on_retriever_end = _ends
        on_chain_error = on_tool_error = on_retriever_error = _ends

        def __copy__(self) -> Any:
            return self

        def __deepcopy__(self, _: Any) -> Any:
            return self

        def __reduce__(self) -> Any:
            return _handler, ()

    _LangChain.handler = Handler()
    return _LangChain.handler
