"""litellm: the openai client that it is given is the one that it uses."""

from __future__ import annotations

import asyncio
from typing import Any

import litellm
import openai
import pytest

import tenuto
from tests.frameworks.scripted import Model

ASKING: Any = {"model": "openai/m", "messages": [{"role": "user", "content": "hi"}]}


async def acomplete(client: Any, stream: bool, **more: Any) -> None:
    answer: Any = await litellm.acompletion(**{**ASKING, **more}, client=client, stream=stream)
    if stream:
        async for _ in answer:
            pass


def complete(model: Model, asynchronous: bool, stream: bool, **more: Any) -> None:
    more["api_base"] = model.base_url
    if asynchronous:
        client = tenuto.wrap(openai.AsyncOpenAI(base_url=model.base_url, api_key="k"))
        asyncio.run(acomplete(client, stream, **more))
        return
    with tenuto.wrap(openai.OpenAI(base_url=model.base_url, api_key="k")) as sync_client:
        answer: Any = litellm.completion(**ASKING, client=sync_client, stream=stream, **more)
        list(answer)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_every_attempt_of_a_completion_carries_the_keys_of_its_session(
    asynchronous: bool, stream: bool, model: Model
) -> None:
    """https://github.com/BerriAI/litellm/pull/224

    The async call ran its sync one in an executor, which lost the context.
    """
    model.failures = [500, 500]
    with tenuto.run() as run, run.agent("planner") as agent:
        complete(model, asynchronous, stream, num_retries=3)
    complete(model, asynchronous, stream)
    *marked, unmarked = model.arrived
    assert [asked.headers["x-session-id"] for asked in marked] == [agent.session_id] * 3
    assert [(asked.turn["n"], asked.turn["attempt"]) for asked in marked] == [
        ("0", "0"),
        ("0", "1"),
        ("0", "2"),
    ]
    assert unmarked.markers == {}


@pytest.mark.anyio
async def test_concurrent_completions_are_not_mixed(model: Model) -> None:
    async def work(number: int) -> str:
        words: Any = [{"role": "user", "content": f"work {number}"}]
        async with tenuto.run() as run:
            await acomplete(client, False, messages=words, api_base=model.base_url)
            return run.run_id

    async with tenuto.wrap(openai.AsyncOpenAI(base_url=model.base_url, api_key="k")) as client:
        runs = await asyncio.gather(*(work(number) for number in range(8)))
    for asked in model.arrived:
        number = asked.items[0]["content"].split()[-1]
        assert asked.headers["x-agent-run-id"] == runs[int(number)]
