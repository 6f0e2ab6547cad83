"""LangGraph: nodes are sessions, with nothing to change in the graph.

    llm = wrap_model(ChatOpenAI(...))

| of LangGraph | is |
|---|---|
| the scope around the call of the graph, or else its `thread_id`, or else the call | the run |
| nodes, of subgraphs below those they run in | the agent's path |
| a task of `Send`, or of `@task` | an instance of its agent |
| a node in a loop, tried again, or resumed | the same session |

What is read is public in LangChain: the config of the runnable that a call is made in, and a
callback handler, of which each call of a graph gets one of its own.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from tenuto import process
from tenuto.context import REFINES, said_by
from tenuto.dialects import Choice
from tenuto.endings import end_session
from tenuto.entries import PLACES, Entry, current
from tenuto.errors import ConfigError
from tenuto.openai import wrap
from tenuto.scopes import root_session
from tenuto.session import NO_HINTS, Hints, Session, child_of

M = TypeVar("M")

# "node:task|node:task", in LangGraph's words a checkpoint namespace.
_BETWEEN, _TASK = "|", ":"
_PUSHED = "__pregel_push"


def wrap_model(model: M, *, dialect: Choice | None = None) -> M:
    """Mark the calls of a LangChain model, and have LangGraph's nodes be sessions.

    Args:
        model: `ChatOpenAI`, `AzureChatOpenAI`, `OpenAIEmbeddings` or another model of
            langchain-openai, also with tools bound, with fallbacks, or first in a chain. Its own
            openai clients are changed in place, and never the HTTP client below, which LangChain
            shares between models.
        dialect: as `tenuto.wrap` takes it.

    Returns:
        The same object.

    Raises:
        ConfigError: no openai client is found in it, or the dialect is unknown.
    """
    clients = list(_clients_of(model))
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
    if _refine in REFINES:
        return
    try:
        tracers = importlib.import_module("langchain_core.tracers.context")
        _LangChain.config = importlib.import_module(
            "langchain_core.runnables.config"
        ).var_child_runnable_config
        _LangChain.handler = _handler_class()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"LangChain cannot be joined: {error}") from error
    tracers.register_configure_hook(_Handlers(), inheritable=True, handle_class=_LangChain.handler)
    PLACES.append(_place)
    REFINES.append(_refine)


class _LangChain:
    """What is taken of LangChain once it is there."""

    config: Any
    handler: Any


class _Place(NamedTuple):
    """Where in a graph a scope is opened: in its nodes, or "" between them."""

    call: GraphCall
    nodes: str


class GraphCall:
    """One call of a graph, with all that is called in it.

    Args:
        entry: the scope that it was called in.
    """

    def __init__(self, entry: Entry | None) -> None:
        self._entry = entry
        self._called_in = said_by(entry)
        self._lock = threading.Lock()
        # Of those that are called without a scope, by thread.
        self._roots: dict[str | None, Session] = {}
        # Namespaces of tasks that run side by side with others of the same node.
        self._pushed: set[str] = set()
        self._sessions: dict[tuple[str, str], Session] = {}

    def started(self, metadata: Any) -> None:
        """Take in that a node starts."""
        if metadata and metadata.get("langgraph_path", ("",))[0] == _PUSHED:
            self._pushed.add(metadata["langgraph_checkpoint_ns"])

    def ended(self) -> None:
        """Take in that the call is over: nobody can go on in a run that has no name."""
        root = self._roots.get(None)
        if root is not None:
            for session in (root, *self._sessions.values()):
                if session.run_id == root.run_id:
                    end_session(session.session_id, session.state)

    def call_in(
        self, entry: Entry | None, nodes: str, thread: str | None
    ) -> tuple[Session | None, Hints]:
        """Return the session of a call in nodes of the graph.

        Args:
            entry: the scope that the call is made in.
            nodes: the namespace.
            thread: id of the thread, None for a graph that keeps none.
        """
        if (outer := _opened_in(entry, self, nodes)) is None:
            # Whoever pulls a stream may open scopes meanwhile, which are not the graph's.
            entry, outer = self._entry, _opened_in(self._entry, None, nodes) or ""
            if entry is not None and not entry.is_open:
                return None, NO_HINTS
            called_in = self._called_in
        else:
            called_in = said_by(entry)
        if called_in is None:
            if entry is not None:
                return None, NO_HINTS
            session, within = self._own_run(thread), ""
        else:
            session, within = called_in[0], thread or ""
        if outer == nodes and called_in is not None:
            return called_in
        return self._below(session, outer, nodes, within), NO_HINTS

    def _own_run(self, thread: str | None) -> Session:
        with self._lock:
            if thread not in self._roots:
                self._roots[thread] = root_session(thread)
            return self._roots[thread]

    def _below(self, session: Session, outer: str, nodes: str, thread: str) -> Session:
        known = self._sessions.get((session.session_id, nodes))
        if known is not None:
            return known
        base, at = session, len(outer)
        number = ""
        for part in nodes[at:].strip(_BETWEEN).split(_BETWEEN):
            at = nodes.index(part, at) + len(part)
            name, _, task = part.partition(_TASK)
            if not task:
                # Of a graph that a node calls again.
                number = name
                continue
            instance = task if nodes[:at] in self._pushed else thread + number
            session = child_of(session, name, instance or "0")
            thread = number = ""
        return self._sessions.setdefault((base.session_id, nodes), session)


def _opened_in(entry: Entry | None, call: GraphCall | None, nodes: str) -> str | None:
    """Return the nodes that a scope was opened in, where they are around the caller's."""
    place = entry.place if entry is not None else None
    if not isinstance(place, _Place) or (call is not None and place.call is not call):
        return None
    is_around = not place.nodes or f"{nodes}{_BETWEEN}".startswith(f"{place.nodes}{_BETWEEN}")
    return place.nodes if is_around else None


def _refine(entry: Entry | None) -> tuple[Session | None, Hints] | None:
    try:
        config = _LangChain.config.get()
        call = _call_of(config)
        if call is None:
            return None
        nodes = _nodes_of(config)
        if not nodes:
            return None
        thread = config.get("configurable", {}).get("thread_id")
        return call.call_in(entry, nodes, None if thread is None else str(thread))
    except Exception:
        process.pass_over("find the node of")
        return None


def _place() -> _Place | None:
    try:
        config = _LangChain.config.get()
        call = _call_of(config)
        return _Place(call, _nodes_of(config)) if call is not None else None
    except Exception:
        process.pass_over("find the node of")
        return None


def _nodes_of(config: Any) -> str:
    metadata: Any = config.get("metadata")
    return (metadata.get("langgraph_checkpoint_ns") if metadata else None) or ""


def _call_of(config: Any) -> GraphCall | None:
    handler = _handler_of(config)
    return None if handler is None else handler.call


def _handler_of(config: Any) -> Any:
    callbacks: Any = config.get("callbacks") if config else None
    handlers: Any = getattr(callbacks, "handlers", callbacks) or ()
    return next((one for one in handlers if isinstance(one, _LangChain.handler)), None)


class _Handlers:
    """In the place of LangChain's ContextVar of a handler: each call of a graph gets its own."""

    name = "tenuto"

    def get(self) -> Any:
        # What is called within inherits it, and another would not be added.
        return _handler_of(_LangChain.config.get()) or _LangChain.handler()


def _handler_class() -> Any:
    """Return the class of the handlers, made where there is a LangChain."""
    base: Any = importlib.import_module("langchain_core.callbacks").BaseCallbackHandler

    class Handler(base):
        """Watches which nodes a call of a graph runs."""

        # In the task or thread of the node, and before it.
        run_inline = True
        ignore_llm = ignore_chat_model = ignore_retriever = ignore_agent = ignore_retry = True

        def __init__(self) -> None:
            self.call = GraphCall(current())
            self._first: Any = None

        def on_chain_start(self, *_: Any, run_id: Any, metadata: Any = None, **__: Any) -> None:
            self._first = self._first or run_id
            self.call.started(metadata)

        def on_chain_end(self, *_: Any, run_id: Any, **__: Any) -> None:
            if run_id == self._first:
                self.call.ended()

        on_chain_error = on_chain_end

    return Handler


def _clients_of(model: Any) -> Iterator[Any]:
    """Yield the openai clients of a model, or of what is around one."""
    for name in ("root_client", "root_async_client"):
        if (client := getattr(model, name, None)) is not None:
            yield client
    for name in ("client", "async_client"):
        # A resource of an openai client, for models that keep no client.
        client = getattr(getattr(model, name, None), "_client", None)
        if client is not None and not hasattr(model, "root_client"):
            yield client
    for name in ("bound", "runnable", "first"):
        if (inner := getattr(model, name, None)) is not None:
            yield from _clients_of(inner)
    for inner in getattr(model, "fallbacks", ()) or ():
        yield from _clients_of(inner)
