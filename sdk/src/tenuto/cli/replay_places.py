"""What the sides of a replay are called, and where their result files go."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tenuto.results import refuse_existing

_DEFAULT = Path("runs")


def side_names(given: argparse.Namespace) -> list[str]:
    """Return a name for each target.

    Raises:
        ValueError: other than one name for each was given.
    """
    targets = given.target
    if given.name and len(given.name) != len(targets):
        raise ValueError(f"{len(given.name)} names for {len(targets)} targets")
    names: list[str] = given.name or list(targets)
    if len(set(names)) < len(names):
        names = [f"{name} {place}" for place, name in enumerate(names)]
    return names


def side_paths(given: argparse.Namespace, names: Sequence[str]) -> list[Path]:
    """Return a result file for each name: without `--out` one in `runs/` that is not there.

    Raises:
        ValueError: something is there that may not be replaced, or two names give one file.
    """
    if given.resume and given.overwrite:
        raise ValueError("--resume goes on with a file that --overwrite replaces; give one")
    if given.out is None:
        if given.resume or given.overwrite:
            raise ValueError("--resume and --overwrite need --out, which says what is meant")
        paths = _unused(names)
        print(f"tenuto replay: results go to {', '.join(map(str, paths))}", file=sys.stderr)
        return paths
    paths = [given.out] if _is_file(given.out, names) else _in_folder(given.out, names)
    refuse_existing(
        paths,
        ways_out="--resume takes it up, --overwrite writes it anew",
        may_go=given.resume or given.overwrite,
    )
    return paths


def _is_file(out: Path, names: Sequence[str]) -> bool:
    return len(names) == 1 and out.suffix in {".jsonl", ".gz"}


def _unused(names: Sequence[str]) -> list[Path]:
    for number in itertools.count(1):
        paths = _in_folder(_DEFAULT, names, "" if number == 1 else f"-{number}")
        if not any(path.exists() for path in paths):
            return paths
    raise AssertionError("numbers do not end")


def _in_folder(folder: Path, names: Sequence[str], ending: str = "") -> list[Path]:
    files = [re.sub(r"[^\w.=-]+", "-", name).strip("-") + f"{ending}.jsonl" for name in names]
    if len(set(files)) < len(files):
        raise ValueError(f"the names of the targets give one file: {', '.join(files)}")
    return [folder / file for file in files]
