"""langchain-openai: one HTTP client for many models, batches, fallbacks and retries."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pydantic
import pytest
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

import tenuto
from tests.frameworks.langchain_model import chat_model
from tests.frameworks.scripted import Call, Model


class Word(pydantic.BaseModel):
    word: str


def turns(model: Model) -> list[tuple[str, str]]:
    return sorted((asked.turn["n"], asked.turn["attempt"]) for asked in model.arrived)


async def drained(items: Any) -> list[Any]:
    return [item async for item in items]


CALLS: dict[str, Any] = {
    "invoke": lambda llm: llm.invoke("hi"),
    "stream": lambda llm: list(llm.stream("hi")),
    "ainvoke": lambda llm: asyncio.run(llm.ainvoke("hi")),
    "astream": lambda llm: asyncio.run(drained(llm.astream("hi"))),
    "astream_events": lambda llm: asyncio.run(drained(llm.astream_events("hi", version="v2"))),
    "batch": lambda llm: llm.batch(["hi"]),
    "abatch": lambda llm: asyncio.run(llm.abatch(["hi"])),
    "bind_tools": lambda llm: llm.bind_tools([Word]).invoke("hi"),
    "copy": lambda llm: llm.model_copy(update={"temperature": 0.5}).invoke("hi"),
    "in a chain": lambda llm: (RunnableLambda(lambda _: "hi") | llm).invoke(1),
}


@pytest.mark.stamps("LangChain", "{call}", "run, session, turn, attempt")
@pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])
@pytest.mark.parametrize("call", CALLS)
def test_every_attempt_of_a_call_carries_the_same_keys(
    call: str, responses: bool, model: Model
) -> None:
    model.failures = [500, 500]
    llm = chat_model(model, use_responses_api=responses)
    with tenuto.run() as run, run.agent("planner") as agent:
        CALLS[call](llm)
    assert [one.headers["x-session-id"] for one in model.arrived] == [agent.session_id] * 3
    assert [one.headers["x-agent-run-id"] for one in model.arrived] == [run.run_id] * 3
    assert turns(model) == [("0", "0"), ("0", "1"), ("0", "2")]


@pytest.mark.stamps("LangChain", "another model beside it that is not wrapped", "nothing")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_model_that_nobody_wrapped_stays_unmarked_though_it_shares_the_http_client(
    asynchronous: bool, model: Model
) -> None:
    wrapped = chat_model(model)
    plain = ChatOpenAI(model="m", base_url=model.base_url, api_key="k")
    assert wrapped.root_client._client is plain.root_client._client
    assert wrapped.root_async_client._client is plain.root_async_client._client

    async def ask_both() -> None:
        await wrapped.ainvoke("wrapped")
        await plain.ainvoke("plain")

    with tenuto.run() as run:
        if asynchronous:
            asyncio.run(ask_both())
        else:
            wrapped.invoke("wrapped")
            plain.invoke("plain")
    marked, unmarked = model.arrived
    assert marked.headers["x-agent-run-id"] == run.run_id
    assert unmarked.markers == {}


@pytest.mark.stamps("LangChain", "{how} of six", "session, turn, attempt")
@pytest.mark.parametrize("how", ["batch", "batch_as_completed", "abatch", "abatch_as_completed"])
def test_the_calls_of_a_batch_are_turns_of_the_session_around_it(how: str, model: Model) -> None:
    llm = chat_model(model)
    words = [f"part {number}" for number in range(6)]
    with tenuto.run() as run, run.agent("planner") as agent:
        if how == "batch":
            llm.batch(words)
        elif how == "batch_as_completed":
            list(llm.batch_as_completed(words))
        elif how == "abatch":
            asyncio.run(llm.abatch(words))
        else:
            asyncio.run(drained(llm.abatch_as_completed(words)))
    assert {one.headers["x-session-id"] for one in model.arrived} == {agent.session_id}
    assert turns(model) == [(str(number), "0") for number in range(6)]


@pytest.mark.stamps("LangChain", "{asynchronous} batch of agents", "session")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_batch_of_agents_is_a_session_for_each(asynchronous: bool, model: Model) -> None:
    llm = chat_model(model)

    def work(number: int) -> None:
        with run.agent("worker", instance=number):
            llm.invoke(f"{number}")

    async def awork(number: int) -> None:
        async with run.agent("worker", instance=number):
            await llm.ainvoke(f"{number}")

    worker: Any = RunnableLambda(work, afunc=awork)
    with tenuto.run() as run:
        if asynchronous:
            asyncio.run(worker.abatch(range(6)))
        else:
            worker.batch(range(6))
        ids = [run.agent("worker", instance=number).session_id for number in range(6)]
    assert len(set(ids)) == len(model.arrived) == 6
    for asked in model.arrived:
        assert asked.headers["x-session-id"] == ids[int(asked.items[0]["content"])]


@pytest.mark.stamps("LangChain", "{asynchronous} RunnableParallel", "session")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_branches_that_run_in_parallel_keep_the_scopes_they_open(
    asynchronous: bool, model: Model
) -> None:
    llm = chat_model(model)

    def branch(name: str) -> Any:
        def work(_: Any) -> str:
            with run.agent(name):
                return str(llm.invoke(name).text)

        return RunnableLambda(work)

    both = RunnableParallel(left=branch("left"), right=branch("right"))
    with tenuto.run() as run:
        if asynchronous:
            asyncio.run(both.ainvoke(1))
        else:
            both.invoke(1)
        ids = {name: run.agent(name).session_id for name in ("left", "right")}
    assert {one.items[0]["content"]: one.headers["x-session-id"] for one in model.arrived} == ids


@pytest.mark.stamps("LangChain", "with_fallbacks", "turn, attempt")
def test_a_fallback_to_another_model_is_the_same_turn_tried_again(model: Model) -> None:
    model.failures = [500]
    llm = chat_model(model, max_retries=0)
    other = llm.model_copy(update={"model_name": "other"})
    with tenuto.run():
        llm.with_fallbacks([other]).invoke("hi")
        llm.invoke("go on")
    assert [one.body["model"] for one in model.arrived] == ["m", "other", "m"]
    assert turns(model) == [("0", "0"), ("0", "1"), ("1", "0")]


@pytest.mark.stamps("LangChain", "with_retry around retries", "session, turn, attempt")
def test_a_retry_around_the_clients_own_counts_every_attempt_of_one_turn(model: Model) -> None:
    model.failures = [500] * 3
    llm = chat_model(model, max_retries=1).with_retry(
        retry_if_exception_type=(openai.InternalServerError,),
        exponential_jitter_params={"initial": 0.001, "max": 0.001, "jitter": 0.001},
    )
    with tenuto.run() as run:
        llm.invoke("hi")
    assert {one.headers["x-session-id"] for one in model.arrived} == {run.session_id}
    assert turns(model) == [("0", str(attempt)) for attempt in range(4)]


@pytest.mark.stamps("LangChain", "ainvoke in several event loops", "run, turn, attempt")
def test_a_model_used_in_several_event_loops_keeps_its_marks(model: Model) -> None:
    """https://github.com/langchain-ai/langchain/issues/35783

    Its async client outlives the event loop it was first used in, so nothing that is put on
    it may belong to a loop.
    """
    llm = chat_model(model)
    with tenuto.run() as run:
        for words in ("one", "two", "three"):
            asyncio.run(llm.ainvoke(words))
    assert [one.headers["x-agent-run-id"] for one in model.arrived] == [run.run_id] * 3
    assert turns(model) == [("0", "0"), ("1", "0"), ("2", "0")]


STRUCTURED: dict[str, Any] = {
    "invoke": lambda llm, words: llm.invoke(words),
    "stream": lambda llm, words: list(llm.stream(words))[-1],
    "ainvoke": lambda llm, words: asyncio.run(llm.ainvoke(words)),
    "astream": lambda llm, words: asyncio.run(drained(llm.astream(words)))[-1],
}


@pytest.mark.stamps("LangChain", "with_structured_output, {how}", "run")
@pytest.mark.parametrize("how", ["invoke", "stream", "ainvoke", "astream"])
def test_structured_output_is_marked(how: str, model: Model) -> None:
    model.script = lambda asked: (
        [Call("Word", {"word": "hi"})] if asked.body.get("tools") else '{"word": "hi"}'
    )
    llm = chat_model(model)
    with tenuto.run() as run:
        for method in ("json_schema", "function_calling", "json_mode"):
            structured: Any = llm.with_structured_output(Word, method=method)
            assert STRUCTURED[how](structured, f"json {method}") == Word(word="hi")
    assert [one.headers["x-agent-run-id"] for one in model.arrived] == [run.run_id] * 3


@pytest.mark.stamps("LangChain", "invoke in threads, tenuto.ContextExecutor", "run, session")
def test_calls_in_a_programs_own_threads_are_in_the_run_with_our_pool(model: Model) -> None:
    llm = chat_model(model)
    with tenuto.run() as run, run.agent("planner") as agent, tenuto.ContextExecutor(4) as pool:
        list(pool.map(llm.invoke, [f"part {number}" for number in range(4)]))
    assert [one.headers["x-session-id"] for one in model.arrived] == [agent.session_id] * 4
    assert {one.headers["x-agent-run-id"] for one in model.arrived} == {run.run_id}


@pytest.mark.stamps("LangChain", "OpenAIEmbeddings", "session")
def test_embeddings_are_marked_and_open_no_turn(model: Model) -> None:
    embeddings = OpenAIEmbeddings(
        model="m", base_url=model.base_url, api_key="k", check_embedding_ctx_length=False
    )
    tenuto.wrap(embeddings.client._client)
    with tenuto.run() as run:
        embeddings.embed_query("hi")
    assert model.arrived[0].headers["x-session-id"] == run.session_id
    assert "x-agent-turn" not in model.arrived[0].headers
