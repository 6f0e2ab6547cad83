"""What retention is for: while an agent's tool runs, others fill the cache.

python examples/waiting_for_tools.py               # the embedded engine: LRU, and with leases
python examples/waiting_for_tools.py --base-url http://127.0.0.1:8000/v1 --model NAME
"""

from __future__ import annotations

import argparse
from typing import Any

from openai import OpenAI

import tenuto

TURNS, OTHERS = 3, 12


def cached(client: OpenAI, model: str, messages: list[Any]) -> tuple[int, int]:
    """Ask, append the answer, and return (cached prompt tokens, prompt tokens)."""
    answer = client.chat.completions.create(model=model, messages=messages, max_tokens=16)
    messages.append({"role": "assistant", "content": answer.choices[0].message.content})
    if answer.usage is None:
        return 0, 0
    details = answer.usage.prompt_tokens_details
    return details.cached_tokens or 0 if details else 0, answer.usage.prompt_tokens


def main(base_url: str, model: str, name: str) -> None:
    """Run one agent whose tools take long on a busy server."""
    with OpenAI(base_url=base_url, api_key="none") as plain:
        people = OpenAI(base_url=base_url, api_key="none")
        client = tenuto.wrap(plain)
        messages: list[Any] = [{"role": "system", "content": "You repair tests. " * 60}]
        with tenuto.run("ticket-4711") as run, run.agent("coder"):
            for turn in range(TURNS):
                messages.append({"role": "user", "content": f"Step {turn}: " + "run it. " * 20})
                # Said where it is known; else from the tools' own times so far.
                with tenuto.turn(expect=tenuto.tool("pytest", seconds=40)):
                    found, prompt = cached(client, model, messages)
                print(f"{name:8} turn {turn}: {found:5} of {prompt} prompt tokens cached")
                # While the tool runs, people ask.
                for number in range(OTHERS):
                    question = f"{name} {turn} {number}: " + "and what of this? " * 30
                    cached(people, model, [{"role": "user", "content": question}])
        people.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base-url", help="an OpenAI-shaped server, ending in /v1")
    parser.add_argument("--model", default="tiny", help="the model's name there (default tiny)")
    options = parser.parse_args()
    if options.base_url:
        main(options.base_url, options.model, "server")
    else:
        import tenuto_vllm
        from tenuto_vllm.embedded import EngineSettings, serve

        for retention in ("lru", "hinted"):
            settings = EngineSettings(ranks=1, blocks=400, retention=retention)
            with serve(settings, [tenuto_vllm.TurnMiddleware]) as url:
                main(f"{url}/v1", options.model, retention)
