"""litellm: the openai client that it is given is the one that it uses."""

from __future__ import annotations

import asyncio
from typing import Any

import litellm
import openai
import pydantic
import pytest

import tenuto
from tests.frameworks.scripted import Call, Model

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


@pytest.mark.stamps(
    "litellm", "{asynchronous} completion {stream}, num_retries", "session, turn, attempt"
)
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


@pytest.mark.stamps("litellm", "acompletion, many at once", "run")
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


class Word(pydantic.BaseModel):
    word: str


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
MORE: dict[str, Any] = {
    "tools": {"tools": [TOOL]},
    "structured output": {"response_format": Word},
}


@pytest.mark.stamps("litellm", "completion, {what}", "run, session, turn")
@pytest.mark.parametrize("what", ["tools", "structured output"])
def test_tools_and_structured_output_are_marked(what: str, model: Model) -> None:
    model.script = lambda asked: [Call("look")] if what == "tools" else '{"word": "hi"}'
    with tenuto.run() as run, run.agent("planner") as agent:
        complete(model, False, False, **MORE[what])
    (asked,) = model.arrived
    assert asked.headers["x-session-id"] == agent.session_id
    assert asked.headers["x-agent-run-id"] == run.run_id
    assert asked.turn["n"] == "0"


FLOATS: dict[str, Any] = {"encoding_format": "float"}


@pytest.mark.stamps("litellm", "embedding", "run, session")
def test_embeddings_are_marked(model: Model) -> None:
    with tenuto.wrap(openai.OpenAI(base_url=model.base_url, api_key="k")) as client:
        with tenuto.run() as run:
            litellm.embedding(model="openai/m", input="hi", client=client, **FLOATS)
    (asked,) = model.arrived
    assert asked.headers["x-session-id"] == run.session_id
    assert asked.headers["x-agent-run-id"] == run.run_id


RESPONSES: dict[str, Any] = {
    "responses": lambda given: litellm.responses(**given),
    "responses stream": lambda given: list(litellm.responses(**given, stream=True)),
    "aresponses": lambda given: asyncio.run(litellm.aresponses(**given)),
    "aresponses stream": lambda given: asyncio.run(streamed(given)),
}


async def streamed(given: Any) -> Any:
    answer: Any = await litellm.aresponses(**given, stream=True)
    return [event async for event in answer]


@pytest.mark.stamps("litellm", "{how}, tenuto.headers()", "run, session, parent")
@pytest.mark.parametrize("how", RESPONSES)
def test_what_bypasses_openai_carries_the_headers_that_it_is_given(how: str, model: Model) -> None:
    with tenuto.run() as run, run.agent("planner") as agent:
        given = {"model": "openai/m", "input": "hi", "api_base": model.base_url, "api_key": "k"}
        RESPONSES[how]({**given, "extra_headers": tenuto.headers(model.base_url)})
        RESPONSES[how](given)
    with_headers, without = model.arrived
    assert with_headers.headers["x-session-id"] == agent.session_id
    assert with_headers.headers["x-agent-run-id"] == run.run_id
    assert with_headers.headers["x-parent-session-id"] == run.session_id
    assert without.markers == {}


@pytest.mark.stamps("litellm", "batch_completion, tenuto.headers()", "run, session")
def test_a_batch_in_litellms_own_threads_carries_the_headers_that_it_is_given(
    model: Model,
) -> None:
    words: Any = [[{"role": "user", "content": f"part {number}"}] for number in range(3)]
    with tenuto.run() as run, run.agent("planner") as agent:
        litellm.batch_completion(
            model="openai/m",
            messages=words,
            api_base=model.base_url,
            api_key="k",
            extra_headers=tenuto.headers(model.base_url),
        )
    assert [asked.headers["x-session-id"] for asked in model.arrived] == [agent.session_id] * 3
    assert {asked.headers["x-agent-run-id"] for asked in model.arrived} == {run.run_id}


@pytest.mark.stamps("litellm", "Router, tenuto.headers()", "run, session")
@pytest.mark.anyio
async def test_a_router_makes_clients_of_its_own_and_passes_headers_on(model: Model) -> None:
    served = {"model": "openai/m", "api_base": model.base_url, "api_key": "k"}
    router = litellm.Router(model_list=[{"model_name": "any", "litellm_params": served}])
    async with tenuto.run() as run, run.agent("planner") as agent:
        words: Any = [{"role": "user", "content": "hi"}]
        headers = tenuto.headers(model.base_url)
        await router.acompletion(model="any", messages=words, extra_headers=headers)
    (asked,) = model.arrived
    assert asked.headers["x-session-id"] == agent.session_id
    assert asked.headers["x-agent-run-id"] == run.run_id
