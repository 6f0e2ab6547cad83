"""Write docs/simulations.md from docs/measurements/simulator.json.

python -m benchmarks.simulator_page
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks import simulator_skew as skew
from benchmarks.page import DOCS
from benchmarks.simulator import (
    COMMON,
    FILE,
    FORKING_SHARE,
    MANY,
    MORE,
    MORE_TIMES,
    PLACEMENT,
    RESAMPLED,
    RETENTION,
)
from benchmarks.simulator_retention import gains, retained

_HEAD = """# Simulations

Written by `python -m benchmarks.simulator_page` from [the JSON](measurements/simulator.json) that
`make bench-simulator CORPUS=FILE` makes. The corpus is the open part of
[callanjfox/kv-cache-tester](https://github.com/callanjfox/kv-cache-tester) (Apache-2.0):
{sessions} real Claude Code sessions, {calls:,} calls, {tokens:.2f} G prompt tokens, with
subagents. With caches without end {theoretical:.2%} of the prompt tokens would be cached. Eight
ranks, 64 sessions at a time, waits capped at 300 s, each call as long as it was recorded: counts
of tokens, no model of latency. {machine}.

What each policy does is in the tables of `tenuto_vllm.embedded.placements` and
`tenuto_vllm.retention.policies`; how the engine agrees with a real vLLM in
[the embedded engine](embedded.md).

## Placement

Cells: tokens cached · million tokens computed · computed tokens of the busiest rank to the mean.
Eviction is LRU. One command:

```
{placement}
```

"""
_PLACEMENT = """
Stock vLLM's rule (`least-loaded`) computes {times_1} times what a sticky session does at 1M
tokens a rank, and {times_2} times at 2M: memory does not help it. Hashing costs balance and,
while memory is short, cache. `subagent-keyed` differs from `session-sticky` in the {forking}
sessions that fork. `tenuto` is [the extension's rule](placement.md), with clients that say what a
turn keeps of its context. It computes {less:.0%} less than a sticky session at 1M tokens a rank: a
session whose cache is gone goes where least was computed lately. The oracle sees every cache and
never looks ahead.

### Many ranks

All {sessions} sessions at once on 64 ranks:

```
{many}
```

{many_table}
Whole sessions cannot be dealt evenly here: they are six and a half a rank, and one computes
{largest:,} tokens. With caches without end the busiest rank has {dealt_known:.2f} of the mean where
somebody knows beforehand what each session will compute, and deals the longest first. Dealt at
random, as many to each rank, it has {dealt_unknown[1]:.2f}, in nine of ten deals between
{dealt_unknown[0]:.2f} and {dealt_unknown[2]:.2f}. What a session has computed says next to nothing
of what it will (correlation {foreseen:.2f}). But a session need not stay whole:
{behind_little:.0%} of all tokens are computed by turns that keep less than half of the prompt
before, as after a compaction, where leaving costs little. A client that does not say so keeps its
sessions whole.

Eight sessions at a time for each rank, as on eight ranks: {more:,} drawn from the same with
replacement, 512 at a time, in blocks of 256 tokens:

```
{more_command}
```

{more_table}
### Many forks

{resampled} sessions drawn from the same with replacement, {forking_share:.0%} of them forking,
eight ranks, 64 at a time:

{forks_table}
The same where each subagent begins with the whole prompt of the turn that spawned it
(`fork=inherit`), so that a subagent elsewhere costs that prompt again:

{inherits_table}
### Skewed keys

{ranks} ranks that compute {tokens_per_s:,} tokens a second, {others} sessions that wait for
20 s after each of {turns} turns, and beside them:

* one session that makes {heavy_share:.0%} of all calls, one after the other;
* or a session that spawns {children} children at once, who inherit its context of 33,000 tokens and
  add 10,000 of their own.

Cells: million tokens computed · computed tokens of the busiest rank to the mean · calls of the rank
with the fewest to the mean · most moves of one session within a minute · 90th percentile of the
time to first token, of the others' turns after their first, and of the children's.

{skew_table}
A session by itself cannot fill a rank, however much it calls, so it stays; the others begin
elsewhere. Of the children those stay with their parent that would wait there for less than twice
what its context costs elsewhere. Many calls at once under one session's id move it at most once
a minute (`tests/unit/server_ext/test_placement_skew.py`).

### Beside the whole corpus

The open part has 415 of the 739 sessions of the corpus. A simulation of 710 of them (49,334
calls, by session and not by block, without prefixes that sessions share) gave, as million tokens
computed:

| | 0.5M a rank | 1M a rank | 2M a rank |
|---|--:|--:|--:|
| least loaded | 5,320 | 4,707 | 3,901 |
| session hash | 2,578 | 949 | 322 |
| session sticky | 2,408 | 826 | 305 |
| prefix oracle | 2,170 | 708 | 287 |

The order is the same. Least loaded to sticky was 2.2, 5.7 and 12.8 there; here it is {ratios}:
fewer sessions outgrow 2M tokens a rank. The busiest rank of a sticky placement has more of the
mean here (1.44 there at 1M), most likely since a few long sessions weigh more among 415 than
among 710. Keying by subagent made it 1.19 there and changes nothing here, for which no reason was
found: in both one session of forty forks.

## Retention

Sessions are sticky; cells: million tokens computed, and the change from LRU. One command:

```
{retention}
```

"""
_COST = """
## What a simulation costs

One set-up, one core, reading the traces included: it grows with calls and blocks.

| sessions | calls | prompt tokens | seconds | peak memory, MB |
|--:|--:|--:|--:|--:|
"""


def page(data: dict[str, Any]) -> str:
    """Return the page; pure."""
    placement, retention, cost = data["placement"], data["retention"], data["cost"]
    whole = cost[-1]
    computed = {
        (one["placement"], one["tokens_per_rank"]): one["computed_tokens"] for one in placement
    }
    times = {
        size: computed["least-loaded", size] / computed["session-sticky", size]
        for size in (500_000, 1_000_000, 2_000_000)
    }
    return (
        _HEAD.format(
            sessions=data["sessions"],
            calls=whole["calls"],
            tokens=whole["prompt_tokens"] / 1e9,
            theoretical=placement[0]["theoretical_hit"],
            machine=data["machine"],
            placement=command([*COMMON, *PLACEMENT]),
        )
        + table(placement, "placement", _placed)
        + _PLACEMENT.format(
            times_1=f"{times[1_000_000]:.1f}",
            times_2=f"{times[2_000_000]:.1f}",
            less=1 - computed["tenuto", 1_000_000] / computed["session-sticky", 1_000_000],
            forking=data["forking"],
            sessions=data["sessions"],
            many=command(MANY),
            many_table=table(data["many_ranks"], "placement", _placed),
            **data["known"],
            more=MORE_TIMES * data["sessions"],
            more_command=command(MORE),
            more_table=table(data["more_sessions"], "placement", _placed),
            inherits_table=table(data["inherits"], "placement", _placed),
            ranks=skew.RANKS,
            tokens_per_s=skew.TOKENS_PER_S,
            others=skew.OTHERS,
            turns=skew.TURNS,
            children=skew.CHILDREN,
            heavy_share=skew.HEAVY_SHARE,
            skew_table=skew_table(data["skews"]),
            resampled=RESAMPLED,
            forking_share=FORKING_SHARE,
            forks_table=table(data["forks"], "placement", _placed),
            ratios=f"{times[500_000]:.1f}, {times[1_000_000]:.1f} and {times[2_000_000]:.1f}",
            retention=command([*COMMON, *RETENTION]),
        )
        + table(retention, "retention", retained(retention))
        + gains(retention, data["retention_exact"])
        + _COST
        + "".join(
            f"| {one['sessions'] or data['sessions']} | {one['calls']:,} "
            f"| {one['prompt_tokens'] / 1e6:,.0f} M | {one['seconds']} | {one['peak_mb']} |\n"
            for one in cost
        )
    )


def command(options: list[str]) -> str:
    """Return the command of a table, on lines that fit a page."""
    words = ["tenuto", "simulate", "CORPUS", *options]
    lines, line = [], ""
    for word in words:
        if word.startswith("--") and len(line) > 60:
            lines.append(line)
            line = "   "
        line = f"{line} {word}" if line else word
    return " \\\n".join([*lines, line])


def table(outcomes: list[dict[str, Any]], by: str, cell: Any) -> str:
    """Return a table with a row for each policy and a column for each size of cache."""
    sizes = sorted({one["tokens_per_rank"] for one in outcomes})
    head = " | ".join(f"{size / 1e6:g}M a rank" for size in sizes)
    text = f"| {by} | {head} |\n|---|{'--:|' * len(sizes)}\n"
    for name in dict.fromkeys(one[by] for one in outcomes):
        cells = [
            cell(one)
            for size in sizes
            for one in outcomes
            if (one[by], one["tokens_per_rank"]) == (name, size)
        ]
        text += f"| `{name}` | {' | '.join(cells)} |\n"
    return text


def skew_table(rows: list[dict[str, Any]]) -> str:
    """Return a table with a row for each placement and a column for each load."""
    loads = list(dict.fromkeys(row["load"] for row in rows))
    text = f"| placement | one session | {skew.CHILDREN} children |\n|---|--:|--:|\n"
    for name in dict.fromkeys(row["placement"] for row in rows):
        cells = [
            _skewed(row)
            for load in loads
            for row in rows
            if (row["placement"], row["load"]) == (name, load)
        ]
        text += f"| `{name}` | {' | '.join(cells)} |\n"
    return text


def _skewed(row: dict[str, Any]) -> str:
    return (
        f"{row['computed_tokens'] / 1e6:.1f} · {row['imbalance']:.2f} · {row['least_share']:.2f} "
        f"· {row['most_moves']} · {row['ttft_p90_s']:.2f} s"
    )


def _placed(one: dict[str, Any]) -> str:
    return f"{one['hit']:.1%} · {one['computed_tokens'] / 1e6:,.0f} · {one['imbalance']:.2f}"


def stored() -> dict[str, Any]:
    """Return the committed JSON."""
    return json.loads(FILE.read_text("utf-8"))


def main() -> None:
    """Write the page."""
    (DOCS / "simulations.md").write_text(page(stored()), encoding="utf-8")


if __name__ == "__main__":
    main()
