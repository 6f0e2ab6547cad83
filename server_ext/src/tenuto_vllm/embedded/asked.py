"""What a marked request tells the engine's policies. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tenuto_vllm._wire import Turn, decode
from tenuto_vllm.retention import Wait


class Asked(NamedTuple):
    """Whose request it is, and what follows it; see `core.Call` for the words."""

    session: str = ""
    run: str = ""
    parent: str = ""
    turn: int = 0
    inherits: bool = False
    keep: int | None = None
    wait: Wait = "unknown"
    is_final: bool = False
    gap_s: float | None = None


def asked(headers: Iterable[tuple[bytes, bytes]]) -> Asked:
    """Read the headers of protocol 1; one that cannot be read says nothing."""
    markers = decode(headers).markers
    if markers is None:
        return Asked()
    turn = markers.turn
    return Asked(
        session=markers.session,
        run=markers.run or markers.session,
        parent=markers.parent or "",
        turn=turn.n or 0,
        inherits=turn.fork == "inherit",
        keep=turn.keep,
        wait=_wait(turn),
        is_final=turn.next == "end",
        gap_s=None if turn.gap is None else turn.gap / 1000,
    )


def _wait(turn: Turn) -> Wait:
    if turn.next in {"tool", "child"}:
        return "tool"
    return "user" if turn.next == "user" else "unknown"
