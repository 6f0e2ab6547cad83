"""A trace as a Weka object, equal to the one it was read from when it was read from one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenuto.trace.formats import weka_derived as derived
from tenuto.trace.formats.weka_rows import packed as packed_blocks
from tenuto.trace.formats.weka_rows import published
from tenuto.trace.model import Trace, Turn, children_of
from tenuto.trace.problem import Problem, TraceError


def weka_from_trace(trace: Trace, *, packed: bool = True) -> dict[str, Any]:
    """Return one trace as a Weka object, each subagent behind its spawning turn.

    A trace of another format has absolute times, and what Weka has no word for is left out.

    Args:
        trace: to be written.
        packed: with `hk` and `hr` in place of `hash_ids`.

    Raises:
        TraceError: when the trace has not exactly one root, or forks below a fork;
            the format can say neither.
    """
    roots = children_of(trace, None)
    if len(roots) != 1 or len(children_of(trace, roots[0].label)) + 1 != len(trace.sessions):
        what = (
            f"trace {trace.id} is not one root with direct children, all that Weka can say; "
            "`tenuto.trace.split` (`tenuto trace convert --split`) makes several of it that are"
        )
        raise TraceError([Problem(None, what)])
    is_weka = trace.source == "weka"
    entries: list[tuple[float, dict[str, Any]]] = [
        (index + 0.5, row) for index, row in enumerate(_calls(roots[0].turns, is_weka, packed))
    ]
    for child in children_of(trace, roots[0].label):
        extra = child.extra if is_weka else None
        row = derived.joined(derived.of_session(child), extra)
        row["requests"] = _calls(child.turns, is_weka, packed)
        entries.append(((extra or {}).get(derived.PLACE, derived.place(child)), row))
    # A stable sort keeps entries at one place in the order of the sessions.
    rows = [row for _, row in sorted(entries, key=lambda entry: entry[0])]
    known = derived.of_trace(trace)
    return {**derived.joined(known, trace.extra if is_weka else None), "requests": rows}


def _calls(turns: Sequence[Turn], is_weka: bool, packed: bool) -> list[dict[str, Any]]:
    rows = [derived.joined(derived.of_turn(t), t.extra if is_weka else None) for t in turns]
    prompts = [turn.blocks for turn in turns]
    if packed:
        for row, (kept, fresh) in zip(rows, packed_blocks(prompts), strict=True):
            row["hk"], row["hr"] = kept, fresh
    else:
        for row, ids in zip(rows, published(prompts), strict=True):
            row["hash_ids"] = ids
    return rows
