"""litellm: give it a wrapped client, and the headers where it has an HTTP client of its own."""

from __future__ import annotations

import os

import litellm
from openai import OpenAI

import tenuto

base_url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
model = f"openai/{os.environ.get('OPENAI_MODEL', 'tiny')}"
client = tenuto.wrap(OpenAI(base_url=base_url))
run = tenuto.run("ticket-4711")


def ask(agent: str, words: str, instance: int = 0) -> str:
    with run.agent(agent, instance=instance):
        answer = litellm.completion(
            model=model,
            messages=[{"role": "system", "content": agent}, {"role": "user", "content": words}],
            client=client,
            api_base=base_url,
        )
    return str(answer.choices[0].message.content)


def respond(agent: str, words: str) -> str:
    # `litellm.responses` takes no client. There is no turn in these headers.
    with run.agent(agent):
        answer = litellm.responses(
            model=model,
            instructions=agent,
            input=words,
            api_base=base_url,
            extra_headers=tenuto.headers(base_url),
        )
    return str(answer.output)


def main() -> None:
    with run:
        plan = ask("planner", "Why do the tests fail?")
        found = [ask("search", plan, instance) for instance in range(2)]
        print(respond("verifier", "\n".join(found)))


if __name__ == "__main__":
    main()
