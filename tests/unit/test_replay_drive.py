from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from openai import AsyncOpenAI, InternalServerError

import tenuto
from tenuto.replay import TurnResult, block_text, rank_of, replay
from tenuto.trace import Session, Trace, Turn
from tests.loopback import openai_http


def turn(*blocks: int, at: float, output_tokens: int = 3) -> Turn:
    return Turn(blocks, len(blocks) * 8 + 1, output_tokens, at, at + 1.0)


# Two subagents beside each other after turn 0, joined by turn 1; one that is not joined.
FORKS = Trace(
    "forks",
    8,
    (
        Session("main", "main", (turn(1, at=0), turn(1, 2, at=20), turn(1, 2, 3, at=30))),
        Session("a", "search", (turn(7, at=2), turn(7, 8, at=5)), "main", 0, 1),
        Session("b", "search", (turn(7, at=2), turn(7, 9, at=9)), "main", 0, 1),
        Session("c", "watch", (turn(5, at=22), turn(5, 6, at=60)), "main", 1),
    ),
)


class Server:
    """Answers each completion with a stream; knows what it was asked."""

    def __init__(self, *, status: int = 200, usage: bool = True) -> None:
        self.asked: list[tuple[dict[str, Any], openai_http.Headers]] = []
        self.inside = self.most_inside = 0
        self._status = status
        self._usage = usage

    def client(self) -> AsyncOpenAI:
        http = openai_http.AsyncClient(transport=openai_http.MockTransport(self._answer))
        return AsyncOpenAI(
            base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0, http_client=http
        )

    async def _answer(self, request: openai_http.Request) -> openai_http.Response:
        body = json.loads(request.content)
        self.asked.append((body, request.headers))
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        for _ in range(5):
            await asyncio.sleep(0)
        self.inside -= 1
        if self._status != 200:
            return openai_http.Response(self._status, json={"error": {"message": "no"}})
        return openai_http.Response(
            200,
            headers={"content-type": "text/event-stream", "X-Engine-Rank": "1"},
            content=_events(body, usage=self._usage),
        )


def _events(body: dict[str, Any], *, usage: bool) -> bytes:
    base = {"id": "c", "object": "text_completion", "created": 0, "model": body["model"]}
    choice = {"index": 0, "text": "ab", "finish_reason": "length", "logprobs": None}
    rows: list[dict[str, Any]] = [{**base, "choices": [choice]}]
    if usage:
        counted = {
            "prompt_tokens": len(body["prompt"]),
            "completion_tokens": body["max_tokens"],
            "total_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 8},
        }
        rows.append({**base, "choices": [], "usage": counted})
    lines = [f"data: {json.dumps(row)}\n\n" for row in rows]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def play(server: Server, trace: Trace = FORKS, **options: Any) -> list[TurnResult]:
    ticks = itertools.count()

    async def run() -> list[TurnResult]:
        async with server.client() as client:
            if options.get("marked"):
                tenuto.wrap(client)
            return await replay(
                trace,
                client,
                model="tiny",
                workload="w",
                clock=lambda: float(next(ticks)),
                **options,
            )

    return asyncio.run(run())


def of(results: Sequence[TurnResult], session: str) -> list[TurnResult]:
    return [result for result in results if result.session == session]


def test_the_turns_of_a_session_follow_each_other() -> None:
    results = play(Server())
    assert len(results) == FORKS.requests
    for session in FORKS.sessions:
        turns = of(results, session.label)
        assert [result.turn for result in turns] == list(range(len(session.turns)))
        assert all(one.end_s < next_.start_s for one, next_ in itertools.pairwise(turns))


def test_a_subagent_runs_between_the_turns_that_spawned_and_joined_it() -> None:
    results = play(Server())
    main = of(results, "main")
    for label in "ab":
        assert main[0].end_s < of(results, label)[0].start_s
        assert of(results, label)[-1].end_s < main[1].start_s
    assert main[1].end_s < of(results, "c")[0].start_s


def test_subagents_that_overlapped_run_beside_each_other() -> None:
    server = Server()
    play(server)
    assert server.most_inside == 2


def test_a_subagent_that_was_not_joined_holds_nobody_up() -> None:
    results = play(Server())
    assert of(results, "main")[2].start_s < of(results, "c")[1].end_s


def test_a_prompt_is_the_text_of_its_blocks_and_the_answer_is_cut_to_the_limit() -> None:
    server = Server()
    trace = Trace(
        "t",
        8,
        (Session("s", "s", (turn(4, at=0, output_tokens=900), turn(4, at=2, output_tokens=0))),),
    )
    play(server, trace, max_output_tokens=16)
    first, second = [body for body, _ in server.asked]
    assert first["prompt"] == block_text(4, 8, salt="t") + "."
    assert (first["max_tokens"], second["max_tokens"]) == (16, 1)
    assert first["stream_options"] == {"include_usage": True}


def test_a_result_says_what_the_server_counted() -> None:
    result = of(play(Server()), "main")[1]
    assert (result.workload, result.agent, result.rank) == ("w", "main", 1)
    assert (result.prompt_tokens, result.cached_tokens, result.output_tokens) == (17, 8, 3)
    assert 0 < result.ttft_s < result.end_s - result.start_s


def test_marked_calls_carry_one_session_id_each_session_and_the_parents() -> None:
    server = Server()
    play(server, marked=True)
    sent = {(body["prompt"], headers["x-session-id"]) for body, headers in server.asked}
    parents: dict[str, set[str | None]] = {}
    for _, headers in server.asked:
        parents.setdefault(headers["x-session-id"], set()).add(headers.get("x-parent-session-id"))
    (main,) = {
        headers["x-session-id"] for body, headers in server.asked if len(body["prompt"]) == 25
    }
    assert len(parents) == len(FORKS.sessions)
    assert sum(above == {main} for above in parents.values()) == 3
    assert len(sent) == FORKS.requests


def test_unmarked_calls_carry_nothing() -> None:
    server = Server()
    play(server)
    assert not [
        name for _, headers in server.asked for name in headers if name.startswith("x-session")
    ]


def test_what_the_client_raises_comes_out_and_stops_the_replay() -> None:
    server = Server(status=500)
    with pytest.raises(ExceptionGroup) as caught:
        play(server)
    assert caught.group_contains(InternalServerError)
    assert len(server.asked) == 1


def test_a_stream_without_usage_is_an_error_that_names_the_turn() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        play(Server(usage=False))
    assert caught.group_contains(RuntimeError, match="turn 0 of main: .* without usage")


@pytest.mark.parametrize(
    ("headers", "rank"),
    [
        ({"X-Engine-Rank": "3"}, 3),
        ({"X-Engine-Rank": "1", "X-Agent-Served": "rank=0"}, 1),
        ({"X-Agent-Served": "rank=1, home=1, why=home, lease=120"}, 1),
        ({"X-Engine-Rank": "-1"}, None),
        ({"X-Engine-Rank": "one", "X-Agent-Served": "rank=2"}, 2),
        ({"X-Agent-Served": "why=home"}, None),
        ({}, None),
    ],
)
def test_the_rank_is_read_from_whichever_header_names_one(
    headers: dict[str, str], rank: int | None
) -> None:
    assert rank_of(headers) == rank
