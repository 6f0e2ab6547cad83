"""What docs/simulations.md says of retention. Pure."""

from __future__ import annotations

from typing import Any

_RETENTION = """
Of what the oracle gains over LRU at {sizes} a rank,
`expected-return` has {expected} and `hinted` has {hinted}.
45 % was aimed at without hints, and is reached; with hints 80 % was aimed at, and is not reached.
`expected-return` sees boundaries alone: a tool call, an answer to a person, a
session's end. `hinted` has in addition what a client says of its tools, with a log-normal error of
sigma 0.7, and nothing of people. Both are `Waits` and `order` of `tenuto_vllm.retention`, as
the engine has them. `belady` knows each session's next use and which blocks it keeps, not the
next use of blocks that several share. SLRU loses to LRU: a session's newest blocks are used once,
and they are the ones it needs next.

What `hinted` lacks is mostly knowledge: with hints that are right (`--hint-sigma 0`) the same
policy has {exact}; of the waits for people nothing is told then either.

What each part is worth at 0.5M a rank, as a share of that gain, each line with those above it. The
last line is the table above; the others are an experiment of 2026-11-30, the same simulation with
parts switched off in the source, for which there is no command:

| | without hints | with hints |
|---|--:|--:|
| fixed medians, doubled when they pass | 22 % | 67 % |
| what is left of a log-normal wait, by the fleet's and the session's mean | 35 % | 69 % |
| superseded when the next turn is admitted, rather than when it ends | 36 % | 70 % |
| sessions whose request waits in line are no victims | 41 % | 73 % |
| histograms of the session's own waits and the fleet's, by kind | {whole} % | {whole_hinted} % |

Without gain, or worse, in experiments of the same day, most of them in a model of the same replay
that counts whole sessions:
Gittins' index, the hazard rate or the chance of a return within 10 to
80 s in place of the median; the mean in place of the median (better with hints by less than a
point, worse without); the size of the session or the share of it that is left as a factor; the age
of the run as a factor (worse by up to 25 points), so that it only decides between equals.
"""


def retained(outcomes: list[dict[str, Any]]) -> Any:
    """Return what writes a cell: million tokens computed, and the change from LRU."""
    lru = {
        one["tokens_per_rank"]: one["computed_tokens"]
        for one in outcomes
        if one["retention"] == "lru"
    }

    def cell(one: dict[str, Any]) -> str:
        change = one["computed_tokens"] / lru[one["tokens_per_rank"]] - 1
        moved = "" if one["retention"] == "lru" else f" ({change:+.1%})"
        return f"{one['computed_tokens'] / 1e6:,.0f}{moved}"

    return cell


def gains(retention: list[dict[str, Any]], exact: list[dict[str, Any]]) -> str:
    """Return the text behind the table.

    Args:
        retention: outcomes of the table's policies.
        exact: of `hinted` with hints that are right.
    """
    expected = _gained(retention, retention, "expected-return")
    hinted = _gained(retention, retention, "hinted")
    return _RETENTION.format(
        expected=_listed(expected),
        hinted=_listed(hinted),
        sizes="0.5M, 1M and 1.5M",
        exact=_listed(_gained(retention, exact, "hinted")),
        whole=expected[0],
        whole_hinted=hinted[0],
    )


def _gained(outcomes: list[dict[str, Any]], of: list[dict[str, Any]], name: str) -> list[str]:
    """Return what percentage of the oracle's gain over LRU a policy has, at each size."""
    computed = {
        (one["retention"], one["tokens_per_rank"]): one["computed_tokens"] for one in outcomes
    }
    shares: list[str] = []
    for one in of:
        if one["retention"] == name:
            size = one["tokens_per_rank"]
            lru, oracle = computed["lru", size], computed["belady", size]
            shares.append(f"{100 * (lru - one['computed_tokens']) / (lru - oracle):.0f}")
    return shares


def _listed(shares: list[str]) -> str:
    *first, last = shares
    return f"{', '.join(first)} and {last} %"
