"""Write the figures of docs/prefill-decode.md: `python -m benchmarks.prefill_decode.page`."""

# ruff: noqa: E501 - rows of tables
from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
FILE = DOCS / "measurements/prefill_decode.json"
SERVERS = DOCS / "measurements/prefill_decode_servers.json"
LATENCY = DOCS / "measurements/prefill_decode_latency.json"
PAGE = DOCS / "prefill-decode.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"

_TEXT = """
`python -m benchmarks.prefill_decode CORPUS`: {traces} traces of {corpus}, {calls:,} calls, {live}
traces at a time, waits capped at 300 s, eight nodes that each cache {capacity:,} tokens. {machine}.
A decision with eight nodes on each side: {us}.

Cells: regret · mean of first token, damage and crowding, s · GB moved. *Threshold*: the best of
{thresholds} uncached tokens.

| prefill:decode | GB/s | ours | always remote | always local | threshold | best choice |
|---|--:|--:|--:|--:|--:|--:|
"""
_OTHERS = """
The same with other caches, ours alone: regret, and share of calls whose cached tokens are foretold
to the block. What is not foretold is mostly a prompt that, after an edit, goes on as one before:
more is cached than the ledger says, in the middle by 320 tokens.

| prefill:decode | GB/s | {heads} |
|---|--:|{rule}|
"""

_SERVERS = """
On two real vLLM 0.32 servers (CPU build, NIXL, a tiny model of random weights in 32 bits) with the
extension and its scheduler, `python -m tests.pd.measure`, {machine}: {turns} turns with warm ones, a
fork, a subagent, a large tool result and compactions. The tokens and bytes are the servers' own.

| | turns prefilled remotely | computed on the prefill server | on the decode server | MB moved | foretold to the token |
|---|--:|--:|--:|--:|--:|
"""
_GIVEN_UP = """
Transfers that were given up, their prompts computed on the decode server: {given_up}.
"""
_LATENCY = """
What the application adds to the first token over asking by hand, medians of {rounds} rounds in turn,
servers that answer at once, `python -m tests.pd.latency`, {machine}. Beyond a local
prefill it adds one reading of the request's JSON, which either stage by hand takes too.

| prompt, tokens | two stages by hand, ms | the application, ms | added, ms | one request by hand, ms | the application, ms | added, ms |
|--:|--:|--:|--:|--:|--:|--:|
"""

Row = dict[str, Any]
Pool = tuple[int, int, float]


def stored() -> Row:
    """Return the committed JSON of the simulation."""
    return _read(FILE)


def _read(file: Path) -> Row:
    return json.loads(file.read_text(encoding="utf-8"))


def pool(row: Row) -> Pool:
    """Return the prefill nodes, the decode nodes and the GB/s of a row."""
    return row["prefills"], row["decodes"], row["gb_per_s"]


def page(text: str, data: Row) -> str:
    """Return the page's text with the figures between its marks."""
    head, _, rest = text.partition(BEGIN)
    return head + BEGIN + figures(data) + END + rest.partition(END)[2]


def figures(data: Row) -> str:
    """Return the figures."""
    rules: dict[Pool, dict[str, Row]] = {}
    ours: dict[Pool, dict[int, Row]] = {}
    for row in data["rows"]:
        if row["capacity"] == data["capacity"]:
            rules.setdefault(pool(row), {})[row["rule"]] = row
        if row["rule"] == "ours":
            ours.setdefault(pool(row), {})[row["capacity"]] = row
    return _main(data, rules) + _others(ours) + _servers(_read(SERVERS)) + _latency(_read(LATENCY))


def _main(data: Row, pools: dict[Pool, dict[str, Row]]) -> str:
    names = [name for name in next(iter(pools.values())) if name.startswith("threshold")]
    text = _TEXT.format(
        **{name: data[name] for name in ("corpus", "live", "capacity", "machine")},
        **{name: data["rows"][0][name] for name in ("traces", "calls")},
        us=", ".join(f"{us} µs ({name})" for name, us in data["decision_us"].items()),
        thresholds=", ".join(name.split()[1] for name in names),
    )
    for (prefills, decodes, speed), rules in pools.items():
        threshold = min((rules[name] for name in names), key=lambda row: row["total_s"])
        shown = [rules["ours"], rules["always-remote"], rules["always-local"], threshold]
        text += _line(prefills, decodes, speed, [_cell(row) for row in (*shown, rules["best"])])
    return text


def _others(pools: dict[Pool, dict[int, Row]]) -> str:
    sizes = sorted(next(iter(pools.values())))
    heads = " | ".join(f"{size / 1e6:g}M tokens" for size in sizes)
    text = _OTHERS.format(heads=heads, rule="|".join(["--:"] * len(sizes)))
    for (prefills, decodes, speed), rows in pools.items():
        cells = [f"{rows[size]['regret']:.2%} · {rows[size]['exact']:.1%}" for size in sizes]
        text += _line(prefills, decodes, speed, cells)
    return text


def _servers(data: Row) -> str:
    text, given_up = _SERVERS.format(machine=data["machine"], turns=data["script_turns"]), []
    for name, row in data["policies"].items():
        counts = [f"{row[f'{side}_computed_tokens']:,}" for side in ("prefill", "decode")]
        moved = f"{row['transferred_bytes'] / 1e6:.1f}"
        foretold = f"{row['foretold_exactly']} of {row['foretellable']}"
        cells = [name, str(row["remote_turns"]), *counts, moved, foretold]
        text += f"| {' | '.join(cells)} |\n"
        given_up += [f"{name}, {count} ({why})" for why, count in row["given_up"].items()]
    return text + (_GIVEN_UP.format(given_up="; ".join(given_up)) if given_up else "")


def _latency(data: Row) -> str:
    text = _LATENCY.format(machine=data["machine"], rounds=data["rounds"])
    by = {(row["prompt_tokens"], row["way"]): row for row in data["rows"]}
    for prompt in dict.fromkeys(row["prompt_tokens"] for row in data["rows"]):
        names = ("by_hand_ms", "application_ms", "added_ms")
        cells = [f"{by[prompt, way][name]:.2f}" for way in ("remote", "local") for name in names]
        text += f"| {prompt:,} | {' | '.join(cells)} |\n"
    return text + "\n"


def _line(prefills: int, decodes: int, speed: float, cells: Sequence[str]) -> str:
    return f"| {prefills}:{decodes} | {speed:g} | {' | '.join(cells)} |\n"


def _cell(row: Row) -> str:
    return f"{row['regret']:.1%} · {row['total_s']:.2f} · {row['moved_gb']:,.0f}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), stored()), encoding="utf-8")
