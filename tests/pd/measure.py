"""Count what three ways to place take on two real servers, and print JSON.

python -m tests.pd.measure > docs/measurements/prefill_decode_servers.json
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

from benchmarks.machine import machine
from tests.pd.pair import Pair, counters, pair
from tests.pd.script import COSTS, STEPS, Ran, run

POLICIES = {"decided": "", "always remote": "remote", "always local": "local"}


def counted(servers: Pair, ran: Ran) -> dict[str, Any]:
    """Return what one run of the script took."""
    remote = [row for row in ran.rows if row.told.prefiller == servers.prefill.root_url]
    said = [row for row in ran.rows if row.step.does != "compact unsaid"]
    return {
        "turns": len(ran.rows),
        "remote_turns": len(remote),
        "prefill_computed_tokens": int(ran.prefill["computed"]),
        "decode_computed_tokens": int(ran.decode["computed"]),
        "decode_cached_tokens": int(ran.decode["cache_hits"]),
        "transferred_tokens": int(ran.decode["transferred"]),
        "transferred_bytes": int(ran.decode["bytes"]),
        "given_up": dict(Counter(row.told.fallback for row in ran.rows if row.told.fallback)),
        "foretold_exactly": sum(row.told.predicted == row.told.cached for row in said),
        "foretellable": len(said),
    }


def main() -> None:
    """Measure, and print."""
    with pair() as servers:
        counters(servers.decode.root_url)
        seed = int(time.time()) % 9000
        print(
            json.dumps(
                {
                    "machine": machine(),
                    "model": "2 layers, 32 bits, 1024 bytes of cache per token, blocks of 32",
                    "script_turns": len(STEPS),
                    "costs": COSTS._asdict(),
                    "policies": {
                        name: counted(servers, run(servers, seed + n, always=always))
                        for n, (name, always) in enumerate(POLICIES.items())
                    },
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
