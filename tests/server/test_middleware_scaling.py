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
        box = scope[seam.SCOPE_KEY]
        wanted = dict(scope["headers"]).get(b"x-data-parallel-rank", b"0")
        box.served, box.prompt_tokens = int(wanted), 1_000
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await self.hold.wait()
        await send({"type": "http.response.body", "body": b"{}"})


async def nothing() -> Message:
    """Receive an empty body."""
    return {"type": "http.request", "body": b"", "more_body": False}


class Program:
    """Sessions that echo their tokens."""

    def __init__(self, engine: Elastic, folder: Path, *, endpoint: str = "") -> None:
        self._app = tenuto_vllm.TurnMiddleware(
            engine, settings=Settings(state_dir=folder, endpoint=endpoint)
        )
        self._engine = engine
        self.tokens: dict[str, str] = {}
        self.turns: dict[str, int] = {}

    async def turn(self, session: str) -> tuple[int, str]:
        """Make the session's next call; return its rank and why it went there."""
        n = self.turns[session] = self.turns.get(session, -1) + 1
        headers = [(b"x-session-id", session.encode()), (b"x-agent-turn", b"n=%d" % n)]
        if session in self.tokens:
            headers.append((b"x-agent-affinity", self.tokens[session].encode()))
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers}
        said: dict[bytes, bytes] = {}

        async def send(message: Message) -> None:
            said.update(message.get("headers", ()))

        await self._app({**scope, "app": self._engine}, nothing, send)
        self.tokens[session] = said[b"x-agent-affinity"].decode()
        parts = dict(part.split("=") for part in said[b"x-agent-served"].decode().split(", "))
        return int(parts["rank"]), parts["why"]

    async def state(self) -> Any:
        """Return what the server tells operators."""
        body = b""

        async def send(message: Message) -> None:
            nonlocal body
            body += message.get("body", b"")

        scope = {"type": "http", "method": "GET", "path": "/tenuto/state", "headers": []}
        await self._app({**scope, "query_string": b"", "app": self._engine}, nothing, send)
        return json.loads(body)

    async def round(self, sessions: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Make one call of each session, one after another."""
        return {session: await self.turn(session) for session in sessions}


SESSIONS = [f"session-{n:04}" for n in range(80)]


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
    assert later == {session: (rank, "home") for session, (rank, _) in after.items()}


@pytest.mark.anyio
async def test_adding_a_rank_moves_nobody_and_it_takes_the_new_sessions(tmp_path: Path) -> None:
    engine = Elastic(3)
    program = Program(engine, tmp_path)
    before = await program.round(SESSIONS)
    engine.count = 4
    after = await program.round(SESSIONS)
    assert after == {session: (rank, "home") for session, (rank, _) in before.items()}
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
    assert after == {session: (rank, "home") for session, (rank, _) in during.items()}


@pytest.mark.anyio
async def test_where_every_rank_is_unfit_sessions_stay_at_home(tmp_path: Path) -> None:
    engine = Elastic(2)
    program = Program(engine, tmp_path)
    before = await program.round(SESSIONS[:4])
    engine.unfit = frozenset({0, 1})
    during = await program.round(SESSIONS[:4])
    assert during == {session: (rank, "home") for session, (rank, _) in before.items()}


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
