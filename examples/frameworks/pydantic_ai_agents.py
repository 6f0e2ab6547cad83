"""pydantic-ai: wrap the client of its provider, and open a scope around each agent."""

from __future__ import annotations

import asyncio
import os

from openai import AsyncOpenAI
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import tenuto

client = tenuto.wrap(AsyncOpenAI())
model = OpenAIChatModel(
    os.environ.get("OPENAI_MODEL", "tiny"), provider=OpenAIProvider(openai_client=client)
)
planner = Agent(model, system_prompt="planner")
searcher = Agent(model, system_prompt="search")
verifier = Agent(model, system_prompt="verifier")
run = tenuto.run("ticket-4711")


@planner.tool
async def search(context: RunContext[None], words: str) -> str:
    """Search for words."""
    # Calls of one tool run at once: each is an instance, and so a session.
    async with run.agent("search", instance=context.tool_call_id or 0):
        return (await searcher.run(words)).output


async def main() -> None:
    async with run:
        async with run.agent("planner"):
            plan = await planner.run("Why do the tests fail?")
        async with run.agent("verifier"):
            print((await verifier.run(plan.output)).output)


if __name__ == "__main__":
    asyncio.run(main())
