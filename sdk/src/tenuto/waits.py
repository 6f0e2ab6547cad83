"""How long an agent's waits are: a history for each agent and what it waited for.

Bounded: the agents and tools used longest ago are forgotten, and each history is a
quantile sketch of fixed size (DDSketch, Masson et al., VLDB 2019, doi 10.14778/3352063.3352135).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, NamedTuple

from tenuto.turn import Next

MAX_HISTORIES = 512
_BINS = 256
_ACCURACY = 0.05
# What followed an agent's last turns, as many of them as decide what follows the next.
_RECENT = 8
_AT_LEAST = 3
_MOST = 0.6


class Outlook(NamedTuple):
    """What is expected to end the next wait of an agent, and after how many milliseconds."""

    next: Next
    gap_ms: int | None


class _History:
    __slots__ = ("_sketch", "median_ms")

    def __init__(self) -> None:
        # Here, as it is not needed before the first answer.
        from ddsketch import LogCollapsingLowestDenseDDSketch  # noqa: PLC0415

        kind: Any = LogCollapsingLowestDenseDDSketch
        self._sketch: Any = kind(relative_accuracy=_ACCURACY, bin_limit=_BINS)
        self.median_ms = 0

    def add(self, wait_ms: float) -> None:
        self._sketch.add(wait_ms)
        self.median_ms = round(self._sketch.get_quantile_value(0.5) or 0)


class Waits:
    """The histories of one process. `note` and `followed` are for one thread; reading for any."""

    def __init__(self, limit: int = MAX_HISTORIES) -> None:
        self._limit = limit
        self.forget()

    def forget(self) -> None:
        """Start anew, as a forked child does: its parent may have been in the midst of a note."""
        self._histories: OrderedDict[tuple[str, str], _History] = OrderedDict()
        self._followed: OrderedDict[str, deque[Next]] = OrderedDict()
        self._outlook: dict[str, Outlook] = {}

    def note(self, agent: str, what: Next, tools: tuple[str, ...], wait_ms: float) -> None:
        """Add a wait that is over.

        Args:
            agent: the agent's label.
            what: what ended it.
            tools: the tools that ran, none when it was not a tool's.
            wait_ms: from the end of the answer to the next call, milliseconds.
        """
        # The slowest of parallel tools is not told apart: each has waited as long as all.
        for name in {"", *tools} if what == "tool" else {what}:
            key = (agent, f"tool:{name}" if what == "tool" else what)
            history = self._histories.get(key)
            if history is None:
                history = self._histories[key] = _History()
                if len(self._histories) > self._limit:
                    self._histories.popitem(last=False)
            self._histories.move_to_end(key)
            history.add(wait_ms)
        self._look_ahead(agent)

    def followed(self, agent: str, what: Next) -> None:
        """Add what an agent's answer was followed by."""
        recent = self._followed.get(agent)
        if recent is None:
            recent = self._followed[agent] = deque(maxlen=_RECENT)
            if len(self._followed) > self._limit:
                gone, _ = self._followed.popitem(last=False)
                self._outlook.pop(gone, None)
        self._followed.move_to_end(agent)
        recent.append(what)
        self._look_ahead(agent)

    def outlook(self, agent: str) -> Outlook | None:
        """Return what is to be expected of an agent's next turn, None when nothing is."""
        return self._outlook.get(agent)

    def gap_ms(self, agent: str, what: Next, tools: tuple[str, ...] = ()) -> int | None:
        """Return the median wait for the slowest of `tools`, or for `what`; None: unknown."""
        if what != "tool":
            return self._median(agent, what)
        known = [self._median(agent, f"tool:{name}") for name in tools or ("",)]
        return max((gap for gap in known if gap is not None), default=None)

    def _median(self, agent: str, what: str) -> int | None:
        history = self._histories.get((agent, what))
        return history.median_ms if history is not None else None

    def _look_ahead(self, agent: str) -> None:
        recent = self._followed.get(agent)
        if recent is None or len(recent) < _AT_LEAST:
            return
        # Counted by hand: of equals the latest wins, and there are eight at most.
        most = max(reversed(recent), key=list(recent).count)
        if list(recent).count(most) < _MOST * len(recent):
            self._outlook.pop(agent, None)
            return
        self._outlook[agent] = Outlook(most, self.gap_ms(agent, most))
