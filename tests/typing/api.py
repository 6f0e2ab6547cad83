"""What a type checker sees of the public surface; checked by mypy, never run."""

from __future__ import annotations

from typing import assert_type

from openai import AsyncAzureOpenAI, AsyncOpenAI, AsyncStream, AzureOpenAI, OpenAI, Stream
from openai._legacy_response import LegacyAPIResponse
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ParsedChatCompletion
from openai.types.responses import Response
from pydantic import BaseModel

import tenuto


class Word(BaseModel):
    """A structured answer."""

    word: str


def sync_overloads_are_kept() -> None:
    """The wrapped client is the type it was, and so are its answers."""
    client = assert_type(tenuto.wrap(OpenAI()), OpenAI)
    assert_type(tenuto.wrap(AzureOpenAI()), AzureOpenAI)
    assert_type(client.with_options(timeout=1), OpenAI)
    chat = client.chat.completions
    assert_type(chat.create(model="m", messages=[]), ChatCompletion)
    assert_type(chat.create(model="m", messages=[], stream=True), Stream[ChatCompletionChunk])
    assert_type(
        chat.with_raw_response.create(model="m", messages=[]), LegacyAPIResponse[ChatCompletion]
    )
    assert_type(
        chat.parse(model="m", messages=[], response_format=Word), ParsedChatCompletion[Word]
    )
    assert_type(client.responses.create(model="m", input="x"), Response)
    assert_type(client.completions.create(model="m", prompt="x"), Completion)


async def async_overloads_are_kept() -> None:
    """The same for the async clients, and scopes are async context managers too."""
    client = assert_type(tenuto.wrap(AsyncOpenAI(), dialect="vllm"), AsyncOpenAI)
    assert_type(tenuto.wrap(AsyncAzureOpenAI()), AsyncAzureOpenAI)
    chat = client.chat.completions
    assert_type(
        await chat.create(model="m", messages=[], stream=True), AsyncStream[ChatCompletionChunk]
    )
    async with tenuto.run("ticket") as run, run.agent("planner", fork="inherit") as agent:
        assert_type(run, tenuto.Run)
        assert_type(agent, tenuto.Agent)
        assert_type(agent.session_id, str)
