"""Which cause is behind what moved. Pure.

Each second of change belongs to one cause: placement and retention at the cost of their
tokens, prefill where a token takes longer, decode, and queueing. Only parts that are called
different can be the cause.

Waits grow behind more work, and decode slows beside it. So when queueing or decode moved
most, the cause is a driver of theirs that moved the same way:

| moved most | driver | it is the cause when it |
| --- | --- | --- |
| queueing | placement, retention, prefill, decode | has 10 % of the change, or moved by 20 % |
| decode | placement, retention, prefill | the same, and moved by a larger factor than decode |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenuto.compare.decompose import Decomposition
from tenuto.compare.values import Cause, Figure, Verdict

_DRIVER_SHARE = 0.1
_DRIVER_CHANGE = 0.2


@dataclass(frozen=True, slots=True)
class _Moved:
    """A cause's change: in seconds, by which factor its driver changed, and its figure."""

    seconds: float
    factor: float
    figure: Figure


def verdict(parts: Decomposition, *, is_modelled: bool) -> Verdict:
    """Name the cause.

    Args:
        parts: what moved.
        is_modelled: the times come from a model; then tokens are the better measure of what
            was computed.
    """
    tokens = {figure.key: figure for figure in parts.tokens}
    seconds = {figure.key: figure for figure in parts.seconds}
    moved = _moved(parts, tokens, seconds)
    claimed: dict[Cause, _Moved] = {
        cause: one for cause, one in moved.items() if one.figure.is_different
    }
    turn, uncached = seconds["turn_s"], tokens["uncached"]
    if not claimed:
        words = "No difference: nothing moved beyond what equal runs show."
        return Verdict(False, None, None, "seconds", _shares(parts, moved, turn), words)
    candidates = claimed
    if turn.is_different:
        same_way: dict[Cause, _Moved] = {
            cause: one for cause, one in claimed.items() if one.seconds * turn.difference.value > 0
        }
        candidates = same_way or claimed
    elif uncached.is_different:
        of_tokens: dict[Cause, _Moved] = {
            cause: one for cause, one in claimed.items() if one.figure.unit == "tokens"
        }
        candidates = of_tokens or claimed
    moved_most = max(candidates, key=lambda cause: abs(candidates[cause].seconds))
    cause = _root(moved_most, candidates, turn)
    by_tokens = claimed[cause].figure.unit == "tokens" and (is_modelled or not turn.is_different)
    shares = _token_shares(tokens) if by_tokens else _shares(parts, moved, turn)
    words = _words(cause, moved_most, claimed, turn, shares)
    return Verdict(True, cause, moved_most, "tokens" if by_tokens else "seconds", shares, words)


def _moved(
    parts: Decomposition, tokens: Mapping[str, Figure], seconds: Mapping[str, Figure]
) -> dict[Cause, _Moved]:
    uncached = tokens["uncached"]
    of_tokens: tuple[Cause, ...] = ("placement", "retention") if len(tokens) > 1 else ("cache",)
    moved: dict[Cause, _Moved] = {}
    for cause in of_tokens:
        figure = tokens.get(cause, uncached)
        cost_s = figure.difference.value * parts.s_per_uncached_token
        moved[cause] = _Moved(cost_s, _factor(uncached), figure)
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


def _root(moved_most: Cause, candidates: Mapping[Cause, _Moved], turn: Figure) -> Cause:
    effects: tuple[Cause, ...] = ("queueing", "decode")
    if moved_most not in effects:
        return moved_most
    most = candidates[moved_most]
    drivers: list[Cause] = [
        cause
        for cause, one in candidates.items()
        if cause not in {moved_most, "queueing"}
        and one.seconds * most.seconds > 0
        and (
            abs(one.seconds) >= _DRIVER_SHARE * abs(turn.difference.value)
            or one.factor >= _DRIVER_CHANGE
        )
        and (moved_most == "queueing" or one.factor > most.factor)
    ]
    if not drivers:
        return moved_most
    first = max(drivers, key=lambda cause: abs(candidates[cause].seconds))
    return first if moved_most == "decode" else _root(first, candidates, turn)


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


def _words(
    cause: Cause,
    moved_most: Cause,
    claimed: Mapping[Cause, _Moved],
    turn: Figure,
    shares: Mapping[str, float],
) -> str:
    parts = [f"{cause} moved: {_told(cause, claimed[cause].figure)}"]
    share = shares.get(cause)
    if share is not None and share > 0:
        of = "uncached tokens" if "queueing" not in shares else "turn time"
        parts[0] += f", {share * 100:.0f} % of the change in {of}"
    if moved_most != cause:
        behind = _told(moved_most, claimed[moved_most].figure)
        parts.append(f"Most seconds are {moved_most} behind it: {behind}")
    others = _others(cause, moved_most, claimed)
    if others:
        parts.append(f"Also different: {others}")
    verb = "differ" if turn.is_different else "do not differ"
    parts.append(f"Turns taken together {verb}: {_told('turns', turn)}")
    text = ". ".join(part[0].upper() + part[1:] for part in parts)
    return text + "."


def _others(cause: Cause, moved_most: Cause, claimed: Mapping[Cause, _Moved]) -> str:
    names: Sequence[Cause] = [name for name in claimed if name not in (cause, moved_most)]
    return ", ".join(f"{name} ({_told(name, claimed[name].figure)})" for name in names)


def _told(name: str, figure: Figure) -> str:
    a, b, unit = figure.a.value, figure.b.value, figure.unit
    if name == "prefill":
        return f"{figure.difference.value:+,.1f} s at equal tokens"
    if unit == "tokens":
        return f"{a:,.0f} to {b:,.0f} uncached tokens"
    return f"{a:,.1f} to {b:,.1f} s"
