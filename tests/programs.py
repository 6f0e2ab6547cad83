"""Small programs in processes of their own, which call a server on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["CALL", "ROOT", "environ", "python"]

ROOT = Path(__file__).parents[1]

CALL = """
import multiprocessing, os, sys, tenuto
from openai import OpenAI

def call(text="hi"):
    with tenuto.wrap(OpenAI(api_key="k")) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
"""


def environ(url: str, **more: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name != "TENUTO_CONTEXT"}
    return {**ours, "OPENAI_BASE_URL": f"{url}/v1", "NO_PROXY": "*", **more}


def python(code: str, env: dict[str, str]) -> str:
    """Run a program in a new process, every warning an error, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CALL + code],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
