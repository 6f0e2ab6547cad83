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

import asyncio
import dataclasses
import functools
import importlib
import inspect
import weakref
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from types import CoroutineType
from typing import Any, NamedTuple

from tenuto import process
from tenuto.context import REFINES, said_by
from tenuto.entries import Entry, current, here
from tenuto.errors import ConfigError
from tenuto.session import NO_HINTS, Hints, Session, child_of
from tenuto.sessions import SessionState


def run_config(root: Session, user_config: Any) -> Any:
    """Return what `Run.run_config` does, for the run of `root`."""
    try:
        agents = importlib.import_module("agents")
        known: Any = agents.RunConfig
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"openai-agents cannot be joined: {error}") from error
    config = known() if user_config is None else user_config
    if isinstance(config, dict):
        config = known(**config)
    if not isinstance(config, known):
        raise ConfigError(
            f"run_config() takes a RunConfig of openai-agents, got {type(config).__name__}"
        )
    if _refine not in REFINES:
        _Runner.folder = str(Path(str(agents.__file__)).parent)
        for guardrail in (agents.InputGuardrail, agents.OutputGuardrail):
            guardrail.run = _watched(guardrail.run)
        # `Runner.run` may have been looked up already by the call whose argument this is.
        runner: Any = importlib.import_module("agents.run").AgentRunner
        runner.run, runner.run_streamed = _named(runner.run), _named(runner.run_streamed)
        REFINES.append(_refine)
    theirs = config.call_model_input_filter
    return dataclasses.replace(
        config, call_model_input_filter=_Filter(root, getattr(theirs, "theirs", theirs))
    )


class _Call(NamedTuple):
    """A model call that a runner is about to make.

    Attributes:
        session: of the agent it is made for.
        base: what the agents of the runner are below.
        instance: tells the runner from others below the same session.
        running: the run of a runner that it is made in.
        entry: the scope that the runner was called in.
        input: what the model is called with: gone when the call is over.
        maker: the task that makes it.
        hints: what is said of its turn.
        guardrail: that asks for it, None where none does.
    """

    session: Session
    base: Session
    instance: str
    running: _Running | None
    entry: Entry | None
    input: weakref.ref[Any]
    maker: object
    hints: Hints
    guardrail: _Guardrail | None


class _Guardrail(NamedTuple):
    """A guardrail that runs, and the scope that it runs in."""

    name: str
    entry: Entry | None


class _Running:
    """One run of a runner."""

    is_over = False


_CALL: ContextVar[_Call | None] = ContextVar("tenuto_agents", default=None)
_RUNNING: ContextVar[_Running | None] = ContextVar("tenuto_runner", default=None)
_GUARDRAIL: ContextVar[_Guardrail | None] = ContextVar("tenuto_guardrail", default=None)
# How often agents were called as tools without an id of the call, by the calling session.
_UNNAMED: weakref.WeakKeyDictionary[SessionState, Counter[str]] = weakref.WeakKeyDictionary()


class _Filter:
    """A `call_model_input_filter`: the runner calls it in the model call's task, once a turn."""

    def __init__(self, root: Session, theirs: Callable[[Any], Any] | None) -> None:
        self.theirs = theirs
        self._root = root

    def __call__(self, data: Any) -> Any:
        said = data.model_data if self.theirs is None else self.theirs(data)
        return self._later(data, said) if inspect.isawaitable(said) else self._bound(data, said)

    async def _later(self, data: Any, said: Any) -> Any:
        return self._bound(data, await said)

    def _bound(self, data: Any, said: Any) -> Any:
        try:
            # A copy, so that nobody else holds it.
            said = dataclasses.replace(said)
            _CALL.set(_call_for(self._root, str(data.agent.name), said))
        except Exception:
            process.pass_over("find the agent of")
        return said


def _call_for(root: Session, agent: str, given: Any) -> _Call:
    entry, before, running = current(), _CALL.get(), _RUNNING.get()
    guardrail, hints = _guardrail_at(entry), NO_HINTS
    is_new = before is None or before.entry is not entry or before.guardrail is not guardrail
    if before is None or is_new or before.base.run_id != root.run_id:
        base, instance = _enclosing(entry, root), "0"
        if guardrail is not None:
            base = child_of(base, guardrail.name, kind="auxiliary")
    elif before.running is not running and before.running and not before.running.is_over:
        base, instance = before.session, _instance(before.session, agent)
    else:
        base, instance = before.base, before.instance
    kind = None if guardrail is None else "auxiliary"
    session = child_of(base, agent, instance, kind=kind)
    if before is not None and before.running is running and session != before.session:
        hints = Hints(phase="handoff")
    alive = weakref.ref(given)
    return _Call(session, base, instance, running, entry, alive, here(), hints, guardrail)


def _enclosing(entry: Entry | None, root: Session) -> Session:
    """Return the session that a runner is called in: the run's root, or one below it."""
    others = (refine(entry) for refine in REFINES if refine is not _refine)
    said = next((call for call in others if call is not None), None) or said_by(entry)
    enclosing = said[0] if said is not None else None
    return enclosing if enclosing is not None and enclosing.run_id == root.run_id else root


def _instance(parent: Session, agent: str) -> str:
    """Return what tells a call of an agent as a tool from others: its id, or its number."""
    frame = inspect.currentframe()
    while frame is not None:
        for value in frame.f_locals.values():
            if type(value).__name__ == "ToolContext" and value.tool_call_id:
                return str(value.tool_call_id)
        frame = frame.f_back
    counts = _UNNAMED.setdefault(parent.state, Counter())
    counts[agent] += 1
    return str(counts[agent] - 1)


def _refine(entry: Entry | None) -> tuple[Session | None, Hints] | None:
    try:
        call = _CALL.get()
        if call is not None and call.entry is entry and call.input() is not None:
            # A model's call with a time limit is a task of the runner's.
            task = _Runner.task() if call.maker != here() else "own"
            if task and "tool" not in task:
                return call.session, call.hints
        guardrail, said = _guardrail_at(entry), said_by(entry)
        if guardrail is None or said is None:
            return None
        return child_of(said[0], guardrail.name, kind="auxiliary"), NO_HINTS
    except Exception:
        process.pass_over("find the agent of")
        return None


def _named(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a runner's `run` that tells what is called in it from what other runs call."""

    @functools.wraps(run)
    async def named(*args: Any, **given: Any) -> Any:
        outer, running = _RUNNING.get(), _Running()
        _RUNNING.set(running)
        try:
            return await run(*args, **given)
        finally:
            running.is_over = True
            _RUNNING.set(outer)

    @functools.wraps(run)
    def named_at_once(*args: Any, **given: Any) -> Any:
        outer = _RUNNING.get()
        _RUNNING.set(_Running())
        try:
            # What goes on in the background has taken a copy of the context.
            return run(*args, **given)
        finally:
            _RUNNING.set(outer)

    return named if inspect.iscoroutinefunction(run) else named_at_once


def _watched(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a guardrail's `run` that says so to the calls in it, and is a task of its own."""

    @functools.wraps(run)
    async def watched(guardrail: Any, *args: Any, **given: Any) -> Any:
        try:
            _GUARDRAIL.set(_Guardrail(str(guardrail.get_name()), current()))
        except Exception:
            process.pass_over("find the guardrail of")
        try:
            return await run(guardrail, *args, **given)
        finally:
            _GUARDRAIL.set(None)

    return watched


def _guardrail_at(entry: Entry | None) -> _Guardrail | None:
    guardrail = _GUARDRAIL.get()
    return guardrail if guardrail is not None and guardrail.entry is entry else None


class _Runner:
    """What is seen of openai-agents' runner from within."""

    folder = ""

    @classmethod
    def task(cls) -> str:
        """Return the name of the runner's task that the caller is; "" where it is another."""
        body = cls.body()
        if body is None or not body.cr_code.co_filename.startswith(cls.folder):
            return ""
        return body.__qualname__

    @staticmethod
    def body() -> CoroutineType[Any, Any, Any] | None:
        """Return what the current task runs."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return None
        body = task.get_coro() if task is not None else None
        return body if isinstance(body, CoroutineType) else None
