"""Traces for tests of the replay: forks of every kind, and a strategy for more of them."""

from __future__ import annotations

from hypothesis import strategies as st

from tenuto.trace.model import Session, Trace, Turn


def turn(*blocks: int, at: float, end: float | None = None, tail: int = 1, out: int = 3) -> Turn:
    """Return a turn with 8-token blocks, one second long."""
    runs = tuple((block, 1) for block in blocks)
    tokens = len(blocks) * 8 + tail
    return Turn(runs, tokens, out, at, at + 1.0 if end is None else end)


# Two subagents beside each other after turn 0, joined by turn 1; one that is not joined.
FORKS = Trace(
    "forks",
    8,
    (
        Session("main", "main", (turn(1, at=0), turn(1, 2, at=20), turn(1, 2, 3, at=30))),
        Session("a", "search", (turn(7, at=2), turn(7, 8, at=5)), "main", 0, 1),
        Session("b", "search", (turn(7, at=2), turn(7, 9, at=9)), "main", 0, 1),
        Session("c", "watch", (turn(5, at=22), turn(5, 6, at=60)), "main", 1),
    ),
)

_times = st.floats(0, 1000, allow_nan=False).map(lambda time_s: round(time_s, 2))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Draw a trace: any tree of sessions, some without turns, at any times."""
    sessions: list[Session] = []
    for number in range(draw(st.integers(1, 6))):
        count = draw(st.integers(0, 4))
        times = sorted(draw(st.lists(_times, min_size=2 * count, max_size=2 * count)))
        turns = tuple(
            turn(number, at=start, end=end)
            for start, end in zip(times[::2], times[1::2], strict=True)
        )
        parent = draw(st.sampled_from([None, *sessions])) if sessions else None
        after = before = None
        if parent is not None:
            after = draw(st.sampled_from([None, *range(len(parent.turns))]))
            later = range(0 if after is None else after + 1, len(parent.turns))
            before = draw(st.sampled_from([None, *later]))
        label = None if parent is None else parent.label
        sessions.append(Session(f"s{number}", "agent", turns, label, after, before))
    return Trace("t", 8, tuple(sessions))
