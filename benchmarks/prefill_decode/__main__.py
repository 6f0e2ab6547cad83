"""Play a corpus of traces against prefill and decode nodes, and say what each rule costs.

    python -m benchmarks.prefill_decode CORPUS

It writes docs/measurements/prefill_decode.json; `python -m benchmarks.prefill_decode.page`
writes the tables of docs/prefill-decode.md. The clock is virtual and the costs are a model's: a
figure says how rules compare, and nothing of a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import timeit
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.prefill_decode.page import FILE
from benchmarks.prefill_decode.play import LIVE, TRUE, Play
from benchmarks.prefill_decode.rules import RULES
from tenuto.trace import read
from tenuto_vllm.placement.split import Copies, Node, Turn, decide

RATIOS = ((2, 6), (4, 4), (6, 2))
GIGABYTES_PER_S = (3.0, 12.5, 50.0)
CAPACITY = 1_000_000
# Of our rule alone: caches that evict next to nothing, and ones that hold a few contexts.
OTHER_CAPACITIES = (4_000_000, 500_000)
AT_ONCE = 2


def micro() -> dict[str, float]:
    """Return microseconds of a decision with eight nodes on both sides, the fastest of many."""
    prefills = [Node(f"http://p{n}:8000", "prefill", 1000 * n) for n in range(8)]
    decodes = [Node(f"http://d{n}:8000", "decode", 500, running=n) for n in range(8)]
    copies = Copies(16)
    for node in prefills[:2]:
        copies.prefilled("warm", node.name, 90_000)
    for node in decodes[:2]:
        copies.decoded("warm", node.name, 90_000, 300)
    warm = Turn("warm", 91_000, keep=90_300)
    cold = Turn("cold", 140_000, slo_ttft_s=8.0, slo_itl_s=0.06)
    both = TRUE._replace(is_bidirectional=True)
    cases = {"cold": (cold, TRUE), "warm": (warm, TRUE), "bidirectional": (warm, both)}
    return {
        name: round(_fastest_us(lambda: decide(turn, copies, prefills, decodes, costs)), 1)  # noqa: B023 - called at once
        for name, (turn, costs) in cases.items()
    }


def _fastest_us(call: Callable[[], object], number: int = 200) -> float:
    return min(timeit.repeat(call, number=number, repeat=100)) / number * 1e6


def _played(given: tuple[Path, int | None, tuple[int, int], float, str, int]) -> dict[str, Any]:
    corpus, limit, (prefills, decodes), speed, name, capacity = given
    traces = list(itertools.islice(read(corpus), limit))
    outcome = Play(traces, RULES[name], prefills, decodes, speed * 1e9, capacity).play()
    pool = {"prefills": prefills, "decodes": decodes, "gb_per_s": speed, "capacity": capacity}
    return {
        "rule": name,
        **pool,
        "traces": len(traces),
        **{key: round(value, 5) for key, value in outcome.items()},
    }


def main(argv: list[str] | None = None) -> int:
    """Play all rules on all pools; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--limit", type=int, help="traces that are played (default: all)")
    given = parser.parse_args(argv)
    pools = list(itertools.product(RATIOS, GIGABYTES_PER_S))
    plays = [(given.corpus, given.limit, *pool, name, CAPACITY) for pool in pools for name in RULES]
    plays += [
        (given.corpus, given.limit, *pool, "ours", capacity)
        for capacity in OTHER_CAPACITIES
        for pool in pools
    ]
    data: dict[str, Any] = {"machine": machine(), "corpus": given.corpus.name, "live": LIVE}
    data |= {"capacity": CAPACITY, "decision_us": micro(), "rows": []}
    with ProcessPoolExecutor(AT_ONCE) as pool:
        for row in pool.map(_played, plays):
            data["rows"].append(row)
            print(f"{len(data['rows'])} of {len(plays)}", file=sys.stderr)
    FILE.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
