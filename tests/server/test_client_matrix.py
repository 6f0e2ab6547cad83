"""Every kind of client, HTTP library and style of call, fresh and used, over two retries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

import tenuto
from tests.calls import (
    ASYNC_CALLS,
    AT_ONCE,
    CHAT,
    HTTP,
    SYNC_CALLS,
    TWO_FAILURES,
    check_one_call,
    make,
)
from tests.loopback import Recorder, serving

USES = ("fresh", "used")


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Recorder, str]]:
    recorder = Recorder(answer_headers=AT_ONCE)
    with serving(recorder) as url:
        yield recorder, url


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("call", SYNC_CALLS)
@pytest.mark.parametrize("http", HTTP)
@pytest.mark.parametrize("kind", [openai.OpenAI, openai.AzureOpenAI])
def test_every_attempt_of_a_sync_call_carries_the_same_keys(
    kind: type[Any], http: str, call: str, use: str, server: tuple[Recorder, str]
) -> None:
    recorder, url = server
    with make(kind, url, http) as client:
        if use == "used":
            SYNC_CALLS[call](client)
        recorder.arrived, recorder.script = [], [*TWO_FAILURES]
        tenuto.wrap(client)
        with tenuto.run() as run, run.agent("planner") as agent:
            SYNC_CALLS[call](client)
    check_one_call(recorder.arrived, agent, run)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("call", ASYNC_CALLS)
@pytest.mark.parametrize("http", HTTP)
@pytest.mark.parametrize("kind", [openai.AsyncOpenAI, openai.AsyncAzureOpenAI])
@pytest.mark.anyio
async def test_every_attempt_of_an_async_call_carries_the_same_keys(
    kind: type[Any], http: str, call: str, use: str, server: tuple[Recorder, str]
) -> None:
    recorder, url = server
    async with make(kind, url, http) as client:
        if use == "used":
            await ASYNC_CALLS[call](client)
        recorder.arrived, recorder.script = [], [*TWO_FAILURES]
        tenuto.wrap(client)
        async with tenuto.run() as run, run.agent("planner") as agent:
            await ASYNC_CALLS[call](client)
    check_one_call(recorder.arrived, agent, run)


def test_openais_module_level_client_is_marked(
    server: tuple[Recorder, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, url = server
    recorder.arrived, recorder.script = [], [*TWO_FAILURES]
    monkeypatch.setattr(openai, "base_url", f"{url}/v1")
    monkeypatch.setattr(openai, "api_key", "k")
    monkeypatch.setattr(openai, "_client", None)
    with tenuto.wrap(openai._load_client()), tenuto.run() as run, run.agent("planner") as agent:
        openai.chat.completions.create(**CHAT)
    check_one_call(recorder.arrived, agent, run)
