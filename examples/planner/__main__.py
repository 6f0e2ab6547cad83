"""One agent program in two frameworks, and what tenuto's recording says of it.

python -m examples.planner --framework langgraph   # pip install langgraph langchain-openai
python -m examples.planner --framework agents      # pip install openai-agents
python -m examples.planner --framework agents --base-url http://127.0.0.1:8000/v1 --model NAME

Without --base-url it starts the embedded engine, with a model that answers by a script. Any other
server gets the key in OPENAI_API_KEY; vLLM calls tools with --enable-auto-tool-choice and
--tool-call-parser.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

import tenuto
from examples.planner import PROGRAMS, program
from examples.planner.shown import table


def main(framework: str, base_url: str, model: str) -> None:
    """Solve the task, and print the answer and a table of the agents' sessions."""
    solve = program(framework)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        with tenuto.record(path):
            answer = asyncio.run(solve(base_url, model, os.environ.get("OPENAI_API_KEY", "none")))
        print(f"{answer}\n\n{table(path)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m examples.planner",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--framework", choices=tuple(PROGRAMS), default="langgraph")
    parser.add_argument("--base-url", help="an OpenAI-shaped server, ending in /v1")
    parser.add_argument("--model", default="tiny", help="the model's name there (default tiny)")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        url = options.base_url
        if url is None:
            # With --base-url the extension need not be installed.
            from examples.planner.scripted import serving

            url = stack.enter_context(serving())
        main(options.framework, url, options.model)
