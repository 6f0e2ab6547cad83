"""What the demo leaves behind: a table on stdout, a picture and the results in a folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.demo.side import RANKS, Plan
from tenuto.replay import TurnResult
from tenuto.report import Row, Side, summarise, table, timeline_svg

_TITLE = "Which of two ranks served each turn, and how much of its prompt it had cached"
_NOTES = {
    "embedded": "Embedded engine: placement and cache as in vLLM, token counts exact; times are "
    "modelled ({prefill:,.0f} prompt tokens a second and rank) and stretch on a busy machine.",
    "vllm": "Real vLLM with a tiny random model on CPU: token counts are exact, times are "
    "this machine's and noisy.",
}


def report(results: Mapping[str, Sequence[TurnResult]], plan: Plan, out: Path) -> str:
    """Write `demo.svg` and `demo.json` below `out`; return what to print.

    Args:
        results: each side's results, by the side's name, in order.
        plan: what was run.
        out: folder, made when it is not there.
    """
    note = _NOTES[plan.engine].format(prefill=plan.prefill_tokens_per_s)
    sides = [Side(name, turns) for name, turns in results.items()]
    rows = _rows(results)
    out.mkdir(parents=True, exist_ok=True)
    picture, data = out / "demo.svg", out / "demo.json"
    picture.write_text(timeline_svg(sides, ranks=RANKS, title=_TITLE, note=note), encoding="utf-8")
    data.write_text(json.dumps(_data(results, plan, rows), indent=1) + "\n", encoding="utf-8")
    return f"{table(rows)}\n\n{note}\n{picture} and {data} are written."


def _rows(results: Mapping[str, Sequence[TurnResult]]) -> list[Row]:
    workloads = dict.fromkeys(turn.workload for turns in results.values() for turn in turns)
    rows = [
        Row(
            workload,
            side,
            summarise([turn for turn in turns if turn.workload == workload], ranks=RANKS),
        )
        for workload in workloads
        for side, turns in results.items()
    ]
    return [
        *rows,
        *(Row("both", side, summarise(turns, ranks=RANKS)) for side, turns in results.items()),
    ]


def _data(
    results: Mapping[str, Sequence[TurnResult]], plan: Plan, rows: Sequence[Row]
) -> dict[str, Any]:
    return {
        "plan": dataclasses.asdict(plan),
        "ranks": RANKS,
        "times_are_modelled": plan.engine == "embedded",
        "summaries": [
            {
                **dataclasses.asdict(row),
                "cached_share": row.summary.cached_share,
                "uncached_tokens": row.summary.uncached_tokens,
            }
            for row in rows
        ],
        "turns": {
            side: [dataclasses.asdict(turn) for turn in turns] for side, turns in results.items()
        },
    }
