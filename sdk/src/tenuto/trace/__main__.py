"""`python -m tenuto.trace`: pick traces out of a Weka file, scale them, write them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tenuto.trace import read_weka, scale, write_weka


def main(argv: list[str] | None = None) -> int:
    """Run the converter; return the exit status (0, or 1 with a message on stderr)."""
    parser = argparse.ArgumentParser(prog="python -m tenuto.trace", description=__doc__)
    parser.add_argument("source", type=Path, help="Weka .json, .jsonl or .jsonl.gz")
    parser.add_argument("target", type=Path, help="file to write: .jsonl or .jsonl.gz")
    parser.add_argument("--id", action="append", help="trace to keep (repeatable; default: all)")
    parser.add_argument(
        "--factor", type=int, default=1, help="divide block size and lengths by this (default 1)"
    )
    options = parser.parse_args(argv)
    wanted: list[str] | None = options.id
    try:
        traces = [
            scale(trace, options.factor)
            for trace in read_weka(options.source)
            if wanted is None or trace.id in wanted
        ]
        missing = sorted(set(wanted or ()) - {trace.id for trace in traces})
        if missing:
            message = f"{options.source.name} holds no trace {', '.join(missing)}"
            raise ValueError(message)
        write_weka(options.target, traces)
    except (OSError, ValueError) as error:
        print(f"tenuto.trace: {error}", file=sys.stderr)
        return 1
    for trace in traces:
        print(
            f"{trace.id}: {len(trace.sessions)} sessions, {trace.requests} requests, "
            f"blocks of {trace.block_size} tokens",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
