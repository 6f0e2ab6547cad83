"""instructor, which needs openai 2: its retries after a bad answer are turns, not attempts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pydantic
import pytest

import tenuto
from tests.frameworks.scripted import Asked, Call, Model, Script

instructor = pytest.importorskip("instructor")


class Word(pydantic.BaseModel):
    word: str


def ask(client: Any) -> Any:
    words = [{"role": "user", "content": "hi"}]
    return client.create(model="m", messages=words, response_model=Word, max_retries=2)


@pytest.mark.stamps(
    "instructor", "{asynchronous} create, retries of both", "session, turn, attempt"
)
@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_patched_client_is_marked_in_either_order(
    asynchronous: bool, ours_first: bool, model: Model
) -> None:
    model.script = lambda asked: (
        [Call("Word", {"word": "hi"} if len(model.arrived) > 3 else {"wrong": 1})]
    )
    model.failures = [500, 500]
    kind = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    client = kind(base_url=model.base_url, api_key="k")
    if ours_first:
        tenuto.wrap(client)
    patched = instructor.from_openai(client)
    if not ours_first:
        tenuto.wrap(client)
    with tenuto.run() as run:
        answer = asyncio.run(ask(patched)) if asynchronous else ask(patched)
    assert answer.word == "hi"
    assert [asked.headers["x-session-id"] for asked in model.arrived] == [run.session_id] * 4
    tried = [(asked.turn["n"], asked.turn["attempt"]) for asked in model.arrived]
    assert tried == [("0", "0"), ("0", "1"), ("0", "2"), ("1", "0")]
    if not asynchronous:
        client.close()


WORDS: Any = {"model": "m", "messages": [{"role": "user", "content": "json hi"}]}
STYLES: dict[str, Any] = {
    "create": lambda client: client.create(**WORDS, response_model=Word),
    "create_with_completion": lambda client: client.create_with_completion(
        **WORDS, response_model=Word
    )[0],
    "create_partial": lambda client: list(client.create_partial(**WORDS, response_model=Word))[-1],
    "create_iterable": lambda client: next(
        iter(client.create_iterable(**WORDS, response_model=Word))
    ),
}


async def last_of(items: Any) -> Any:
    return [item async for item in items][-1]


ASYNC_STYLES: dict[str, Any] = {
    "create": lambda client: client.create(**WORDS, response_model=Word),
    "create_partial": lambda client: last_of(client.create_partial(**WORDS, response_model=Word)),
}


def answers(style: str = "create") -> Script:
    """Answer with a word, or a list of words where the call is for several."""
    said: Any = {"tasks": [{"word": "hi"}]} if style == "create_iterable" else {"word": "hi"}

    def script(asked: Asked) -> Any:
        tools = asked.body.get("tools")
        return [Call(tools[0]["function"]["name"], said)] if tools else json.dumps(said)

    return script


@pytest.mark.stamps("instructor", "{style}, {mode}", "run, session, turn")
@pytest.mark.parametrize("mode", ["TOOLS", "JSON", "JSON_SCHEMA"])
@pytest.mark.parametrize("style", STYLES)
def test_every_style_of_a_patched_client_is_marked(style: str, mode: str, model: Model) -> None:
    model.script = answers(style)
    with tenuto.wrap(openai.OpenAI(base_url=model.base_url, api_key="k")) as client:
        patched = instructor.from_openai(client, mode=instructor.Mode[mode])
        with tenuto.run() as run, run.agent("planner") as agent:
            answer = STYLES[style](patched)
    assert answer.word == "hi"
    (asked,) = model.arrived
    assert asked.headers["x-session-id"] == agent.session_id
    assert asked.headers["x-agent-run-id"] == run.run_id
    assert asked.turn["n"] == "0"


@pytest.mark.stamps("instructor", "async {style}", "run, session, turn")
@pytest.mark.parametrize("style", ASYNC_STYLES)
def test_every_style_of_an_async_patched_client_is_marked(style: str, model: Model) -> None:
    model.script = answers()

    async def asking() -> Any:
        async with tenuto.wrap(openai.AsyncOpenAI(base_url=model.base_url, api_key="k")) as client:
            return await ASYNC_STYLES[style](instructor.from_openai(client))

    with tenuto.run() as run, run.agent("planner") as agent:
        assert asyncio.run(asking()).word == "hi"
    (asked,) = model.arrived
    assert asked.headers["x-session-id"] == agent.session_id
    assert asked.headers["x-agent-run-id"] == run.run_id
    assert asked.turn["n"] == "0"


@pytest.mark.stamps("instructor", "create in threads, tenuto.ContextExecutor", "run, session")
def test_calls_in_a_programs_own_threads_are_in_the_run_with_our_pool(model: Model) -> None:
    model.script = answers()
    with tenuto.wrap(openai.OpenAI(base_url=model.base_url, api_key="k")) as client:
        patched = instructor.from_openai(client)
        with tenuto.run() as run, tenuto.ContextExecutor(4) as pool:
            list(pool.map(lambda _: ask(patched), range(4)))
    assert [asked.headers["x-session-id"] for asked in model.arrived] == [run.session_id] * 4
    assert {asked.headers["x-agent-run-id"] for asked in model.arrived} == {run.run_id}
