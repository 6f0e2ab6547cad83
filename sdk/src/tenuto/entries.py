"""The chain of entered scopes behind the one ContextVar, and which of them a caller is in.

A context also shows entries that are not the caller's. Those that are closed, or that a forked
child was forked with, are passed over; of the others the newest holds, but for those that were
made in a generator's body:

| the caller | is in such an entry |
|---|---|
| runs in that body | before those of the bodies and functions that pull it |
| is the task or thread that made it, so the generator's consumer | never |
| is another task or thread, started by the body or by the consumer | unless without it he is in another run: then in neither |
"""  # noqa: E501 - a table row

from __future__ import annotations

import asyncio
import copy
import dis
import inspect
import itertools
import os
import threading
import weakref
from collections.abc import Iterator
from contextvars import Context, ContextVar, copy_context
from types import FrameType
from typing import Any

from tenuto.session import NO_HINTS, Hints, Session

# What the body of a generator opens is meant for the caller of these, which make a context
# manager or a fixture of it.
_LENDERS = frozenset(
    {"contextlib", "_pytest.fixtures", "anyio._backends._asyncio", "pytest_asyncio.plugin"}
)
# This runs a body in a context of its own, where nobody else looks.
_KEEPER = "tenuto.propagate"
_LOOP = asyncio.Handle._run.__code__
_GENERATORS = (inspect.CO_GENERATOR, inspect.CO_ASYNC_GENERATOR)
# What a coroutine of the old kind has besides.
_KINDS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


_NUMBERS = itertools.count()


class Entry:
    """One entering of a scope; shared by all copies of the context it was made in.

    Attributes:
        owner: the scope.
        session: None when calls in the scope are not to be marked.
        hints: what is said of its turns.
        previous: what was entered before it in the same context.
        body: the frame of the generator that holds the scope open, None when none does.
        process: counts the forks that led to the process that made it.
        number: grows with each that is made in the process.
    """

    __slots__ = (
        *("_maker", "_open", "body", "hints", "number", "owner", "previous", "process"),
        "session",
    )

    def __init__(
        self,
        owner: object,
        session: Session | None,
        hints: Hints = NO_HINTS,
        previous: Entry | None = None,
        body: FrameType | None = None,
    ) -> None:
        self.owner = owner
        self.session = session
        self.hints = hints
        self.previous = previous
        self.body = body
        self.process = _Process.number
        self._maker = here() if owner is not None else None
        self.number = next(_NUMBERS)
        # Shared with the copies that `pinned` makes.
        self._open = [True]

    @property
    def is_open(self) -> bool:
        """Whether somebody may be in it."""
        return self._open[0] and self.process == _Process.number

    def close(self) -> None:
        """Have nobody be in it any more, whichever copy of the context they look at."""
        self._open[0] = False
        # What is kept of a context for long must keep neither a chain nor a body's variables.
        self.previous = _first_open(self.previous)
        self.body = None

    def pinned(self) -> Entry:
        """Return an entry that is open while this is, and holds for whoever looks."""
        pin = copy.copy(self)
        pin.body = None
        return pin

    def is_made_by(self, maker: object) -> bool:
        """Tell whether that task or thread made it."""
        return self._maker == maker


class _Process:
    """Tells a forked child's entries from those it was forked with, which are its parent's.

    A pool's worker lives on with the context of the moment it was forked in.
    """

    number = 0

    @classmethod
    def forked(cls) -> None:
        cls.number += 1


os.register_at_fork(after_in_child=_Process.forked)
_CURRENT: ContextVar[Entry | None] = ContextVar("tenuto", default=None)
# Of callers that may be in one run or in another.
_NEITHER = Entry(None, None)


def outlives_a_scope_since(made: int) -> bool:
    """Tell whether this context was copied in a scope, entered after `made`, that is left."""
    last = _CURRENT.get()
    if last is None or last.is_open or last.number <= made:
        return False
    return not last.is_made_by(here())


def number() -> int:
    """Return a number above those of all entries so far."""
    return next(_NUMBERS)


def newest() -> Entry | None:
    """Return the open entry that this context has seen last, whoever is in it.

    A context that was copied in a scope which has been left since is of work that outlives it:
    that is in no scope, also where another one around it is still open.
    """
    last = _CURRENT.get()
    if last is None or last.is_open:
        return last
    entry = _first_open(last)
    return entry if entry is None or last.is_made_by(here()) else _NEITHER


def current() -> Entry | None:
    """Return the entry that the caller is in, None outside every scope."""
    first = entry = newest()
    while entry is not None and entry.body is None:
        entry = entry.previous
    return first if entry is None else _among(list(_open_from(first)))


def _among(shown: list[Entry]) -> Entry | None:
    for entry in shown:
        if entry.body is not None and _has_returned(entry.body):
            # What a body leaves open is for whoever pulled it, such as a stack's owner.
            entry.body = None
    for body in bodies_at(inspect.currentframe()):
        for entry in shown:
            if entry.body is body:
                return entry
    caller = here()
    doubtful: Entry | None = None
    for entry in shown:
        if entry.body is None:
            if doubtful is None or _run_of(entry) == _run_of(doubtful):
                return doubtful or entry
            return _NEITHER
        if doubtful is None and not entry.is_made_by(caller):
            doubtful = entry
    return doubtful


def enter(entry: Entry | None) -> None:
    """Have this context show `entry` from now on."""
    _CURRENT.set(entry)


def forget_closed() -> None:
    """Have this context keep open entries only."""
    _CURRENT.set(newest())


def captured() -> Context:
    """Return a copy of this context for whoever runs in it to be in the caller's scope."""
    context = copy_context()
    entry = current()
    if entry is not None and entry.body is not None:
        entry = entry.pinned()
    context.run(_CURRENT.set, entry)
    return context


def bodies_at(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the generators' bodies that `frame` runs in, the innermost first.

    Those below the task, the event loop, or a body with a context of its own, are others'
    business.
    """
    # A task that begins eagerly has no event loop between it and its maker.
    root = _root_of_task()
    while frame is not None and frame is not root and frame.f_code is not _LOOP:
        caller = frame.f_back
        if frame.f_code.co_flags & _KINDS in _GENERATORS:
            puller = caller.f_globals.get("__name__") if caller is not None else None
            if puller == _KEEPER:
                return
            if puller not in _LENDERS:
                yield frame
        frame = caller


def _first_open(entry: Entry | None) -> Entry | None:
    while entry is not None and not entry.is_open:
        entry = entry.previous
    return entry


def _open_from(entry: Entry | None) -> Iterator[Entry]:
    while entry is not None:
        if entry.is_open:
            yield entry
        entry = entry.previous


def _run_of(entry: Entry) -> str | None:
    return entry.session.run_id if entry.session is not None else None


def _has_returned(body: FrameType) -> bool:
    return dis.opname[body.f_code.co_code[body.f_lasti]].startswith("RETURN")


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _root_of_task() -> FrameType | None:
    task = _task()
    return getattr(task.get_coro(), "cr_frame", None) if task is not None else None


def here() -> object:
    """Return what tells this task or thread from others."""
    task = _task()
    # An entry that is kept for long must not keep the task; a dead one is like no other.
    return weakref.ref(task) if task is not None else threading.get_ident()
