"""Which cause is behind what moved. Pure.

Each second of change belongs to one cause: placement and retention at the cost of their
tokens, prefill where a token takes longer, decode, and queueing. Only parts that are called
different can be the cause.

Waits grow behind more work, and decode slows beside it. A session that moves between ranks
leaves copies on each, which push others out, and comes back late to what it left: both are
retention by the tokens' account. So when one of these moved most, the cause is a driver of it
that moved the same way:

| moved most | driver | it is the cause when it |
| --- | --- | --- |
| queueing | placement, retention, prefill, decode | has 5 % of the change, or moved by 20 % |
| decode | placement, retention, prefill | the same, and moved by a larger factor than decode |
| retention | placement | has 10 % of the change in uncached tokens |
| queueing, retention | placement | is another: 10 % of the turns more, or fewer, met another rank |

Half the blocks move no turn, so placement stays where it was and retention is the cause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenuto.compare.decompose import Decomposition
from tenuto.compare.values import Cause, Figure, Verdict

_DRIVER_SHARE = 0.05
_DRIVER_CHANGE = 0.2
_PLACEMENT_SHARE = 0.1
_PLACEMENT_MOVES = 0.1
# A part that moved as much as the whole is the whole's shift.
_CLEARLY_MORE = 1.01


@dataclass(frozen=True, slots=True)
class _Moved:
    """A cause's change: in seconds, by which factor its driver changed, and its figure."""

    seconds: float
    factor: float
    figure: Figure

    @property
    def size(self) -> tuple[float, float]:
        """Seconds, and among causes that cost none their own amount."""
        return abs(self.seconds), abs(self.figure.difference.value)


def verdict(
    parts: Decomposition,
    *,
    doubt: str,
    is_modelled: bool,
    is_recorded: bool = False,
    is_exact: bool = False,
) -> Verdict:
    """Name the cause.

    Args:
        parts: what moved.
        doubt: why nothing is claimed, where nothing is.
        is_modelled: the times come from a model; then tokens are the better measure of what
            was computed.
        is_recorded: the times are the trace's, whatever a call finds in the cache; then tokens
            are the only measure.
        is_exact: the times have nothing of chance, so that a wait that moved follows from what
            else did, be it the other way: other turns wait when others lose their cache.
    """
    tokens = {figure.key: figure for figure in parts.tokens}
    seconds = {figure.key: figure for figure in parts.seconds}
    moved = _moved(parts, tokens, seconds)
    claimed: dict[Cause, _Moved] = {
        cause: one for cause, one in moved.items() if one.figure.is_different
    }
    turn, uncached = seconds["turn_s"], tokens.get("uncached")
    if not claimed:
        return Verdict(False, None, None, "seconds", {}, _words_of_nothing(parts, doubt))
    candidates = claimed
    of_tokens: dict[Cause, _Moved] = {
        cause: one for cause, one in claimed.items() if one.figure.unit == "tokens"
    }
    if is_recorded:
        candidates = of_tokens or claimed
    elif turn.is_different:
        same_way: dict[Cause, _Moved] = {
            cause: one for cause, one in claimed.items() if one.seconds * turn.difference.value > 0
        }
        candidates = same_way or claimed
    elif uncached is not None and uncached.is_different:
        candidates = of_tokens or claimed
    moved_most = max(candidates, key=lambda cause: candidates[cause].size)
    cause = _root(moved_most, candidates, turn, parts)
    if cause == "queueing" and is_exact and len(claimed) > 1:
        others: dict[Cause, _Moved] = {
            name: one for name, one in claimed.items() if name != "queueing"
        }
        cause = _root(max(others, key=lambda name: others[name].size), others, turn, parts)
    by_tokens = claimed[cause].figure.unit == "tokens" and (is_modelled or not turn.is_different)
    # Shares of a change that may be none say nothing.
    shares: dict[str, float] = {}
    if by_tokens and uncached is not None and uncached.is_different:
        shares = _token_shares(tokens)
    elif not by_tokens and turn.is_different:
        shares = _shares(parts, moved, turn)
    words = _words(cause, moved_most, claimed, parts, shares)
    return Verdict(True, cause, moved_most, "tokens" if by_tokens else "seconds", shares, words)


def _moved(
    parts: Decomposition, tokens: Mapping[str, Figure], seconds: Mapping[str, Figure]
) -> dict[Cause, _Moved]:
    moved: dict[Cause, _Moved] = {}
    causes: dict[Cause, Figure | None] = {
        "placement": tokens.get("placement"),
        "retention": tokens.get("retention"),
        "cache": tokens.get("uncached") if len(tokens) == 1 else None,
    }
    for cause, figure in causes.items():
        if figure is not None:
            cost_s = figure.difference.value * parts.s_per_uncached_token
            moved[cause] = _Moved(cost_s, _factor(tokens["uncached"]), figure)
    prefill_s = max(seconds["prefill_s"].a.value, 1e-9)
    speed_s = parts.speed.difference.value
    factor = abs(math.log(max(prefill_s + speed_s, prefill_s / 100) / prefill_s))
    moved["prefill"] = _Moved(speed_s, factor, parts.speed)
    effects: tuple[Cause, ...] = ("decode", "queueing")
    for cause in effects:
        figure = seconds[f"{cause}_s"]
        moved[cause] = _Moved(figure.difference.value, _factor(figure), figure)
    return moved


def _factor(figure: Figure) -> float:
    """Return by which factor a figure changed, as the size of its logarithm."""
    if figure.a.value <= 0 or figure.b.value <= 0:
        return math.inf if figure.a.value != figure.b.value else 0.0
    return abs(math.log(figure.b.value / figure.a.value))


def _root(
    moved_most: Cause, candidates: Mapping[Cause, _Moved], turn: Figure, parts: Decomposition
) -> Cause:
    effects: tuple[Cause, ...] = ("queueing", "decode")
    most = candidates[moved_most]
    if moved_most == "retention" and (placement := candidates.get("placement")):
        moved, whole = placement.figure.difference.value, parts.tokens[0].difference.value
        has_share = abs(moved) >= _PLACEMENT_SHARE * abs(whole)
        is_driver = has_share or _is_placed_anew(parts)
        is_same_way = moved * most.figure.difference.value > 0
        return "placement" if is_driver and is_same_way else moved_most
    if moved_most not in effects:
        return moved_most
    drivers: list[Cause] = [
        cause
        for cause, one in candidates.items()
        if cause not in {moved_most, "queueing"}
        and one.seconds * most.seconds > 0
        and (
            abs(one.seconds) >= _DRIVER_SHARE * abs(turn.difference.value)
            or one.factor >= _DRIVER_CHANGE
            or (cause == "placement" and moved_most == "queueing" and _is_placed_anew(parts))
        )
        and (moved_most == "queueing" or one.factor > most.factor)
    ]
    if not drivers:
        return moved_most
    first = max(drivers, key=lambda cause: candidates[cause].size)
    return _root(first, candidates, turn, parts)


def _is_placed_anew(parts: Decomposition) -> bool:
    moves = parts.moves
    if moves is None or not moves.is_different:
        return False
    return abs(moves.difference.value) >= _PLACEMENT_MOVES


def _shares(parts: Decomposition, moved: Mapping[Cause, _Moved], turn: Figure) -> dict[str, float]:
    whole = turn.difference.value
    if not whole:
        return {}
    shares: dict[str, float] = {cause: one.seconds / whole for cause, one in moved.items()}
    for figure in parts.tokens:
        if figure.key == "unavoidable":
            cost_s = figure.difference.value * parts.s_per_uncached_token
            shares["unavoidable"] = cost_s / whole
    return shares


def _token_shares(tokens: Mapping[str, Figure]) -> dict[str, float]:
    whole = tokens["uncached"].difference.value
    if not whole:
        return {}
    if len(tokens) == 1:
        return {"cache": 1.0}
    return {
        key: figure.difference.value / whole for key, figure in tokens.items() if key != "uncached"
    }


def _words_of_nothing(parts: Decomposition, doubt: str) -> str:
    shifts = [
        f"in {_short(most)}, {_values(most)} ({size * 100:+.0f} % of {of})"
        for figures, of in (
            (parts.tokens, "uncached tokens"),
            (parts.seconds, "the time of all turns"),
        )
        if figures
        for size, most in (_largest(figures),)
        if size
    ]
    if not shifts:
        return "No difference: the tokens and seconds of all turns are equal."
    told = "shift is" if len(shifts) == 1 else "shifts are"
    return f"No difference can be claimed: {doubt}. The largest {told} {' and '.join(shifts)}."


def _largest(figures: Sequence[Figure]) -> tuple[float, Figure]:
    """Return the figure that moved most, and by which share of the first, the whole."""
    whole = figures[0]
    most = max(figures, key=lambda figure: abs(figure.difference.value))
    if abs(most.difference.value) < _CLEARLY_MORE * abs(whole.difference.value):
        most = whole
    return most.difference.value / max(abs(whole.a.value), 1e-12), most


def _short(figure: Figure) -> str:
    return figure.label.partition(":")[0].partition(",")[0]


def _values(figure: Figure) -> str:
    a, b = figure.a.value, figure.b.value
    if figure.unit == "tokens":
        return f"{a:,.0f} to {b:,.0f} tokens"
    if max(abs(a), abs(b)) < 1:
        return f"{a * 1000:,.1f} to {b * 1000:,.1f} ms"
    return f"{a:,.1f} to {b:,.1f} s"


def _words(
    cause: Cause,
    moved_most: Cause,
    claimed: Mapping[Cause, _Moved],
    of: Decomposition,
    shares: Mapping[str, float],
) -> str:
    turn, moves = of.seconds[0], of.moves
    parts = [f"{cause} moved: {_told(cause, claimed[cause].figure)}"]
    share = shares.get(cause)
    if share is not None and share > 0:
        whole = "uncached tokens" if "queueing" not in shares else "turn time"
        parts[0] += f", {share * 100:.0f} % of the change in {whole}"
    if cause == "placement" and moves is not None and moves.is_different:
        a, b = moves.a.value * 100, moves.b.value * 100
        parts.append(f"Turns on another rank than the one before: {a:.0f} % to {b:.0f} %")
    if moved_most != cause:
        behind = _told(moved_most, claimed[moved_most].figure)
        most = "tokens" if claimed[moved_most].figure.unit == "tokens" else "seconds"
        parts.append(f"Most {most} are {moved_most} behind it: {behind}")
    others = _others(cause, moved_most, claimed)
    if others:
        parts.append(f"Also different: {others}")
    certain = "Turns taken together differ"
    if not turn.is_different:
        certain = "The change in turn time is not certain"
    parts.append(f"{certain}: {_told('turns', turn)}")
    text = ". ".join(part[0].upper() + part[1:] for part in parts)
    return text + "."


def _others(cause: Cause, moved_most: Cause, claimed: Mapping[Cause, _Moved]) -> str:
    names: Sequence[Cause] = [name for name in claimed if name not in (cause, moved_most)]
    return ", ".join(f"{name} ({_told(name, claimed[name].figure)})" for name in names)


def _told(name: str, figure: Figure) -> str:
    if name == "prefill":
        return f"{figure.difference.value:+,.1f} s at equal tokens"
    return _values(figure).replace(" tokens", " uncached tokens")
