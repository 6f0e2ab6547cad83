"""LangChain without a graph: wrap the model's two openai clients, and open scopes in the steps.

`tenuto.adapters.langgraph.wrap_model(llm)` finds the clients of any model of langchain-openai.
"""

from __future__ import annotations

import os
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI

import tenuto

llm = ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "tiny"))
tenuto.wrap(llm.root_client)
tenuto.wrap(llm.root_async_client)
run = tenuto.run("ticket-4711")


def ask(agent: str, words: str) -> str:
    return str(llm.invoke([SystemMessage(agent), HumanMessage(words)]).content)


def plan(question: str) -> list[str]:
    with run.agent("planner"):
        return [ask("planner", question), "logs"]


def search(words: str) -> str:
    # `map` runs them at once: each is an instance, and so a session.
    with run.agent("search", instance=words):
        return ask("search", words)


def verify(found: list[str]) -> str:
    with run.agent("verifier"):
        return ask("verifier", "\n".join(found))


def main() -> None:
    chain: Any = RunnableLambda(plan) | RunnableLambda(search).map() | RunnableLambda(verify)
    with run:
        print(chain.invoke("Why do the tests fail?"))


if __name__ == "__main__":
    main()
