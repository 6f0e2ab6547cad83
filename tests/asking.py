"""Calls told apart by their words, so that a test can say which session each was made in."""

from __future__ import annotations

import asyncio
from typing import Any

import openai

import tenuto
from tests.loopback import Recorder, openai_http

__all__ = ["aask", "aclient", "ask", "client", "runs", "sessions"]


def client(url: str) -> openai.OpenAI:
    return tenuto.wrap(openai.OpenAI(base_url=f"{url}/v1", api_key="k"))


def aclient(url: str) -> openai.AsyncOpenAI:
    """Return a client that may be used in several event loops: it keeps no connection."""
    http = openai_http.AsyncClient(limits=openai_http.Limits(max_keepalive_connections=0))
    return tenuto.wrap(openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", http_client=http))


def _body(words: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": words}]}


def ask(client: openai.OpenAI, words: str) -> str:
    client.chat.completions.create(**_body(words))
    return words


async def aask(client: openai.AsyncOpenAI, words: str) -> str:
    # A request is made a while after its task was, as behind any lock or queue.
    await asyncio.sleep(0)
    await client.chat.completions.create(**_body(words))
    return words


def _said(recorder: Recorder, header: str) -> dict[str, str | None]:
    # A request that was broken off may have come without its words.
    return {
        one.body["messages"][-1]["content"]: one.headers.get(header)
        for one in recorder.arrived
        if one.body
    }


def sessions(recorder: Recorder) -> dict[str, str | None]:
    """Return words -> session id, None where the call was unmarked."""
    return _said(recorder, "x-session-id")


def runs(recorder: Recorder) -> dict[str, str | None]:
    """Return words -> run id, None where the call was unmarked."""
    return _said(recorder, "x-agent-run-id")
