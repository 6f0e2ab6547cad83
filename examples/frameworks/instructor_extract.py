"""instructor: wrap the client before or after it is patched, and open scopes around its calls."""

from __future__ import annotations

import os

import instructor
import pydantic
from openai import OpenAI

import tenuto

client = instructor.from_openai(tenuto.wrap(OpenAI()))
run = tenuto.run("ticket-4711")


class Answer(pydantic.BaseModel):
    """What the model is to say."""

    answer: str


def ask(agent: str, words: str, instance: int = 0) -> str:
    with run.agent(agent, instance=instance):
        return client.create(
            model=os.environ.get("OPENAI_MODEL", "tiny"),
            messages=[{"role": "system", "content": agent}, {"role": "user", "content": words}],
            response_model=Answer,
        ).answer


def main() -> None:
    with run:
        plan = ask("planner", "Why do the tests fail?")
        found = [ask("search", plan, instance) for instance in range(2)]
        print(ask("verifier", "\n".join(found)))


if __name__ == "__main__":
    main()
