"""The order in which the calls of traces become due, on any clock. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tenuto.trace.model import Session, Trace

Mode = Literal["closed", "fixed", "asap"]


class CallRef(NamedTuple):
    """Where a call stands: indices into the traces, the trace's sessions, the session's turns."""

    trace: int
    session: int
    turn: int


class Due(NamedTuple):
    """A call and the earliest time for it, in seconds on the run's clock."""

    at_s: float
    ref: CallRef


class Schedule:
    """Says which calls become due when a call has ended. Each comes up exactly once.

    | a turn waits for the end of             | in mode                  |
    |-----------------------------------------|--------------------------|
    | its session's turn before it            | all                      |
    | the parent's turn that spawned it       | all                      |
    | the subagents that it joins             | `closed`, `asap`         |
    | its recorded wait after the last of all | `closed`, times the scale |
    | its recorded time after the trace began | `fixed`, times the scale |

    What waits for nothing (a root, a subagent from before its parent's first turn) waits from
    the trace's begin, which is its earliest call. A session ends with its last turn, and one
    without turns when the sessions that it spawned have ended.

    Calls that are due at one time are ordered by `CallRef`, so that a caller that takes them
    in order of `Due` makes the same order on a real clock as on a virtual one.

    Args:
        traces: what is played; the indices of `CallRef` are theirs.
        mode: `closed` keeps the recorded waits (a tool, a person), `fixed` the recorded times,
            `asap` neither.
        time_scale: share of waits or times to keep, >= 0.
        gap_cap_s: longest recorded wait to keep, before scaling; None keeps all.
        live_sessions: traces that are played at once, the next begins when one has ended;
            None plays all from the start.

    Raises:
        ValueError: when an option is outside of its limits.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        *,
        mode: Mode = "closed",
        time_scale: float = 1.0,
        gap_cap_s: float | None = None,
        live_sessions: int | None = None,
    ) -> None:
        if not (time_scale >= 0 and math.isfinite(time_scale)):
            raise ValueError(f"time_scale is a finite number >= 0, got {time_scale}")
        if gap_cap_s is not None and not (gap_cap_s >= 0 and math.isfinite(gap_cap_s)):
            raise ValueError(f"gap_cap_s is a finite number >= 0, got {gap_cap_s}")
        if live_sessions is not None and live_sessions < 1:
            raise ValueError(f"live_sessions is >= 1, got {live_sessions}")
        self._traces = traces
        self._pace = _Pace(mode, time_scale, math.inf if gap_cap_s is None else gap_cap_s)
        self._at_once = len(traces) if live_sessions is None else live_sessions
        self._begun = 0
        self._live: dict[int, _Live] = {}
        self._remaining = sum(trace.requests for trace in traces)

    @property
    def remaining(self) -> int:
        """How many calls have not ended."""
        return self._remaining

    def start(self, now_s: float) -> list[Due]:
        """Return the first calls, ordered.

        Raises:
            ValueError: when it is called twice.
        """
        if self._begun:
            raise ValueError("the schedule has been started")
        return sorted(self._begin(now_s))

    def finished(self, ref: CallRef, now_s: float) -> list[Due]:
        """Return what became due because a call ended, ordered.

        Args:
            ref: of a call that came up and had not ended.
            now_s: when it ended; never before an earlier call's end.

        Raises:
            ValueError: when the call is not one that is out.
        """
        live = self._live.get(ref.trace)
        if live is None or not live.is_out(ref):
            raise ValueError(f"{ref} is not a call that is due and has not ended")
        due = live.finished(ref, now_s)
        self._remaining -= 1
        if not live.left:
            del self._live[ref.trace]
            due += self._begin(now_s)
        due.sort()
        return due

    def _begin(self, now_s: float) -> list[Due]:
        """Begin as many traces as there is room for."""
        due: list[Due] = []
        while self._begun < len(self._traces) and len(self._live) < self._at_once:
            index, trace = self._begun, self._traces[self._begun]
            self._begun += 1
            if trace.requests:
                self._live[index] = _Live(index, trace, self._pace, now_s)
                due += self._live[index].begin(now_s)
        return due


class _Pace(NamedTuple):
    mode: Mode
    scale: float
    cap_s: float


class _Live:
    """A trace that is being played; `s` is always the index of a session."""

    def __init__(self, index: int, trace: Trace, pace: _Pace, now_s: float) -> None:
        self.left = trace.requests
        self._index = index
        self._sessions = trace.sessions
        self._pace = pace
        self._began_s = now_s
        self._first_s = min(one.turns[0].start_s for one in trace.sessions if one.turns)
        self._turn = [0] * len(trace.sessions)
        self._is_out = [False] * len(trace.sessions)
        self._has_ended = [False] * len(trace.sessions)
        # Recorded end of the last thing that a session's next turn waits for.
        self._free_s = [self._first_s] * len(trace.sessions)
        self._parent: list[int | None] = []
        self._spawned: defaultdict[tuple[int | None, int | None], list[int]] = defaultdict(list)
        # By session and turn: subagents still to be joined, and the last end of those that were.
        self._joins: dict[tuple[int, int], int] = defaultdict(int)
        self._joined_s: dict[tuple[int, int], float] = defaultdict(lambda: -math.inf)
        self._children = [0] * len(trace.sessions)
        self._due: list[Due] = []
        self._index_sessions(trace.sessions)

    def _index_sessions(self, sessions: Sequence[Session]) -> None:
        at: dict[str, int] = {}
        for s, session in enumerate(sessions):
            parent = None if session.parent is None else at[session.parent]
            at[session.label] = s
            self._parent.append(parent)
            self._spawned[parent, None if parent is None else session.spawned_after].append(s)
            if parent is None:
                continue
            self._children[parent] += 1
            if session.joined_before is not None and self._pace.mode != "fixed":
                self._joins[parent, session.joined_before] += 1

    def is_out(self, ref: CallRef) -> bool:
        return (
            0 <= ref.session < len(self._turn)
            and self._is_out[ref.session]
            and self._turn[ref.session] == ref.turn
        )

    def begin(self, now_s: float) -> list[Due]:
        self._open(self._spawned.pop((None, None), []), self._first_s, now_s)
        return self._taken()

    def finished(self, ref: CallRef, now_s: float) -> list[Due]:
        s = ref.session
        self._is_out[s] = False
        self.left -= 1
        ended_s = self._sessions[s].turns[ref.turn].end_s
        self._turn[s] += 1
        self._free_s[s] = ended_s
        self._open(self._spawned.pop((s, ref.turn), []), ended_s, now_s)
        if self._turn[s] == len(self._sessions[s].turns):
            self._end(s, now_s)
        else:
            self._ask(s, now_s)
        return self._taken()

    def _taken(self) -> list[Due]:
        due, self._due = self._due, []
        return due

    def _open(self, opened: list[int], free_s: float, now_s: float) -> None:
        """Begin sessions, and those that stand before their first turn."""
        waiting = opened
        for s in waiting:
            self._free_s[s] = free_s
            waiting.extend(self._spawned.pop((s, None), ()))
        # Children first: one that ends at once may be what its parent waits for.
        for s in reversed(waiting):
            if self._sessions[s].turns:
                self._ask(s, now_s)
            elif not self._children[s]:
                self._end(s, now_s)

    def _end(self, s: int, now_s: float) -> None:
        """Let go of what waits for the end of a session."""
        # Of sessions without turns one may end with its last child, and come up by itself.
        while not self._has_ended[s]:
            self._has_ended[s] = True
            parent = self._parent[s]
            if parent is None:
                return
            ended_s = self._free_s[s]
            self._children[parent] -= 1
            joined = self._sessions[s].joined_before
            if joined is not None and (parent, joined) in self._joins:
                self._joins[parent, joined] -= 1
                self._joined_s[parent, joined] = max(self._joined_s[parent, joined], ended_s)
                if self._turn[parent] == joined:
                    self._ask(parent, now_s)
            if self._sessions[parent].turns:
                return
            self._free_s[parent] = max(self._free_s[parent], ended_s)
            if self._children[parent]:
                return
            s = parent

    def _ask(self, s: int, now_s: float) -> None:
        """Bring up a session's next turn, unless it is out or waits for a subagent."""
        k = self._turn[s]
        if self._is_out[s] or self._joins.get((s, k), 0):
            return
        self._is_out[s] = True
        free_s = max(self._free_s[s], self._joined_s.get((s, k), -math.inf))
        at_s = self._at_s(self._sessions[s].turns[k].start_s, free_s, now_s)
        self._due.append(Due(at_s, CallRef(self._index, s, k)))

    def _at_s(self, recorded_s: float, free_s: float, now_s: float) -> float:
        mode, scale, cap_s = self._pace
        if mode == "asap":
            return now_s
        if mode == "fixed":
            return max(now_s, self._began_s + (recorded_s - self._first_s) * scale)
        return now_s + min(max(0.0, recorded_s - free_s), cap_s) * scale
