"""Many clients at once, and clients that leave: every block comes back."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Iterator

import anyio
import openai
import pytest

from tenuto_vllm.embedded import EngineSettings, serve

CHAT = [{"role": "user", "content": "What is the capital of France, and who lives there?"}]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def fast_url() -> Iterator[str]:
    with serve(EngineSettings(blocks=64, decode_tokens_per_s=20_000)) as base_url:
        yield base_url


def ranks(url: str) -> list[dict[str, int]]:
    with urllib.request.urlopen(f"{url}/stats", timeout=5) as answer:
        return json.load(answer)["ranks"]


def until_idle(url: str) -> None:
    """Poll until no rank has a request or a block in use; fail after 5 s."""
    deadline_s = time.monotonic() + 5
    while any(r["in_flight"] or r["free_blocks"] < r["total_blocks"] for r in ranks(url)):
        assert time.monotonic() < deadline_s, ranks(url)


async def test_the_async_client_runs_many_at_once_and_all_blocks_return(fast_url: str):
    async with openai.AsyncOpenAI(
        base_url=f"{fast_url}/v1", api_key="none", max_retries=0
    ) as client:

        async def one(n: int) -> str:
            stream = await client.chat.completions.create(
                model="tiny", messages=CHAT, max_tokens=20 + n, stream=True
            )
            async with stream:
                return "".join([c.choices[0].delta.content or "" async for c in stream])

        texts = await asyncio.gather(*(one(n) for n in range(40)))
    assert [len(text) for text in texts] == [20 + n for n in range(40)]
    until_idle(fast_url)


@pytest.fixture(scope="module")
def slow_url() -> Iterator[str]:
    # 20,000 tokens would take 100 s: only a departure frees their blocks in time.
    with serve(EngineSettings(ranks=1, blocks=2000, decode_tokens_per_s=200)) as base_url:
        yield base_url


@pytest.mark.parametrize("route", ["chat", "completions", "responses"])
def test_a_client_that_leaves_a_stream_frees_its_blocks(slow_url: str, route: str):
    with openai.OpenAI(base_url=f"{slow_url}/v1", api_key="none", max_retries=0) as client:
        many = 20_000
        stream = {
            "chat": lambda: client.chat.completions.create(
                model="tiny", messages=CHAT, max_tokens=many, stream=True
            ),
            "completions": lambda: client.completions.create(
                model="tiny", prompt="hi", max_tokens=many, stream=True
            ),
            "responses": lambda: client.responses.create(
                model="tiny", input="hi", max_output_tokens=many, stream=True
            ),
        }[route]()
        next(iter(stream))
        assert ranks(slow_url)[0]["in_flight"] == 1
        stream.close()
    until_idle(slow_url)


def test_a_client_that_gives_up_on_a_whole_answer_frees_its_blocks(slow_url: str):
    before = ranks(slow_url)[0]["requests"]
    with (
        openai.OpenAI(
            base_url=f"{slow_url}/v1", api_key="none", max_retries=0, timeout=0.3
        ) as client,
        pytest.raises(openai.APITimeoutError),
    ):
        client.completions.create(model="tiny", prompt="hi", max_tokens=20_000)
    assert ranks(slow_url)[0]["requests"] == before + 1
    until_idle(slow_url)


async def test_an_async_client_that_is_cancelled_frees_its_blocks(slow_url: str):
    async with openai.AsyncOpenAI(
        base_url=f"{slow_url}/v1", api_key="none", max_retries=0
    ) as client:
        before = ranks(slow_url)[0]["requests"]
        with anyio.move_on_after(0.3) as scope:
            await client.responses.create(model="tiny", input="hi", max_output_tokens=20_000)
    assert scope.cancelled_caught
    assert ranks(slow_url)[0]["requests"] == before + 1
    until_idle(slow_url)
