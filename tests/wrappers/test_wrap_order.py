"""Other wrappers of openai's clients, put on before ours and after it.

What they record with ours on the client is what they record without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from typing import Any

import openai
import pytest

import tenuto
from tests.calls import ASYNC_CALLS, SYNC_CALLS, check_one_call, make
from tests.wrappers.conftest import Lines
from tests.wrappers.theirs import THEIRS

# What is done to a client before the call under test: ours, a call, or one of THEIRS.
OURS, USE = "ours", "use"
# What they do not trace: calls that they do not wrap, and copies of a client that they
# instrument by its instance.
COPIES = {"with_options", "copy(http_client=)"}
UNTRACED = {
    "langfuse": {"streaming raw"},
    "logfire client": COPIES,
    "otel genai": {"completions"},
    "langsmith": {"embeddings", *COPIES},
}


def orders(*theirs: str) -> list[tuple[str, ...]]:
    return [(*theirs[:place], OURS, *theirs[place:]) for place in range(len(theirs) + 1)]


def sync_call(lines: Lines, call: str, steps: tuple[str, ...]) -> list[list[str]]:
    """Take the steps, then call in a run; return what each of the others has recorded."""
    with make(openai.OpenAI, lines.url) as client, contextlib.ExitStack() as stack:
        recorded = []
        for step in steps:
            if step == OURS:
                tenuto.wrap(client)
            elif step == USE:
                SYNC_CALLS[call](client)
            else:
                recorded.append(stack.enter_context(THEIRS[step](client)))
        lines.expect_failures()
        with tenuto.run() as run, run.agent("planner") as agent:
            SYNC_CALLS[call](client)
        if OURS in steps:
            check_one_call(lines.arrived, agent, run)
        return [one() for one in recorded]


async def async_call(lines: Lines, call: str, steps: tuple[str, ...]) -> list[list[str]]:
    """Do as `sync_call` does, with an async client."""
    async with make(openai.AsyncOpenAI, lines.url) as client:
        with contextlib.ExitStack() as stack:
            recorded = []
            for step in steps:
                if step == OURS:
                    tenuto.wrap(client)
                elif step == USE:
                    await ASYNC_CALLS[call](client)
                else:
                    recorded.append(stack.enter_context(THEIRS[step](client)))
            lines.expect_failures()
            async with tenuto.run() as run, run.agent("planner") as agent:
                await ASYNC_CALLS[call](client)
            if OURS in steps:
                check_one_call(lines.arrived, agent, run)
            return [one() for one in recorded]


def check_quiet(lines: Lines, caplog: pytest.LogCaptureFixture) -> None:
    assert lines.repeated == []
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("call", SYNC_CALLS)
@pytest.mark.parametrize("theirs", THEIRS)
def test_a_sync_client_is_marked_once_and_traced_in_either_order(
    theirs: str, call: str, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    (alone,) = sync_call(lines, call, (theirs,))
    assert bool(alone) != (call in UNTRACED.get(theirs, ()))
    for order in orders(theirs):
        assert sync_call(lines, call, order) == [alone]
    check_quiet(lines, caplog)


@pytest.mark.parametrize("call", ASYNC_CALLS)
@pytest.mark.parametrize("theirs", THEIRS)
@pytest.mark.anyio
async def test_an_async_client_is_marked_once_and_traced_in_either_order(
    theirs: str, call: str, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    (alone,) = await async_call(lines, call, (theirs,))
    assert bool(alone) != (call in UNTRACED.get(theirs, ()))
    for order in orders(theirs):
        assert await async_call(lines, call, order) == [alone]
    check_quiet(lines, caplog)


@pytest.mark.parametrize("call", ["create", "raw", "stream()", "responses.parse", "with_options"])
@pytest.mark.parametrize("theirs", THEIRS)
def test_a_client_used_between_the_two_wraps_is_marked_once_and_traced(
    theirs: str, call: str, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    # openai keeps resources, and raw forms of their methods, from a client's first use.
    for order in ((OURS, USE, theirs), (theirs, USE, OURS)):
        alone = tuple(step for step in order if step != OURS)
        assert sync_call(lines, call, order) == sync_call(lines, call, alone)
    check_quiet(lines, caplog)


@pytest.mark.parametrize("call", ["stream()", "raw"])
@pytest.mark.parametrize(("first", "last"), list(itertools.permutations(THEIRS, 2)))
def test_two_others_and_ours_in_any_order_mark_a_call_once(
    first: str, last: str, call: str, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    alone = sync_call(lines, call, (first, last))
    for order in orders(first, last):
        assert sync_call(lines, call, order) == alone
    check_quiet(lines, caplog)


@pytest.mark.parametrize("order", ["ours first", "theirs first"])
@pytest.mark.parametrize("theirs", THEIRS)
@pytest.mark.anyio
async def test_concurrent_runs_of_a_traced_client_keep_their_own_keys(
    theirs: str, order: str, lines: Lines
) -> None:
    async def work(number: int) -> str:
        async with tenuto.run() as run:
            for turns in range(1, 4):
                messages: Any = [{"role": "user", "content": str(number)}] * turns
                calls = client.chat.completions
                async with calls.stream(model="m", messages=messages) as stream:
                    await stream.get_final_completion()
            return run.run_id

    async with make(openai.AsyncOpenAI, lines.url) as client:
        if order == "ours first":
            tenuto.wrap(client)
        with THEIRS[theirs](client):
            tenuto.wrap(client)
            lines.arrived = []
            runs = await asyncio.gather(*(work(number) for number in range(5)))
    assert len(lines.arrived) == 15
    for one in lines.arrived:
        messages = one.body["messages"]
        assert one.headers["x-agent-run-id"] == runs[int(messages[0]["content"])]
        assert one.turn["n"] == str(len(messages) - 1)
