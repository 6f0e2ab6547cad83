"""OpenAI Agents SDK: each agent of a run is a session.

    with tenuto.run("ticket-4711") as run:
        await Runner.run(planner, question, run_config=run.run_config())

| of the Agents SDK | is |
|---|---|
| the agent that a model is called for | a session below the scope that `Runner.run` is called in |
| one that is handed over to | its sibling |
| one that is used as a tool | its child, an instance for each call of the tool |
| a guardrail's model call | a child of class `auxiliary` |
| another `Runner.run` in the same scope | the same sessions going on |

What is set for a model's call is bound to the input that it is called with, which the runner
lets go of after the call: nothing stays behind in the caller's context.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from tenuto import process
from tenuto.adapters.agent_runs import (
    RUNNING,
    Guardrail,
    Running,
    Task,
    guardrail_at,
    in_guardrail,
    watched_guardrail,
)
from tenuto.context import REFINES, said_by
from tenuto.entries import Entry, current, here
from tenuto.errors import ConfigError
from tenuto.session import NO_HINTS, Hints, Session, child_of
from tenuto.sessions import SessionState


def run_config(root: Session, user_config: Any) -> Any:
    """Return what `Run.run_config` does, for the run of `root`."""
    try:
        known: Any = importlib.import_module("agents").RunConfig
        config = known() if user_config is None else user_config
        config = known(**config) if isinstance(config, dict) else config
        if not isinstance(config, known):
            raise TypeError(f"got {type(config).__name__}")
        _join()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"openai-agents cannot be joined: {error}") from error
    except TypeError as error:
        raise ConfigError(f"run_config() takes a RunConfig of openai-agents: {error}") from error
    theirs = config.call_model_input_filter
    return dataclasses.replace(
        config,
        call_model_input_filter=_Filter(
            root, theirs.theirs if isinstance(theirs, _Filter) else theirs
        ),
    )


def _join() -> None:
    with _JOINING:
        agents: Any = importlib.import_module("agents")
        # `Runner.run` may have been looked up already by the call whose argument this is for.
        runner: Any = importlib.import_module("agents.run").AgentRunner
        Task.folder = str(Path(str(agents.__file__)).parent) + os.sep
        for owner, name, wrapper in (
            (runner, "run", _named),
            (runner, "run_streamed", _named_at_once),
            (agents.InputGuardrail, "run", watched_guardrail),
            (agents.OutputGuardrail, "run", watched_guardrail),
        ):
            method = getattr(owner, name)
            if not hasattr(method, "__tenuto__"):
                wrapped: Any = wrapper(method)
                wrapped.__tenuto__ = True
                setattr(owner, name, wrapped)
        if _refine not in REFINES:
            # First: a runner's model call is innermost, whatever the runner is called in.
            REFINES.insert(0, _refine)


_JOINING = threading.Lock()


class _Call(NamedTuple):
    """A model call that a runner is about to make.

    Attributes:
        session: of the agent it is made for.
        hints: what is said of its turn.
        running: the run that it is made in.
        entry: the scope that it is made in.
        input: what the model is called with: gone when the call is over.
        maker: the task that makes it.
    """

    session: Session
    hints: Hints
    running: Running
    entry: Entry | None
    input: weakref.ref[Any]
    maker: object

    def is_under_way(self) -> bool:
        """Tell whether the caller makes it."""
        if self.input() is None:
            return False
        return self.maker == here() or Task.may_call_model(self.running)


_CALL: ContextVar[_Call | None] = ContextVar("tenuto_agents", default=None)
# How often agents were called as tools without an id of the call, by the calling session.
_UNNAMED: weakref.WeakKeyDictionary[SessionState, Counter[str]] = weakref.WeakKeyDictionary()


class _Filter:
    """A `call_model_input_filter`: the runner calls it in the model call's task, once a turn."""

    def __init__(self, root: Session, theirs: Callable[[Any], Any] | None) -> None:
        self.theirs = theirs
        self.root = root

    def __call__(self, data: Any) -> Any:
        said = data.model_data if self.theirs is None else self.theirs(data)
        return self._later(data, said) if inspect.isawaitable(said) else self._bound(data, said)

    async def _later(self, data: Any, said: Any) -> Any:
        return self._bound(data, await said)

    def _bound(self, data: Any, said: Any) -> Any:
        try:
            # A copy, so that nobody else holds it.
            said = dataclasses.replace(said)
            running = RUNNING.get()
            if running is not None:
                _CALL.set(_call_for(self.root, str(data.agent.name), running, said))
        except Exception:
            process.pass_over("find the agent of")
        return said


def _call_for(root: Session, agent: str, running: Running, given: Any) -> _Call:
    entry = current()
    guardrail, hints = guardrail_at(entry), NO_HINTS
    if running.base is None or running.base.run_id != root.run_id:
        running.root, running.session = root, None
        running.base, running.instance = _base_of(running, agent, guardrail)
    kind = None if guardrail is None else "auxiliary"
    session = child_of(running.base, agent, running.instance, kind=kind)
    if running.session is not None and session != running.session:
        hints = Hints(phase="handoff")
    running.session = session
    return _Call(session, hints, running, entry, weakref.ref(given), here())


def _base_of(running: Running, agent: str, guardrail: Guardrail | None) -> tuple[Session, str]:
    """Return what the agents of a run are below, and the run's instance there."""
    root, outer = running.root, running.outer
    assert root is not None
    enclosing = _enclosing(running.entry, root)
    if guardrail is not None:
        return child_of(enclosing, guardrail.name, kind="auxiliary"), "0"
    if outer is None or outer.is_over or outer.entry is not running.entry:
        return enclosing, "0"
    caller, call_id = _tool_call()
    above = outer.session
    if above is None and caller is not None:
        # The runner was resumed, and calls its tools first.
        above = child_of(outer.base or enclosing, caller, outer.instance)
    if above is None or above.run_id != root.run_id:
        return enclosing, "0"
    if call_id is None:
        counts = _UNNAMED.setdefault(above.state, Counter())
        counts[agent] += 1
        call_id = str(counts[agent] - 1)
    return above, call_id


def _enclosing(entry: Entry | None, root: Session) -> Session:
    """Return the session that a runner is called in: the run's root, or one below it."""
    said = _said_by_others(entry)
    enclosing = said[0] if said is not None else None
    return enclosing if enclosing is not None and enclosing.run_id == root.run_id else root


def _said_by_others(entry: Entry | None) -> tuple[Session | None, Hints] | None:
    others = (refine(entry) for refine in REFINES if refine is not _refine)
    return next((call for call in others if call is not None), None) or said_by(entry)


def _tool_call() -> tuple[str | None, str | None]:
    """Return the agent whose tool this is called by, and the id of the call, where it is seen."""
    # Above the filter, which holds what the model is called with.
    frame = inspect.currentframe()
    try:
        while frame is not None:
            if frame.f_code.co_filename.startswith(Task.folder):
                for value in frame.f_locals.values():
                    if type(value).__name__ == "ToolContext" and value.tool_call_id:
                        agent = getattr(value, "agent", None)
                        name = None if agent is None else str(agent.name)
                        return name, str(value.tool_call_id)
            frame = frame.f_back
        return None, None
    finally:
        del frame


def _refine(entry: Entry | None) -> tuple[Session | None, Hints] | None:
    try:
        call = _CALL.get()
        if call is not None and call.entry is entry and call.is_under_way():
            return call.session, call.hints
        guardrail = guardrail_at(entry)
        if guardrail is None:
            return None
        said = _said_by_others(entry)
        if said is None or said[0] is None:
            return said
        return child_of(said[0], guardrail.name, kind="auxiliary"), NO_HINTS
    except Exception:
        process.pass_over("find the agent of")
        return None


def _named(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a runner's `run` that tells what is called in it from what other runs call."""

    @functools.wraps(run)
    async def named(*args: Any, **given: Any) -> Any:
        outer, call, running = RUNNING.get(), _CALL.get(), Running(is_streamed=False)
        RUNNING.set(running)
        try:
            return await run(*args, **_inherited(given, outer))
        finally:
            running.ended()
            # An error that is kept keeps the model's input too.
            _CALL.set(call)
            RUNNING.set(outer)

    return named


def _named_at_once(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same of `run_streamed`, which goes on in a task, in a copy of the context."""

    @functools.wraps(run)
    def named(*args: Any, **given: Any) -> Any:
        outer, running = RUNNING.get(), Running(is_streamed=True)
        RUNNING.set(running)
        try:
            result = run(*args, **_inherited(given, outer))
            task: Any = getattr(result, "run_loop_task", None)
            if task is not None:
                task.add_done_callback(running.ended)
            return result
        finally:
            RUNNING.set(outer)

    return named


def _inherited(given: dict[str, Any], outer: Running | None) -> dict[str, Any]:
    """Return a runner's arguments, with a filter where the run that calls it has one."""
    try:
        config = given.get("run_config")
        if outer is None or outer.is_over or outer.root is None or in_guardrail():
            return given
        if isinstance(getattr(config, "call_model_input_filter", None), _Filter):
            return given
        entry = current()
        if entry is not outer.entry:
            said = _said_by_others(entry)
            if said is None or said[0] is None or said[0].run_id != outer.root.run_id:
                # Another run's scope, or none, has been opened since: it wins.
                return given
        return {**given, "run_config": run_config(outer.root, config)}
    except Exception:
        process.pass_over("find the agent of")
        return given
