"""Record an agent's model calls as a trace file, and read it back."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import openai

import tenuto
from tenuto import trace
from tenuto_vllm.embedded import serve


def main() -> int:
    """Make three calls in a run and show what the file says of them."""
    with tempfile.TemporaryDirectory() as folder, serve() as url:
        path = Path(folder) / "run.jsonl"
        client = tenuto.wrap(openai.OpenAI(base_url=f"{url}/v1", api_key="none"))
        with tenuto.record(path), tenuto.run("ticket-4711") as run, run.agent("planner"):
            prompt = "Plan the work. " * 40
            for _ in range(3):
                client.completions.create(model="tiny", prompt=prompt, max_tokens=8)
                prompt += "And then? " * 40
        for event in trace.read_events(path):
            if isinstance(event, trace.CallEvent) and event.end_s is not None:
                print(
                    f"{event.agent_name} turn {event.turn}: {event.input_tokens} tokens in,"
                    f" {event.output_tokens} out, {event.finish_reason}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
