"""An engine that is scaled while it serves, whose ranks fail, and come back as others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tenuto_vllm
from tenuto_vllm.asgi.types import Message
from tenuto_vllm.config import Settings
from tenuto_vllm.engine import seam


class Elastic:
    """An `EngineView` of an engine that is scaled, and an application that runs on it."""

    def __init__(self, ranks: int) -> None:
        self.count = ranks
        self.unfit: frozenset[int] = frozenset()
        self.load = [0.0] * ranks
        self.says_early = False
        self.hold = asyncio.Event()
        self.hold.set()
        self.state = SimpleNamespace(tenuto_view=self)

    def ranks(self) -> int:
        return self.count

    def instance(self) -> str:
        return "elastic"

    def capacity(self) -> int:
        return 1_000_000

    def dead(self) -> frozenset[int]:
        return self.unfit

    def loads(self) -> Sequence[float]:
        return (self.load + [0.0] * self.count)[: self.count]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers: list[tuple[bytes, bytes]] = []
        body = b'{"success":true}'
        if scope["path"] == "/v1/completions":
            box = scope[seam.SCOPE_KEY]
            wanted = dict(scope["headers"]).get(b"x-data-parallel-rank", b"0")
            box.served, body = int(wanted), b"{}"
            headers.append((b"x-rank", wanted))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if self.says_early:
            await send({"type": "http.response.body", "body": b"created", "more_body": True})
        if scope["path"] == "/v1/completions":
            scope[seam.SCOPE_KEY].measure(1_000)
        await self.hold.wait()
        await send({"type": "http.response.body", "body": body})


class Program:
    """Sessions that echo their tokens."""

    def __init__(self, engine: Elastic, folder: Path, *, endpoint: str = "") -> None:
        settings = Settings(state_dir=folder, endpoint=endpoint, admin_key=KEY)
        self._app = tenuto_vllm.TurnMiddleware(engine, settings=settings)
        self._engine = engine
        self.tokens: dict[str, str] = {}
        self.turns: dict[str, int] = {}

    async def turn(self, session: str, *, length: int = 0) -> tuple[int, str]:
        """Make the session's next call; return its rank and why it went there."""
        n = self.turns[session] = self.turns.get(session, -1) + 1
        said = await self.answer(session, b"n=%d" % n, length=length)
        self.tokens[session] = said[b"x-agent-affinity"].decode()
        parts = dict(part.split("=") for part in said[b"x-agent-served"].decode().split(", "))
        return int(parts["rank"]), parts["why"]

    async def answer(self, session: str, turn: bytes, *, length: int = 0) -> dict[bytes, bytes]:
        """Make a call of a session; return the answer's headers."""
        headers = [(b"x-session-id", session.encode()), (b"x-agent-turn", turn)]
        if session in self.tokens:
            headers.append((b"x-agent-affinity", self.tokens[session].encode()))
        if length:
            headers.append((b"content-length", b"%d" % length))
        return (await self._ask("/v1/completions", headers))[0]

    async def unkeyed(self) -> int:
        """Make a call in no session; return the rank that it was given."""
        said, _ = await self._ask("/v1/completions", [])
        return int(said[b"x-rank"])

    async def drain(self, rank: int) -> None:
        """Drain a rank as an operator does."""
        key = [(b"authorization", b"Bearer " + KEY.encode())]
        await self._ask("/tenuto/ranks/drain", key, b'{"rank": %d}' % rank)

    async def reset(self) -> None:
        """Empty the caches."""
        await self._ask("/reset_prefix_cache", [])

    async def state(self) -> Any:
        """Return what the server tells operators."""
        return json.loads((await self._ask("/tenuto/state", [], method="GET"))[1])

    async def _ask(
        self,
        path: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes = b"",
        method: str = "POST",
    ) -> tuple[dict[bytes, bytes], bytes]:
        said: dict[bytes, bytes] = {}
        answered = b""

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal answered
            said.update(message.get("headers", ()))
            answered += message.get("body", b"")

        scope = {"type": "http", "method": method, "path": path, "headers": headers}
        await self._app({**scope, "query_string": b"", "app": self._engine}, receive, send)
        return said, answered

    async def round(self, sessions: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Make one call of each session, one after another."""
        return {session: await self.turn(session) for session in sessions}


KEY = "a-key-of-the-operators"
SESSIONS = [f"session-{n:04}" for n in range(80)]


def at_home(placed: dict[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    """Return the next turns of sessions that stay where they were placed."""
    return {session: (rank, "home") for session, (rank, _) in placed.items()}


@pytest.mark.anyio
async def test_taking_a_rank_away_moves_its_sessions_alone_and_once(tmp_path: Path) -> None:
    engine = Elastic(4)
    program = Program(engine, tmp_path)
    before = await program.round(SESSIONS)
    assert [sum(rank == each for rank, _ in before.values()) for each in range(4)] == [20] * 4
    engine.count = 3
    after = await program.round(SESSIONS)
    moved = {session for session in SESSIONS if after[session][0] != before[session][0]}
    assert moved == {session for session in SESSIONS if before[session][0] == 3}
    assert {after[session][1] for session in SESSIONS if session not in moved} == {"home"}
    later = await program.round(SESSIONS)
    assert later == at_home(after)


@pytest.mark.anyio
async def test_adding_a_rank_moves_nobody_and_it_takes_the_new_sessions(tmp_path: Path) -> None:
    engine = Elastic(3)
    program = Program(engine, tmp_path)
    before = await program.round(SESSIONS)
    engine.count = 4
    after = await program.round(SESSIONS)
    assert after == at_home(before)
    fresh = await program.round([f"fresh-session-{n}" for n in range(8)])
    assert {rank for rank, _ in fresh.values()} == {3}


@pytest.mark.anyio
async def test_a_rank_that_comes_back_is_another_engine_and_not_believed_warm(
    tmp_path: Path,
) -> None:
    engine = Elastic(3)
    program = Program(engine, tmp_path)
    before = await program.round(SESSIONS[:6])
    quiet = next(session for session in SESSIONS[:6] if before[session][0] == 2)
    engine.count = 2
    await program.round(SESSIONS[6:8])
    engine.count = 3
    # All of them begin on the rank that is empty, which makes it the most crowded one.
    crowd = await program.round([f"fresh-session-{n}" for n in range(2)])
    assert {rank for rank, _ in crowd.values()} == {2}
    for _ in range(3):
        await program.round(list(crowd))
    engine.load = [0.0, 0.0, 50.0]
    rank, why = await program.turn(quiet)
    assert (rank != 2, why) == (True, "moved")


@pytest.mark.anyio
async def test_requests_in_flight_on_a_rank_that_goes_end_and_leave_no_load(
    tmp_path: Path,
) -> None:
    engine = Elastic(3)
    program = Program(engine, tmp_path)
    before = await program.round(SESSIONS[:6])
    engine.hold.clear()
    calls = [asyncio.create_task(program.turn(session)) for session in SESSIONS[:6]]
    await asyncio.sleep(0)
    assert (await program.state())["in_flight"] == [2, 2, 2]
    engine.count = 2
    engine.hold.set()
    assert [(await call) for call in calls] == [(rank, "home") for rank, _ in before.values()]
    engine.count = 3
    assert (await program.state())["in_flight"] == [0, 0, 0]


@pytest.mark.anyio
async def test_an_unfit_rank_is_left_at_once_and_is_cold_when_it_is_fit_again(
    tmp_path: Path,
) -> None:
    engine = Elastic(3)
    program = Program(engine, tmp_path)
    before = await program.round(SESSIONS)
    engine.unfit = frozenset({1})
    during = await program.round(SESSIONS)
    left = [session for session in SESSIONS if before[session][0] == 1]
    assert {during[session][1] for session in left} == {"moved"}
    assert 1 not in {rank for rank, _ in during.values()}
    engine.unfit = frozenset()
    after = await program.round(SESSIONS)
    assert after == at_home(during)


@pytest.mark.anyio
async def test_where_every_rank_is_unfit_sessions_stay_at_home(tmp_path: Path) -> None:
    engine = Elastic(2)
    program = Program(engine, tmp_path)
    before = await program.round(SESSIONS[:4])
    engine.unfit = frozenset({0, 1})
    during = await program.round(SESSIONS[:4])
    assert during == at_home(before)


@pytest.mark.anyio
@pytest.mark.parametrize("ranks", [1, 3])
async def test_a_named_endpoint_stands_first_in_its_tokens_which_are_home_there_alone(
    tmp_path: Path, ranks: int
) -> None:
    engine = Elastic(ranks)
    east = Program(engine, tmp_path, endpoint="A-z_9" * 8)
    rank, _ = await east.turn(SESSIONS[0])
    assert east.tokens[SESSIONS[0]] == f"{'A-z_9' * 8}-elastic.{rank}"
    assert await east.turn(SESSIONS[0]) == (rank, "home")
    west = Program(engine, tmp_path, endpoint="west")
    west.tokens, west.turns = dict(east.tokens), dict(east.turns)
    assert (await west.turn(SESSIONS[0]))[1] == "first"


@pytest.mark.anyio
async def test_where_one_rank_is_drained_and_the_other_unfit_nothing_goes_to_the_unfit_one(
    tmp_path: Path,
) -> None:
    engine = Elastic(2)
    program = Program(engine, tmp_path)
    await program.round(SESSIONS[:8])
    await program.drain(0)
    engine.unfit = frozenset({1})
    assert {rank for rank, _ in (await program.round(SESSIONS[:8])).values()} == {0}


@pytest.mark.anyio
async def test_drained_ranks_that_are_gone_close_nothing_and_come_back_open(tmp_path: Path) -> None:
    engine = Elastic(4)
    program = Program(engine, tmp_path)
    await program.round(SESSIONS[:8])
    for rank in (3, 1):
        await program.drain(rank)
    engine.count = 2
    assert {rank for rank, _ in (await program.round(SESSIONS)).values()} == {0}
    engine.count = 4
    assert (await program.state())["drained"] == [1]
    fresh = await program.round([f"fresh-session-{n}" for n in range(8)])
    assert {rank for rank, _ in fresh.values()} == {2, 3}


@pytest.mark.anyio
async def test_every_process_counts_a_failure_of_a_rank_once_and_its_sessions_move_once(
    tmp_path: Path,
) -> None:
    engine = Elastic(2)
    one, two = Program(engine, tmp_path), Program(engine, tmp_path)
    before = await one.round(SESSIONS[:8])
    engine.unfit = frozenset({1})
    for program in (one, two):
        await program.turn("somebody-else")
    engine.unfit = frozenset()
    # The first hears that it is fit again, and places sessions there; then the other hears it.
    fresh = await one.round([f"fresh-session-{n}" for n in range(8)])
    there = {session for session, (rank, _) in fresh.items() if rank == 1}
    await two.turn("somebody-else")
    two.tokens, two.turns = dict(one.tokens), dict(one.turns)
    assert there
    assert {(await two.turn(session)) for session in there} == {(1, "home")}
    assert before


@pytest.mark.anyio
async def test_caches_emptied_through_a_process_that_has_served_nothing_are_cold_to_the_others(
    tmp_path: Path,
) -> None:
    engine = Elastic(2)
    one, two = Program(engine, tmp_path), Program(engine, tmp_path)
    await one.round(SESSIONS[:4])
    await two.reset()
    for process in (two, Program(engine, tmp_path)):
        assert (await process.state())["epochs"] == [1, 1]


@pytest.mark.anyio
async def test_requests_in_no_session_go_around_a_drained_rank(tmp_path: Path) -> None:
    engine = Elastic(3)
    program = Program(engine, tmp_path)
    await program.round(SESSIONS[:3])
    await program.drain(1)
    ranks = [await program.unkeyed() for _ in range(6)]
    assert set(ranks) == {0, 2}


@pytest.mark.anyio
async def test_what_a_client_says_of_its_length_keeps_nobody_from_its_home(tmp_path: Path) -> None:
    engine = Elastic(2)
    program = Program(engine, tmp_path)
    before = await program.round(SESSIONS[:8])
    engine.hold.clear()
    huge = [
        asyncio.create_task(program.turn(f"huge-session-{n}", length=400_000_000)) for n in range(2)
    ]
    await asyncio.sleep(0)
    assert (await program.state())["pending"] == [1_000, 1_000]
    engine.hold.set()
    for call in huge:
        await call
    after = await program.round(SESSIONS[:8])
    assert after == at_home(before)


@pytest.mark.anyio
async def test_an_auxiliary_call_leaves_no_home_on_a_single_rank_either(tmp_path: Path) -> None:
    program = Program(Elastic(1), tmp_path)
    said = await program.answer(SESSIONS[0], b"n=0, class=auxiliary")
    assert said[b"x-agent-served"] == b"rank=0, why=auxiliary"
    assert b"x-agent-affinity" not in said


@pytest.mark.anyio
async def test_a_stream_that_says_something_before_it_has_an_engine_is_learnt_from_all_the_same(
    tmp_path: Path,
) -> None:
    engine = Elastic(2)
    engine.says_early = True
    program = Program(engine, tmp_path)
    rank, _ = await program.turn(SESSIONS[0])
    told = await program.state()
    assert told["home_tokens"][rank] == 1_000
    assert told["pending"] == [0, 0]
