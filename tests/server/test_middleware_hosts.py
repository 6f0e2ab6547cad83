"""The middleware in front of applications that are not what it expects."""

from __future__ import annotations

import asyncio
import copy
import logging
import socket
from collections import Counter
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette._utils import get_route_path

import tenuto_vllm
from tenuto_vllm.config import Settings
from tests.loopback import eventually, serving

SID = "0123456789abcdef"


class Foreign:
    """An ASGI app that shows what reached it; `state` is what a Starlette app would hold."""

    def __init__(self, **state: Any) -> None:
        self.state = SimpleNamespace(**state)
        self.seen: list[tuple[Any, Any, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append((scope, receive, send))
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


async def call(app: Any, scope: dict[str, Any], **settings: Any) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    middleware = tenuto_vllm.TurnMiddleware(app, settings=Settings(**settings))
    await middleware(scope, receive, send)
    if app.seen:
        assert app.seen[-1][1] is receive
    return sent


def http_scope(
    path: str = "/v1/chat/completions", method: str = "POST", **more: Any
) -> dict[str, Any]:
    headers = [(b"x-session-id", SID.encode()), (b"x-data-parallel-rank", b"1")]
    return {"type": "http", "method": method, "path": path, "headers": headers, **more}


@pytest.mark.parametrize(
    "scope",
    [
        {"type": "websocket", "path": "/v1/realtime", "headers": [(b"x-data-parallel-rank", b"1")]},
        http_scope("/v1/models", "GET"),
        http_scope("/v1/embeddings"),
        http_scope("/v1/chat/completions", "OPTIONS"),
        http_scope("/v1/responses/resp_1", "GET"),
        http_scope("/tenuto/nowhere", "POST"),
    ],
    ids=lambda scope: f"{scope.get('method', scope['type'])} {scope['path']}",
)
def test_lifespan_websockets_and_other_paths_reach_the_app_as_they_came(scope: Any) -> None:
    app = Foreign()
    before = copy.deepcopy(scope)
    asyncio.run(call(app, scope))
    reached = app.seen[0][0]
    assert scope == before
    if scope["type"] == "http":
        # A rank from outside is taken away wherever it goes.
        before["headers"].remove((b"x-data-parallel-rank", b"1"))
    assert reached == before


def test_lifespan_and_requests_pass_to_an_app_without_an_engine() -> None:
    app = Foreign()
    with serving(tenuto_vllm.TurnMiddleware(app)) as url:
        answer = httpx.post(f"{url}/v1/chat/completions", headers={"X-Session-ID": SID})
        assert answer.status_code == 200
        assert "X-Agent-Served" not in answer.headers
        assert httpx.get(f"{url}/tenuto/state").json()["ranks"] == 0
    assert [scope["type"] for scope, _, _ in app.seen] == ["lifespan", "http"]


class Broken:
    """An engine view of which one question fails."""

    def __init__(self, question: str) -> None:
        self._question = question

    def __getattr__(self, name: str) -> Any:
        if name == self._question:
            raise RuntimeError("the engine is gone")
        return {"ranks": lambda: 2, "instance": lambda: "here", "loads": lambda: [0.0, 0.0]}[name]


@pytest.mark.parametrize("question", ["ranks", "instance"])
def test_an_engine_that_cannot_be_asked_costs_the_placement_and_not_the_request(
    question: str,
) -> None:
    app = Foreign(tenuto_view=Broken(question))
    scope = http_scope(app=app)
    scope["headers"].append((b"x-agent-turn", b"n=0"))
    start, body = asyncio.run(call(app, scope))
    assert (start["status"], start["headers"], body["body"]) == (200, [], b"{}")
    assert not any(name == b"x-data-parallel-rank" for name, _ in app.seen[0][0]["headers"])


def test_a_trusted_rank_stays_when_the_engine_cannot_be_asked_for_its_name() -> None:
    app = Foreign(tenuto_view=Broken("instance"))
    asyncio.run(call(app, http_scope(app=app), trust_rank=True))
    assert (b"x-data-parallel-rank", b"1") in app.seen[0][0]["headers"]


def test_a_load_that_cannot_be_read_is_no_load_and_the_session_is_placed_all_the_same() -> None:
    app = Foreign(tenuto_view=Broken("loads"))
    scope = http_scope(app=app)
    scope["headers"].append((b"x-agent-turn", b"n=0"))
    start, _ = asyncio.run(call(app, scope))
    assert dict(start["headers"])[b"x-agent-served"].endswith(b"why=first")


def test_a_load_of_too_few_ranks_as_while_an_engine_grows_is_no_load() -> None:
    view = SimpleNamespace(ranks=lambda: 3, instance=lambda: "here", loads=lambda: [0.0, 5.0])
    app = Foreign(tenuto_view=view)
    scope = http_scope(app=app)
    scope["headers"].append((b"x-agent-turn", b"n=0"))
    start, _ = asyncio.run(call(app, scope))
    assert dict(start["headers"])[b"x-agent-served"].endswith(b"why=first")


def test_a_single_rank_engine_answers_first_turns_without_being_asked_for_its_load() -> None:
    core = SimpleNamespace(core_engines=[b"0"], stats_update_address=None)
    config = SimpleNamespace(instance_id="abcde")
    app = Foreign(engine_client=SimpleNamespace(engine_core=core, vllm_config=config))
    scope = http_scope(app=app)
    scope["headers"].append((b"x-agent-turn", b"n=0"))
    start, _ = asyncio.run(call(app, scope))
    assert dict(start["headers"])[b"x-agent-served"] == b"rank=0, home=0, why=first"
    assert not any(name == b"x-data-parallel-rank" for name, _ in app.seen[0][0]["headers"])


def test_an_engine_client_of_another_shape_costs_the_placement_and_not_the_request() -> None:
    app = Foreign(engine_client=object())
    start, _ = asyncio.run(call(app, http_scope(app=app)))
    assert start["headers"] == []


def test_a_server_under_a_root_path_is_placed_too() -> None:
    app = Foreign(tenuto_view=Broken("nothing"))
    start, _ = asyncio.run(call(app, http_scope("/api/v1/completions", app=app, root_path="/api")))
    assert dict(start["headers"])[b"x-agent-served"].endswith(b"why=hash")


@pytest.mark.parametrize("root", ["/", "/v", "/v1/chat"])
def test_a_root_path_counts_only_up_to_a_slash_as_starlette_routes_it(root: str) -> None:
    app = Foreign(tenuto_view=Broken("nothing"))
    start, _ = asyncio.run(call(app, http_scope(app=app, root_path=root)))
    is_placed = get_route_path(http_scope(root_path=root)) == "/v1/chat/completions"
    assert (b"x-agent-served" in dict(start["headers"])) == is_placed
    ranks = [value for name, value in app.seen[0][0]["headers"] if name == b"x-data-parallel-rank"]
    assert len(ranks) == is_placed


def test_a_log_filter_that_raises_costs_nobody_a_request() -> None:
    class Raising(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise ValueError("of the filter")

    app = Foreign(tenuto_view=Broken("ranks"))
    log, raising = logging.getLogger("tenuto_vllm"), Raising()
    log.addFilter(raising)
    try:
        start, _ = asyncio.run(call(app, http_scope(app=app)))
    finally:
        log.removeFilter(raising)
    assert start["status"] == 200


class ChoosingApp:
    """An app whose engine chooses a rank for each request, as vLLM's does, and tells it."""

    def __init__(self) -> None:
        core = SimpleNamespace(
            core_engines=[b"0", b"1"],
            lb_engines=[[0, 0, 0.0]] * 2,
            engine_inflight=Counter(),
            client_count=1,
            stats_update_address="ipc://x",
            get_core_engine_for_request=lambda request: request.data_parallel_rank or b"0",
        )
        parallel = SimpleNamespace(data_parallel_size=2, data_parallel_size_local=2)
        config = SimpleNamespace(instance_id="abcde", parallel_config=parallel)
        client = SimpleNamespace(engine_core=core, vllm_config=config)
        self.state = SimpleNamespace(engine_client=client)
        self.asked: list[int | None] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        more = True
        while more:
            more = (await receive()).get("more_body", False)
        request = SimpleNamespace(data_parallel_rank=None)
        self.state.engine_client.engine_core.get_core_engine_for_request(request)
        self.asked.append(request.data_parallel_rank)
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
        )
        await send({"type": "http.response.body", "body": b"{}"})


def with_app(app: Any, **settings: Any) -> Any:
    """Put the middleware in front of an app as Starlette does, which names itself in the scope."""
    middleware = tenuto_vllm.TurnMiddleware(app, settings=Settings(**settings))

    async def served(scope: Any, receive: Any, send: Any) -> None:
        await middleware({**scope, "app": app}, receive, send)

    return served


def test_a_request_never_finds_the_rank_of_the_one_before_it_on_its_connection() -> None:
    app = ChoosingApp()
    marked = f"X-Session-ID: {SID}\r\nX-Agent-Turn: n=3\r\n"
    # A body beyond uvicorn's 64 kB window, and requests sent before the last is answered,
    # start the next one in the context of the one before.
    requests = [(marked, b"x" * 300_000), ("", b""), (marked, b""), ("", b"")]
    with serving(with_app(app)) as url:
        host, port = urlsplit(url).hostname, urlsplit(url).port
        with socket.create_connection((host, port), timeout=10) as connection:
            for headers, body in requests:
                head = f"POST /v1/responses HTTP/1.1\r\nHost: x\r\n{headers}"
                connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert eventually(lambda: len(app.asked) == len(requests))
    assert [rank is not None for rank in app.asked] == [True, False, True, False]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_a_trusted_rank_reaches_the_engine_on_routes_that_read_no_header(path: str) -> None:
    app = ChoosingApp()
    with serving(with_app(app, trust_rank=True)) as url:
        for rank in ("1", "0", "1"):
            httpx.post(url + path, headers={"X-data-parallel-rank": rank})
    assert app.asked == [1, 0, 1]


def test_an_error_of_the_application_passes_through_and_the_load_returns() -> None:
    class Failing(Foreign):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            self.seen.append((scope, receive, send))
            raise ValueError("of the application")

    app = Failing(tenuto_view=Broken("nothing"))
    middleware = tenuto_vllm.TurnMiddleware(app)

    async def nothing(*_: Any) -> Any:
        return None

    with pytest.raises(ValueError, match="of the application"):
        asyncio.run(middleware(http_scope(app=app), nothing, nothing))
    assert list(middleware._placer.traffic.in_flight.counts(2)) == [0, 0]
