"""Interleaved sessions of a program that has one line of tenuto, or none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import openai

import tenuto


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One turn as the server answered it; tokens from `usage`, rank from `X-Engine-Rank`."""

    session: str
    turn: int
    rank: int | None
    prompt_tokens: int
    cached_tokens: int
    ttft_s: float


async def run_sessions(
    base_url: str,
    *,
    marked: bool,
    fresh_connections: bool,
    sessions: int = 4,
    turns: int = 10,
    label: str = "",
) -> list[TurnRow]:
    """Run the sessions at once, each its turns in order, and return a row a turn.

    Args:
        base_url: of an OpenAI-shaped server, ending in /v1.
        marked: wrap the client; without it the same program runs bare.
        fresh_connections: a new TCP connection for each turn, so that the kernel deals
            the turns of a session over all API processes.
        sessions: how many at once.
        turns: how many each.
        label: put first in every prompt, so that two runs share no cache.
    """
    async with openai.AsyncOpenAI(
        base_url=base_url, api_key="none", max_retries=0, timeout=300
    ) as client:
        if marked:
            tenuto.wrap(client)
        run = tenuto.run()
        each = await asyncio.gather(
            *(
                _session(client, run.agent(f"agent-{i}"), turns, label, fresh=fresh_connections)
                for i in range(sessions)
            )
        )
    return [row for rows in each for row in rows]


async def _session(
    client: openai.AsyncOpenAI, agent: tenuto.Agent, turns: int, label: str, *, fresh: bool
) -> list[TurnRow]:
    name = agent.agent
    messages: list[Any] = [{"role": "system", "content": f"{label} {name} " + "policy. " * 250}]
    rows: list[TurnRow] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"turn {turn}: " + "evidence " * 40})
        with agent:
            if fresh:
                async with openai.DefaultAsyncHttpxClient() as http:
                    row, text = await _turn(client.copy(http_client=http), messages, name, turn)
            else:
                row, text = await _turn(client, messages, name, turn)
        rows.append(row)
        messages.append({"role": "assistant", "content": text})
    return rows


async def _turn(
    client: openai.AsyncOpenAI, messages: list[Any], name: str, turn: int
) -> tuple[TurnRow, str]:
    started = time.perf_counter()
    stream = await client.chat.completions.create(
        model="tiny",
        messages=messages,
        max_tokens=8,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    first, text, usage = None, "", None
    async for chunk in stream:
        first = first or time.perf_counter()
        text += chunk.choices[0].delta.content or "" if chunk.choices else ""
        usage = chunk.usage or usage
    if usage is None or first is None:
        raise RuntimeError("the server sent no usage")
    rank = stream.response.headers.get("x-engine-rank")
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens if details else None) or 0
    row = TurnRow(
        name,
        turn,
        int(rank) if rank is not None else None,
        usage.prompt_tokens,
        cached,
        first - started,
    )
    return row, text


def turns_short_of_cache(rows: Sequence[TurnRow], block_size: int) -> list[TurnRow]:
    """Return the turns that did not find every complete block of the last prompt cached."""
    last: dict[str, int] = {}
    short: list[TurnRow] = []
    for row in sorted(rows, key=lambda row: (row.session, row.turn)):
        if row.cached_tokens < last.get(row.session, 0) // block_size * block_size:
            short.append(row)
        last[row.session] = row.prompt_tokens
    return short
