"""A report as a table for a terminal. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tenuto.conformance.verdicts import Proof, Status

if TYPE_CHECKING:
    from tenuto.conformance.report import Ran, Report, Result

_MIN_WIDTH = 60
_COLOURS: dict[Status, str] = {"pass": "32", "fail": "31;1", "not seen": "33"}
_LABELS: dict[Status, str] = {"hidden": "not on the wire"}
_COUNTED: tuple[Status, ...] = ("pass", "fail", "not seen", "not expressible")
_UNCOUNTED: frozenset[Status] = frozenset({"server", "hidden"})


def table(report: Report, *, width: int = 100, colour: bool = False) -> str:
    """Return the report as text, lines of at most `width` characters, without a last newline.

    Args:
        report: the report.
        width: characters; fewer than 60 count as 60.
        colour: whether to colour the results, for a terminal.
    """
    width = max(width, _MIN_WIDTH)
    ids = max((len(result.id) for result in report), default=0)
    labels = max((len(_label(result)) for result in report), default=0)
    head = [_dialects(report), *map(_ran, report.runs)]
    lines = [*(line for one in head for line in _wrapped(one, width)), ""]
    for result in report:
        if result.status in _UNCOUNTED:
            continue
        label = _label(result).ljust(labels)
        code = _COLOURS.get(result.status) if colour else None
        shown = f"\x1b[{code}m{label}\x1b[0m" if code else label
        indent = " " * (ids + labels + 4)
        said = list(_said(result, width - len(indent)))
        lines.append(f"{result.id.ljust(ids)}  {shown}  {said[0]}")
        lines += [indent + line for line in said[1:]]
    lines += ["", *_elsewhere(report, width), *_wrapped(_summary(report), width)]
    return "\n".join(line.rstrip() for line in lines)


def _said(result: Result, width: int) -> Iterator[str]:
    yield from _wrapped(result.why, width) or [""]
    if result.how:
        yield from _wrapped(f"to see it: {result.how}", width)
    yield from _wrapped(" · ".join(map(_proof, result.proof)), width)


def _proof(proof: Proof) -> str:
    number = f"#{proof.request}" if proof.run == 1 else f"#{proof.request} of run {proof.run}"
    return f"{number} {proof.what}: {proof.value or '(none)'}"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def _label(result: Result) -> str:
    return _LABELS.get(result.status, result.status)


def _dialects(report: Report) -> str:
    return f"dialect: {' + '.join(report.dialects) or 'none: no request carries a session'}"


def _ran(ran: Ran) -> str:
    left_out = f", without {', '.join(ran.without)}" if ran.without else ""
    return (
        f"run: {ran.calls} model calls of {ran.requests} requests in {ran.wall_s:.1f} s, "
        f"{ran.ending}{left_out}"
    )


def _elsewhere(report: Report, width: int) -> Iterator[str]:
    for status, title in (("server", "of a server"), ("hidden", "not on the wire")):
        if ids := [result.id for result in report if result.status == status]:
            yield from _wrapped(f"{title}: {', '.join(ids)}", width)


def _summary(report: Report) -> str:
    counts = report.counts
    return ", ".join(f"{counts[status]} {status}" for status in _COUNTED if status in counts)
