"""What a program expects to end the wait after a turn, in its own words."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto import _wire
from tenuto.errors import ConfigError
from tenuto.turn import Next


@dataclass(frozen=True, slots=True)
class Expectation:
    """What ends the wait after a turn (`tool`, `user`, `child`, `end`), and after how long.

    Attributes:
        next: the protocol's word for it.
        name: the tool, "" when it is none or not known.
        seconds: expected wait; None: taken from the agent's own history.
    """

    next: Next
    name: str = ""
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.next not in _wire.NEXTS:
            raise ConfigError(f"next is one of {sorted(_wire.NEXTS)}, got {self.next!r}")
        if self.seconds is not None and not 0 <= self.seconds < 1_000_000:
            raise ConfigError(f"seconds is from 0 to 999,999, got {self.seconds!r}")

    @property
    def gap_ms(self) -> int | None:
        """The expected wait in milliseconds."""
        return None if self.seconds is None else round(self.seconds * 1000)


def tool(name: str = "", *, seconds: float | None = None) -> Expectation:
    """Expect that a tool runs next: `expect=tenuto.tool("pytest", seconds=40)`.

    Args:
        name: the tool's name, as the model calls it.
        seconds: how long it takes; None: what the agent's earlier calls of it took.

    Raises:
        ConfigError: `seconds` is negative, a million or more, or not a number.
    """
    return Expectation("tool", name, seconds)
