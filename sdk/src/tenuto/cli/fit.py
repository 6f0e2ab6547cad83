"""`tenuto fit`: a latency model for the simulator, from a result file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tenuto.results import read
from tenuto.simulate import fit


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 0, 1 for a file that does not do."""
    parser = argparse.ArgumentParser(
        prog="tenuto fit",
        description="Fit the latency model of `tenuto simulate --latency` to measured turns.",
    )
    parser.add_argument("results", nargs="+", type=Path, help="result files of `tenuto replay`")
    parser.add_argument("--out", type=Path, help="file to write; stdout by default")
    given = parser.parse_args(argv)
    try:
        model = fit(*[read(path).turns for path in given.results])
        if given.out is None:
            print(json.dumps(asdict(model), indent=1))
        else:
            model.to_file(given.out)
    except (OSError, ValueError) as error:
        print(f"tenuto fit: {error}", file=sys.stderr)
        return 1
    return 0
