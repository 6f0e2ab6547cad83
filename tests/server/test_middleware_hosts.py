"""The middleware in front of applications that are not what it expects."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import tenuto_vllm
from tests.loopback import serving

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


async def call(app: Any, scope: dict[str, Any]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await tenuto_vllm.TurnMiddleware(app)(scope, receive, send)
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
        http_scope("/tenuto/status", "POST"),
    ],
    ids=lambda scope: f"{scope.get('method', scope['type'])} {scope['path']}",
)
def test_lifespan_websockets_and_other_paths_reach_the_app_as_they_came(scope: Any) -> None:
    app = Foreign()
    asyncio.run(call(app, scope))
    assert app.seen[0][0] is scope


def test_lifespan_and_requests_pass_to_an_app_without_an_engine() -> None:
    app = Foreign()
    with serving(tenuto_vllm.TurnMiddleware(app)) as url:
        answer = httpx.post(f"{url}/v1/chat/completions", headers={"X-Session-ID": SID})
        assert answer.status_code == 200
        assert "X-Agent-Served" not in answer.headers
        assert httpx.get(f"{url}/tenuto/status").json()["ranks"] == 0
    assert [scope["type"] for scope, _, _ in app.seen] == ["lifespan", "http"]


class Broken:
    """An engine view of which one question fails."""

    def __init__(self, question: str) -> None:
        self._question = question

    def __getattr__(self, name: str) -> Any:
        if name == self._question:
            raise RuntimeError("the engine is gone")
        return {"ranks": lambda: 2, "instance": lambda: "here", "loads": lambda: [0.0, 0.0]}[name]


@pytest.mark.parametrize("question", ["ranks", "instance", "loads"])
def test_an_engine_that_cannot_be_asked_costs_the_placement_and_not_the_request(
    question: str,
) -> None:
    app = Foreign(tenuto_view=Broken(question))
    scope = http_scope(app=app)
    scope["headers"].append((b"x-agent-turn", b"n=0"))
    start, body = asyncio.run(call(app, scope))
    assert (start["status"], start["headers"], body["body"]) == (200, [], b"{}")
    assert not any(name == b"x-data-parallel-rank" for name, _ in app.seen[0][0]["headers"])


def test_an_engine_client_of_another_shape_costs_the_placement_and_not_the_request() -> None:
    app = Foreign(engine_client=object())
    start, _ = asyncio.run(call(app, http_scope(app=app)))
    assert start["headers"] == []


def test_a_server_under_a_root_path_is_placed_too() -> None:
    app = Foreign(tenuto_view=Broken("nothing"))
    start, _ = asyncio.run(call(app, http_scope("/api/v1/completions", app=app, root_path="/api")))
    assert dict(start["headers"])[b"x-agent-served"].endswith(b"why=hash")


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
    assert list(middleware._in_flight.counts(2)) == [0, 0]
