"""The demo's other engine: a real vLLM with two ranks."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from tenuto.results import read

ROOT = Path(__file__).parents[2]


def test_the_demo_on_vllm_keeps_sessions_at_home_and_caches_more(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--engine", "vllm", "--quick", "--out", tmp_path],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    ElementTree.parse(tmp_path / "demo.svg")
    without, ours = (read(tmp_path / f"{name}-tenuto.jsonl").turns for name in ("without", "with"))
    homes = defaultdict(set)
    for turn in ours:
        homes[turn.repeat, turn.trace, turn.session].add(turn.rank)
    # A long wait at home may move one.
    assert [len(ranks) for ranks in homes.values()].count(1) >= 26
    assert sum(t.cached_tokens for t in ours) > sum(t.cached_tokens for t in without)
