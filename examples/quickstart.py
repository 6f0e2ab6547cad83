"""The one line: planner, tool caller and verifier keep their caches between turns.

python examples/quickstart.py                      # starts the embedded engine
python examples/quickstart.py --base-url http://127.0.0.1:8000/v1 --model NAME
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from openai import AsyncOpenAI

import tenuto


async def agent(client: AsyncOpenAI, run: tenuto.Run, name: str, model: str) -> None:
    """Run three turns of one agent, its history growing with each."""
    messages: list[Any] = [{"role": "system", "content": f"You are the {name}. " * 20}]
    for turn in range(3):
        messages.append({"role": "user", "content": f"Step {turn}: " + "look closer. " * 10})
        with run.agent(name):
            answer = await client.chat.completions.with_raw_response.create(
                model=model, messages=messages, max_tokens=16
            )
        completion = answer.parse()
        usage = completion.usage
        details = usage.prompt_tokens_details if usage else None
        print(
            f"{name:12} turn {turn}  {answer.headers.get('X-Agent-Served', 'plain server'):32}"
            f"  {details.cached_tokens or 0 if details else 0:5} of "
            f"{usage.prompt_tokens if usage else 0} prompt tokens cached"
        )
        messages.append({"role": "assistant", "content": completion.choices[0].message.content})


async def main(base_url: str, model: str) -> None:
    """Run the three agents of one task at once."""
    async with AsyncOpenAI(base_url=base_url, api_key="none") as plain:
        client = tenuto.wrap(plain)
        with tenuto.run("ticket-4711") as run:
            names = ("planner", "tool-caller", "verifier")
            await asyncio.gather(*(agent(client, run, name, model) for name in names))


@contextlib.contextmanager
def embedded() -> Iterator[str]:
    """Serve the embedded engine with two ranks and the extension in front."""
    import tenuto_vllm
    from tenuto_vllm.embedded import serve

    with serve(middleware=[tenuto_vllm.TurnMiddleware]) as url:
        yield f"{url}/v1"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base-url", help="an OpenAI-shaped server, ending in /v1")
    parser.add_argument("--model", default="tiny", help="the model's name there (default tiny)")
    options = parser.parse_args()
    with contextlib.nullcontext(options.base_url) if options.base_url else embedded() as url:
        asyncio.run(main(url, options.model))
