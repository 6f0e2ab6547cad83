"""Write docs/retention-figures.md from the stored JSON: `python -m benchmarks.retention.page`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "retention-figures.md"
NAMES = ("workload", "serving", "cost")

_PAGE = """\
# Retention in figures

Written by `python -m benchmarks.retention.page` from [what was measured](measurements). How it
works: [retention](retention.md); on the open corpus: [simulations](simulations.md#retention);
hybrid models: [there](hybrid.md#measured).

## On a real vLLM

`python -m benchmarks.retention.serving`, {serving_machine}; vLLM 0.32 (CPU build), a tiny random
model, blocks of {block} tokens, {repeat} runs of each side in turn. Recorded coding sessions,
lengths and waits scaled down, eight at a time, with tools that take from 0.2 to 6 s and hints of
that which are wrong by a log-normal error of sigma 0.7; beside them three one-shot chats a second.

| blocks | | prompt tokens computed, agents | hit rate | first token p50 / p90, ms | chat's, ms |
|--:|---|--:|--:|--:|--:|
{serving}

Of {compared:,} answers that both sides gave, {equal:,} were equal at temperature 0.

## Agents and chat on the virtual clock

`python -m benchmarks.retention.workload`: vLLM's own scheduler and cache, a made-up model and a
clock of its own, so that every run repeats to the token. Twelve sessions of eight turns, waits of
0.5 to 8 s, four one-shot chats a second, blocks of 16 tokens, means of five seeds. *Gaps*: the
client knows its waits.

| blocks | | hit rate | prompt tokens computed | first token mean / p95, ms | chat's, ms |
|--:|---|--:|--:|--:|--:|
{workload}

## Cost

`python -m benchmarks.retention.cost`, {cost_machine}. A prompt of 100,000 tokens in 6,250 blocks of
16, the pool full of others; a step of 64 answers beside 10,000 leased blocks. Stock vLLM and ours
take turns in one process; the ratio is the median of pairs.

| | stock, ms | ours, ms | ratio | stock against stock |
|---|--:|--:|--:|--:|
{cost}
"""

_COSTS = (
    ("hand out 6,250 blocks", "request", "get_new_blocks"),
    ("hit 6,250 blocks", "request", "touch"),
    ("free 6,250 blocks, whose they are included", "request", "_free_blocks"),
    ("one step", "step", ""),
    ("hand out 6,250 blocks, no marker", "request, no marker", "get_new_blocks"),
    ("hit, no marker", "request, no marker", "touch"),
    ("free, no marker", "request, no marker", "_free_blocks"),
    ("one step, no marker", "step, no marker", ""),
)


def stored() -> dict[str, Any]:
    """Return the committed JSON by name."""
    folder = DOCS / "measurements"
    return {
        name: json.loads((folder / f"retention_{name}.json").read_text("utf-8")) for name in NAMES
    }


def page(data: dict[str, Any]) -> str:
    """Return the page."""
    serving, cost = data["serving"], data["cost"]
    return _PAGE.format(
        serving_machine=serving["machine"],
        block=serving["block_size"],
        repeat=serving["repeat"],
        serving="\n".join(row for run in serving["runs"] for row in _served(run)),
        compared=sum(run["answers_compared"] for run in serving["runs"]),
        equal=sum(run["answers_equal"] for run in serving["runs"]),
        workload="\n".join(map(_worked, data["workload"])),
        cost_machine=cost["machine"],
        cost="\n".join(_cost(cost, *one) for one in _COSTS),
    )


def _served(run: dict[str, Any]) -> list[str]:
    stock = run["sides"]["stock"]["uncached_tokens"]
    rows: list[str] = []
    for name, label in (("stock", "stock vLLM"), ("tenuto", "with leases")):
        side = run["sides"][name]
        change = "" if name == "stock" else f" ({side['uncached_tokens'] / stock - 1:+.0%})"
        times = (" / ".join(map(str, side[key].values())) for key in ("ttft_ms", "chat_ttft_ms"))
        cells = (run["pool_blocks"], label, f"{side['uncached_tokens']:,}{change}", side["hit"])
        rows.append(_row(*cells, *times))
    return rows


def _worked(one: dict[str, Any]) -> str:
    times = f"{one['ttft_ms']} / {one['ttft_p95_ms']}"
    chat = f"{one['chat_ttft_ms']} / {one['chat_ttft_p95_ms']}"
    tokens = f"{one['uncached_tokens']:,.0f}"
    return _row(one["pool"], one["policy"], f"{one['hit']:.3f}", tokens, times, chat)


def _cost(cost: dict[str, Any], label: str, case: str, name: str) -> str:
    figures, plain = cost[case], cost[f"{case.partition(',')[0]}, stock against stock"]
    figures, plain = (one[name] if name else one for one in (figures, plain))
    cells = (figures["stock_ms"], figures["ours_ms"], f"{figures['ratio']:.2f}")
    return _row(label, *cells, f"{plain['ratio']:.2f}")


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    PAGE.write_text(page(stored()), encoding="utf-8")
