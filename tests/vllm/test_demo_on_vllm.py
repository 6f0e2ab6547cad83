"""The demo's other engine: a real vLLM with two ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

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
    text = (tmp_path / "demo.json").read_text("utf-8")
    assert "with tenuto" in done.stdout
    assert json.loads(text)
    without, ours = (line for line in done.stdout.splitlines() if line.startswith("both "))
    assert "14 of 14" not in without
    assert "14 of 14" in ours
