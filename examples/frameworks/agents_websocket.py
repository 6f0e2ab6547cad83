"""The OpenAI Agents SDK over a websocket: it asks no openai client, so the headers are given.

They go with the handshake, and the model opens another connection where they differ: one model
for each agent keeps its own.
"""

from __future__ import annotations

import asyncio
import os

from agents import Agent, ModelSettings, OpenAIResponsesWSModel, RunConfig, Runner
from openai import AsyncOpenAI

import tenuto

base_url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
client = AsyncOpenAI(base_url=base_url)
models = {
    name: OpenAIResponsesWSModel(os.environ.get("OPENAI_MODEL", "tiny"), client)
    for name in ("planner", "verifier")
}
run = tenuto.run("ticket-4711")


async def ask(name: str, words: str) -> str:
    async with run.agent(name):
        settings = ModelSettings(extra_headers=tenuto.headers(base_url))
        config = RunConfig(model_settings=settings)
        agent = Agent(name=name, instructions=name, model=models[name])
        return str((await Runner.run(agent, words, run_config=config)).final_output)


async def main() -> None:
    async with run:
        plan = await ask("planner", "Why do the tests fail?")
        print(await ask("verifier", plan))
    for model in models.values():
        await model.close()


if __name__ == "__main__":
    asyncio.run(main())
