"""smolagents: tool calls side by side in a pool are in the run that made them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from smolagents import OpenAIModel, Tool, ToolCallingAgent

import tenuto
from tests.frameworks.scripted import Asked, Call, Model


def model_of(model: Model) -> OpenAIModel:
    chat = OpenAIModel("m", api_base=model.base_url, api_key="k")
    tenuto.wrap(chat.client)
    return chat


class Find(Tool):
    """A tool that asks the model."""

    name = "find"
    description = "Find."
    inputs = {"words": {"type": "string", "description": "Words."}}  # noqa: RUF012
    output_type = "string"

    def __init__(self, chat: OpenAIModel, run: tenuto.Run) -> None:
        super().__init__()
        self.chat, self.run = chat, run

    def forward(self, words: str) -> str:
        with self.run.agent("search", instance=words):
            asking: Any = [{"role": "user", "content": words}]
            return str(self.chat.client.chat.completions.create(model="m", messages=asking))


def two_finds_then_an_answer(asked: Asked) -> Any:
    if not asked.body.get("tools"):
        return "found"
    if len(asked.items) > 2:
        return [Call("final_answer", {"answer": "done"})]
    return [Call("find", {"words": "left"}), Call("find", {"words": "right"})]


@pytest.mark.stamps("smolagents", "ToolCallingAgent {stream}, its tools", "session, parent")
@pytest.mark.parametrize("stream", [False, True])
def test_parallel_tools_that_call_the_model_are_sessions_of_their_own(
    stream: bool, model: Model
) -> None:
    """https://github.com/huggingface/smolagents/pull/1840

    The pool of parallel tool calls started from an empty context; also
    https://github.com/huggingface/smolagents/pull/2187.
    """
    model.script = two_finds_then_an_answer
    chat = model_of(model)
    with tenuto.run() as run, run.agent("planner") as planner:
        tools = [Find(chat, run)]
        ToolCallingAgent(tools=tools, model=chat, stream_outputs=stream, verbosity_level=0).run(
            "begin"
        )
        ids = {run.agent("search", instance=words).session_id for words in ("left", "right")}
    first, *searches, last = model.arrived
    assert [one.headers["x-session-id"] for one in (first, last)] == [planner.session_id] * 2
    assert {one.headers["x-session-id"] for one in searches} == ids
    assert {one.headers["x-parent-session-id"] for one in searches} == {planner.session_id}


@pytest.mark.stamps("smolagents", "ToolCallingAgent in threads", "run")
def test_agents_in_threads_of_one_model_are_not_mixed(model: Model) -> None:
    model.script = lambda asked: [Call("final_answer", {"answer": "done"})]
    chat = model_of(model)
    runs: dict[int, str] = {}

    def work(number: int) -> None:
        with tenuto.run() as run:
            runs[number] = run.run_id
            ToolCallingAgent(tools=[], model=chat, verbosity_level=0).run(f"work {number}.")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(model.arrived) == 8
    for asked in model.arrived:
        (number,) = [n for n in runs if f"work {n}." in asked.text]
        assert asked.headers["x-agent-run-id"] == runs[number]
