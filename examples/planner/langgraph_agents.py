"""The program in LangGraph: two lines of it are tenuto's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.types import Command, Send

import tenuto
from examples.planner import task
from tenuto.adapters.langgraph import wrap_model


class State(MessagesState):
    """The planner's conversation, and the verifier's."""

    reviews: Annotated[list[AnyMessage], add_messages]


@tool("worker")
def worker_tool(input: str) -> str:
    """Have one step done by a worker."""
    raise NotImplementedError("its calls are sent to the worker's node")


@tool
def look_up(name: str) -> str:
    """Read a page of the catalogue."""
    return task.page(name)


def graph(llm: ChatOpenAI) -> Any:
    """Return the compiled graph; its state's last message is the answer."""
    planning = llm.bind_tools([worker_tool])
    working = llm.bind_tools([look_up])

    async def planner(state: State) -> Command[Literal["worker", "verifier"]]:
        answer = await planning.ainvoke([SystemMessage(task.PLANNER), *state["messages"]])
        steps = [Send("worker", call) for call in answer.tool_calls]
        return Command(update={"messages": [answer]}, goto=steps or "verifier")

    async def worker(call: ToolCall) -> dict[str, Any]:
        messages: list[AnyMessage] = [
            SystemMessage(task.WORKER),
            HumanMessage(call["args"]["input"]),
        ]
        for _ in range(task.MOST_TURNS):
            messages.append(answer := await working.ainvoke(messages))
            if not answer.tool_calls:
                break
            messages += [await look_up.ainvoke(called) for called in answer.tool_calls]
        return {"messages": [ToolMessage(messages[-1].text, tool_call_id=call["id"])]}

    async def verifier(state: State) -> Command[Literal["planner", "__end__"]]:
        asked = HumanMessage(task.to_review(state["messages"][-1].text))
        verdict = await llm.ainvoke([SystemMessage(task.VERIFIER), *state["reviews"], asked])
        reviews = {"reviews": [asked, verdict]}
        is_last = len(state["reviews"]) // 2 + 1 == task.MOST_ROUNDS
        if task.is_accepted(verdict.text) or is_last:
            return Command(update=reviews, goto=END)
        return Command(update={**reviews, "messages": [HumanMessage(verdict.text)]}, goto="planner")

    built = StateGraph(State)
    for node in (planner, worker, verifier):
        built.add_node(node)
    built.add_edge(START, "planner")
    built.add_edge("worker", "planner")
    return built.compile()


async def solve(base_url: str, model: str, api_key: str) -> str:
    """Return the answer to the task."""
    llm = wrap_model(ChatOpenAI(base_url=base_url, model=model, api_key=api_key))
    asked = {"messages": [HumanMessage(task.TASK)], "reviews": []}
    with tenuto.run():
        done = await graph(llm).ainvoke(asked, {"recursion_limit": task.MOST_STEPS})
    return done["messages"][-1].text
