"""CrewAI: an adapter marks the model, and makes each agent of a crew a session."""

from __future__ import annotations

import os

from crewai import LLM, Agent, Crew, Task

import tenuto
from tenuto.adapters.crewai import wrap_model

llm = wrap_model(
    LLM(
        model=f"openai/{os.environ.get('OPENAI_MODEL', 'gpt-4o-mini')}",
        base_url=os.environ.get("OPENAI_BASE_URL"),
    )
)


def main() -> None:
    agents = [
        Agent(role=role, goal="find why the tests fail", backstory=role, llm=llm)
        for role in ("planner", "search", "verifier")
    ]
    tasks = [
        Task(description=str(agent.role), expected_output="a sentence", agent=agent)
        for agent in agents
    ]
    with tenuto.run("ticket-4711"):
        print(Crew(agents=agents, tasks=tasks).kickoff().raw)


if __name__ == "__main__":
    main()
