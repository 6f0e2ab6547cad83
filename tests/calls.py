"""Every way to call a model through openai's clients, each as one logical call.

The keys of the two tables are the names that tests show; the values take a client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import openai
import pydantic

import tenuto
from tests.loopback import Arrived, openai_http

__all__ = [
    "ASYNC_CALLS",
    "AT_ONCE",
    "CHAT",
    "HTTP",
    "SYNC_CALLS",
    "TWO_FAILURES",
    "check_one_call",
    "make",
]

# One where openai is built on httpx.
HTTP = {library.__name__: library for library in (openai_http, httpx)}
AT_ONCE = {"retry-after-ms": "1"}
TWO_FAILURES = [500, 500]

USER = [{"role": "user", "content": "hi"}]
CHAT: dict[str, Any] = {"model": "m", "messages": USER}


class Word(pydantic.BaseModel):
    word: str


def make(kind: type[Any], url: str, http: str = openai_http.__name__) -> Any:
    """Return an openai client of any of the four kinds for a loopback server.

    Args:
        kind: `OpenAI`, `AzureOpenAI` or the async one of either.
        url: the root URL of the server.
        http: the name of the library of its HTTP client, one of `HTTP`.
    """
    asynchronous = issubclass(kind, openai.AsyncOpenAI)
    more = {"api_key": "k", "http_client": _http_client(HTTP[http], asynchronous)}
    if issubclass(kind, openai.AzureOpenAI | openai.AsyncAzureOpenAI):
        return kind(azure_endpoint=url, api_version="2024-10-21", **more)
    return kind(base_url=f"{url}/v1", **more)


def check_one_call(arrived: list[Arrived], agent: tenuto.Agent, parent: tenuto.Run) -> None:
    """Check that what arrived is one call of `agent`, tried three times."""
    keys = {
        "x-session-id": agent.session_id,
        "x-parent-session-id": parent.session_id,
        "x-agent-run-id": parent.run_id,
    }
    assert [{key: one.headers.get(key) for key in keys} for one in arrived] == [keys] * 3
    request_ids = {one.headers.get("x-request-id") for one in arrived}
    assert len(request_ids) == 1
    assert None not in request_ids
    # An embedding opens no turn.
    opens_turn = not arrived[0].path.endswith("/embeddings")
    expected = [("0", str(n)) if opens_turn else (None, None) for n in range(3)]
    assert [(one.turn.get("n"), one.turn.get("attempt")) for one in arrived] == expected


def _http_client(library: Any, asynchronous: bool) -> Any:
    # A certificate store takes longer to load than a whole test.
    return (library.AsyncClient if asynchronous else library.Client)(verify=False)


def _http_like(client: Any) -> Any:
    """Return another HTTP client of the library that `client` uses."""
    legacy = isinstance(client._client, httpx.Client | httpx.AsyncClient)
    return _http_client(httpx if legacy else openai_http, isinstance(client, openai.AsyncOpenAI))


def _stream(client: Any) -> Any:
    with client.chat.completions.stream(**CHAT) as stream:
        return stream.get_final_completion()


def _streaming_raw(client: Any) -> Any:
    with client.chat.completions.with_streaming_response.create(**CHAT) as answer:
        return answer.read()


def _responses_stream(client: Any) -> Any:
    with client.responses.stream(model="m", input="hi") as stream:
        return stream.get_final_response()


def _copy_http(client: Any) -> Any:
    with client.copy(http_client=_http_like(client)) as copied:
        return copied.chat.completions.create(**CHAT)


SYNC_CALLS: dict[str, Callable[[Any], Any]] = {
    "create": lambda c: c.chat.completions.create(**CHAT),
    "stream=True": lambda c: list(c.chat.completions.create(**CHAT, stream=True)),
    "stream()": _stream,
    "parse": lambda c: c.chat.completions.parse(**CHAT, response_format=Word),
    "raw": lambda c: c.chat.completions.with_raw_response.create(**CHAT).parse(),
    "streaming raw": _streaming_raw,
    "responses": lambda c: c.responses.create(model="m", input="hi"),
    "responses stream=True": lambda c: list(c.responses.create(model="m", input="hi", stream=True)),
    "responses.stream()": _responses_stream,
    "responses.parse": lambda c: c.responses.parse(model="m", input="hi", text_format=Word),
    "completions": lambda c: c.completions.create(model="m", prompt="hi"),
    "embeddings": lambda c: c.embeddings.create(model="m", input="hi", encoding_format="float"),
    "with_options": lambda c: c.with_options(timeout=9).chat.completions.create(**CHAT),
    "copy(http_client=)": _copy_http,
}


async def _astream_true(client: Any) -> Any:
    return [chunk async for chunk in await client.chat.completions.create(**CHAT, stream=True)]


async def _astream(client: Any) -> Any:
    async with client.chat.completions.stream(**CHAT) as stream:
        return await stream.get_final_completion()


async def _araw(client: Any) -> Any:
    return (await client.chat.completions.with_raw_response.create(**CHAT)).parse()


async def _astreaming_raw(client: Any) -> Any:
    async with client.chat.completions.with_streaming_response.create(**CHAT) as answer:
        return await answer.read()


async def _aresponses_stream_true(client: Any) -> Any:
    stream = await client.responses.create(model="m", input="hi", stream=True)
    return [event async for event in stream]


async def _aresponses_stream(client: Any) -> Any:
    async with client.responses.stream(model="m", input="hi") as stream:
        return await stream.get_final_response()


async def _acopy_http(client: Any) -> Any:
    async with client.copy(http_client=_http_like(client)) as copied:
        return await copied.chat.completions.create(**CHAT)


# A plain call of an async client returns what is to be awaited, so the table above serves.
ASYNC_CALLS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    **SYNC_CALLS,
    "stream=True": _astream_true,
    "stream()": _astream,
    "raw": _araw,
    "streaming raw": _astreaming_raw,
    "responses stream=True": _aresponses_stream_true,
    "responses.stream()": _aresponses_stream,
    "copy(http_client=)": _acopy_http,
}
