from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from openai import AsyncOpenAI, InternalServerError

import tenuto
from tenuto.replay import Ask, Mode, Reach, Schedule, TurnResult, block_text, rank_of, replay
from tenuto.trace import Session, Trace
from tests.loopback import openai_http
from tests.unit.replay.programs import FORKS, turn


class Server:
    """Answers each completion with a stream; knows what it was asked."""

    def __init__(self, *, status: int = 200, usage: bool = True) -> None:
        self.asked: list[tuple[dict[str, Any], openai_http.Headers]] = []
        self.inside = self.most_inside = 0
        self.hang_at: tuple[int, ...] = ()
        self.hangs = asyncio.Event()
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
        number = len(self.asked)
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        try:
            for _ in range(5):
                await asyncio.sleep(0)
            if number in self.hang_at:
                if number == self.hang_at[-1]:
                    self.hangs.set()
                await asyncio.Event().wait()
        finally:
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


def play(
    server: Server,
    *given: Trace,
    mode: Mode = "asap",
    live: int | None = None,
    most: int | None = 16,
    **options: Any,
) -> list[TurnResult]:
    ticks = itertools.count()
    traces = given or (FORKS,)

    async def run() -> list[TurnResult]:
        async with server.client() as client:
            if options.get("marked"):
                tenuto.wrap(client)
            return await replay(
                traces,
                client,
                ask=Ask("tiny", max_output_tokens=most),
                schedule=Schedule(traces, mode=mode, live_sessions=live),
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
        (Session("s", "s", (turn(4, at=0, out=900), turn(4, at=2, out=0))),),
    )
    play(server, trace)
    first, second = [body for body, _ in server.asked]
    assert first["prompt"] == block_text(4, 8, salt="t") + "."
    assert (first["max_tokens"], second["max_tokens"]) == (16, 1)
    assert first["stream_options"] == {"include_usage": True}
    # vLLM ends an answer where its model does, which is not where the recording did.
    assert (first["ignore_eos"], first["min_tokens"]) == (True, 16)


def test_a_result_says_what_the_server_counted() -> None:
    result = of(play(Server()), "main")[1]
    assert (result.trace, result.agent, result.rank) == ("forks", "main", 1)
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


def test_a_failed_call_is_a_result_and_the_next_turn_follows_it() -> None:
    results = play(Server(status=500))
    assert [result.error for result in results] == ["InternalServerError"] * FORKS.requests
    assert (results[0].prompt_tokens, results[0].output_tokens, results[0].rank) == (9, 0, None)


def test_with_fail_fast_what_the_client_raises_comes_out_and_stops_the_replay() -> None:
    server = Server(status=500)
    told: list[TurnResult] = []
    with pytest.raises(InternalServerError):
        play(server, fail_fast=True, on_turn=told.append)
    assert len(server.asked) == len(told) == 1


def test_a_stream_without_usage_is_an_error_that_names_the_turn() -> None:
    with pytest.raises(RuntimeError, match=r"turn 0 of main: .* without usage"):
        play(Server(usage=False), fail_fast=True)


def test_what_takes_the_results_may_end_the_replay() -> None:
    def full(_: TurnResult) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        play(Server(), on_turn=full)


def test_a_replay_that_is_cancelled_tells_of_what_was_answered() -> None:
    server = Server()
    told: list[TurnResult] = []

    async def run() -> None:
        async with server.client() as client:
            playing = asyncio.create_task(
                replay(
                    [FORKS],
                    client,
                    ask=Ask("tiny"),
                    schedule=Schedule([FORKS], mode="asap"),
                    clock=lambda: float(len(server.asked)),
                    on_turn=told.append,
                )
            )
            # Both subagents hang, the second at its second turn.
            server.hang_at = (2, 4)
            await server.hangs.wait()
            playing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await playing

    asyncio.run(run())
    assert [(one.session, one.turn) for one in told] == [("main", 0), ("b", 0)]
    assert server.inside == 0


@pytest.mark.parametrize("limit", [1, 2, None])
def test_no_more_calls_are_in_flight_than_allowed(limit: int | None) -> None:
    server = Server()
    many = [replace(FORKS, id=f"t{n}") for n in range(3)]
    results = play(server, *many, concurrency=limit)
    assert len(results) == 3 * FORKS.requests
    assert server.most_inside == (limit or server.most_inside)
    assert limit or server.most_inside > 2


def test_calls_that_are_held_back_go_first_come_first_served() -> None:
    """One at a time, so that the order is the simulator's: what waits longest goes next."""
    many = [replace(FORKS, id=f"t{n}") for n in range(2)]
    order = [(one.trace, one.session, one.turn) for one in play(Server(), *many, concurrency=1)]
    assert order[:6] == [
        ("t0", "main", 0),
        ("t1", "main", 0),
        ("t0", "a", 0),
        ("t0", "b", 0),
        ("t1", "a", 0),
        ("t1", "b", 0),
    ]


def test_the_next_trace_begins_when_one_has_ended() -> None:
    many = [replace(FORKS, id=f"t{n}") for n in range(3)]
    results = play(Server(), *many, live=1)
    ended = {trace.id: max(r.end_s for r in results if r.trace == trace.id) for trace in many}
    began = {trace.id: min(r.start_s for r in results if r.trace == trace.id) for trace in many}
    assert ended["t0"] < began["t1"] < ended["t1"] < began["t2"]


def test_results_say_what_a_cache_without_end_would_have_had() -> None:
    results = play(Server(), reach=Reach())
    told = {(one.session, one.turn): one.reachable_tokens for one in results}
    assert told["main", 0] == 0
    assert told["main", 2] == 16
    assert {told["a", 0], told["b", 0]} == {0, 8}
    assert all(one.rank_reachable_tokens == one.reachable_tokens for one in results)


def test_traces_with_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="one id"):
        play(Server(), FORKS, FORKS)


def test_a_fork_that_inherits_says_so() -> None:
    server = Server()
    sessions = tuple(
        replace(one, fork="inherit") if one.label == "a" else one for one in FORKS.sessions
    )
    play(server, replace(FORKS, id="inherits", sessions=sessions), marked=True)
    said = [headers["x-agent-turn"] for _, headers in server.asked]
    assert sum("fork=inherit" in one for one in said) == 1


def test_a_phase_of_the_trace_travels() -> None:
    server = Server()
    one = Session("s", "s", (turn(1, at=0), replace(turn(1, 2, at=2), phase="compact")))
    play(server, Trace("phases", 8, (one,)), marked=True)
    assert "phase=compact" in server.asked[1][1]["x-agent-turn"]


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
