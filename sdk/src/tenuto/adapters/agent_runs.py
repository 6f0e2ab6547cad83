"""Runs of openai-agents' runner and its guardrails, as what is called in them sees them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextvars import ContextVar
from types import CoroutineType
from typing import Any, NamedTuple

from tenuto import process
from tenuto.entries import Entry, current
from tenuto.session import Session


class Running:
    """One run of a runner.

    Attributes:
        outer: the run that it is called in, None where it is in none.
        entry: the scope that it is called in.
        is_streamed: its model's input outlives the model's call.
        is_over: it has ended.
        root: of the tenuto run that its agents are in.
        base: what its agents are below; None before its first model call.
        instance: tells it from others below the same session.
        session: of the agent whose model it has called last.
    """

    def __init__(self, *, is_streamed: bool) -> None:
        self.outer = RUNNING.get()
        self.entry: Entry | None = None
        try:
            self.entry = current()
        except Exception:
            process.pass_over("find the agent of")
        self.is_streamed = is_streamed
        self.is_over = False
        self.root: Session | None = None
        self.base: Session | None = None
        self.instance = "0"
        self.session: Session | None = None

    def ended(self, _: object = None) -> None:
        """Note that it has ended."""
        self.is_over, self.outer = True, None


class Guardrail(NamedTuple):
    """A guardrail that runs, and the scope that it runs in."""

    name: str
    entry: Entry | None


RUNNING: ContextVar[Running | None] = ContextVar("tenuto_runner", default=None)
_GUARDRAIL: ContextVar[Guardrail | None] = ContextVar("tenuto_guardrail", default=None)


def watched_guardrail(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a guardrail's `run` that says so to the calls in it, and is a task of its own."""

    @functools.wraps(run)
    async def watched(guardrail: Any, *args: Any, **given: Any) -> Any:
        try:
            _GUARDRAIL.set(Guardrail(str(guardrail.get_name()), current()))
        except Exception:
            process.pass_over("find the guardrail of")
        try:
            return await run(guardrail, *args, **given)
        finally:
            _GUARDRAIL.set(None)

    return watched


def guardrail_at(entry: Entry | None) -> Guardrail | None:
    """Return the guardrail that the caller is in, unless it has opened a scope of its own."""
    guardrail = _GUARDRAIL.get()
    return guardrail if guardrail is not None and guardrail.entry is entry else None


def in_guardrail() -> bool:
    """Tell whether the caller is in a guardrail."""
    return _GUARDRAIL.get() is not None


class Task:
    """What is seen of the task that a call is made in."""

    folder = ""

    @classmethod
    def may_call_model(cls, running: Running) -> bool:
        """Tell whether a task that a model call's has started makes that call.

        A streamed model's input is there while its tools run: then tasks of the SDK alone are
        believed, such as those of a call with a limit of time.
        """
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        body = task.get_coro() if task is not None else None
        if not isinstance(body, CoroutineType):
            return not running.is_streamed
        is_theirs = body.cr_code.co_filename.startswith(cls.folder)
        # Hooks and tools ask by themselves.
        is_other = body.__name__ == "on_llm_start" or "tool" in body.__qualname__
        return (is_theirs or not running.is_streamed) and not is_other
