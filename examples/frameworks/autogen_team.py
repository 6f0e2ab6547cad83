"""AutoGen: an adapter marks the model client, and makes each agent of a team a session."""

from __future__ import annotations

import asyncio
import os

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ModelFamily
from autogen_ext.models.openai import OpenAIChatCompletionClient

import tenuto
from tenuto.adapters.autogen import wrap_agent, wrap_model

client = wrap_model(
    OpenAIChatCompletionClient(
        model=os.environ.get("OPENAI_MODEL", "tiny"),
        base_url=os.environ.get("OPENAI_BASE_URL"),
        model_info={
            "vision": False,
            "function_calling": True,
            "json_output": True,
            "structured_output": True,
            "family": ModelFamily.UNKNOWN,
        },
    )
)
agents = [
    wrap_agent(AssistantAgent(name, client, system_message=name))
    for name in ("planner", "search", "verifier")
]


async def main() -> None:
    team = RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(4))
    async with tenuto.run("ticket-4711"):
        result = await team.run(task="Why do the tests fail?")
    print(result.messages[-1].content)


if __name__ == "__main__":
    asyncio.run(main())
