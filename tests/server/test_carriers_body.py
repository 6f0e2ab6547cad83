"""A body that is read for its session reaches the application as it came."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import tenuto_vllm
from tenuto_vllm.asgi import read_ahead
from tenuto_vllm.placement import by_hash
from tests.loopback import eventually, serving

JSON = (b"content-type", b"application/json")
RANK = b"x-data-parallel-rank"
MARKED = json.dumps({"messages": [], "session_id": "session-a"}).encode()
HOME = b"%d" % by_hash("session-a", 2)


class App:
    """Reads a request to its end and answers with its length; keeps what reached it."""

    def __init__(self) -> None:
        view = SimpleNamespace(ranks=lambda: 2, instance=lambda: "here", loads=lambda: [0.0, 0.0])
        self.state = SimpleNamespace(tenuto_view=view)
        self.middleware = tenuto_vllm.TurnMiddleware(self)
        self.got: list[dict[str, Any]] = []
        self.ranks: list[bytes | None] = []

    def behind_the_middleware(self) -> Any:
        async def served(scope: Any, receive: Any, send: Any) -> None:
            await self.middleware({**scope, "app": self}, receive, send)

        return served

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        size, more = 0, True
        while more:
            self.got.append(await receive())
            size += len(self.got[-1].get("body", b""))
            more = self.got[-1].get("more_body", False)
        if self.got[-1]["type"] == "http.disconnect":
            return
        self.ranks.append(dict(scope["headers"]).get(RANK))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % size})

    def in_flight(self) -> list[int]:
        return list(self.middleware._placer.traffic.in_flight.counts(2))


def scope(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [JSON, *headers],
    }


def part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def replay(app: App, messages: list[dict[str, Any]], *headers: tuple[bytes, bytes]) -> list[Any]:
    """Give an application these messages; return what it sent."""
    sent: list[Any] = []
    left: Iterator[dict[str, Any]] = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(left)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app.behind_the_middleware()(scope(*headers), receive, send))
    return sent


GONE = {"type": "http.disconnect"}
MESSAGES: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "whole": ([part(MARKED)], True),
    "a byte at a time": ([*(part(bytes([b]), more=True) for b in MARKED), part(b"")], True),
    "a message without a body": ([{"type": "http.request", "more_body": True}, part(MARKED)], True),
    "no body at all": ([{"type": "http.request"}], False),
    "a client that leaves in the middle": ([part(MARKED[:9], more=True), GONE], False),
    "not JSON": ([part(b'{"session_id": "session-a"')], False),
    "not UTF-8": ([part(b'{"session_id": "\xff"}')], False),
    "longer than is read": ([part(MARKED, more=True), part(b" " * 200)], False),
    "long from the start": ([part(b" " * 300 + MARKED)], False),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_application_gets_every_message_as_it_came(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "MOST_BYTES", 200)
    messages, is_placed = MESSAGES[name]
    app = App()
    sent = replay(app, [dict(message) for message in messages])
    assert app.got == messages
    assert app.in_flight() == [0, 0]
    if messages[-1] is not GONE:
        assert app.ranks == [HOME if is_placed else None]
        assert (sent[0]["headers"] != []) is is_placed


def test_baggage_counts_even_when_the_body_is_too_long_to_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_ahead, "MOST_BYTES", 200)
    app = App()
    replay(app, [part(b"x" * 300)], (b"baggage", b"session.id=session-a"))
    assert app.ranks == [HOME]


def test_after_the_body_the_application_still_hears_that_its_client_left() -> None:
    class Listening(App):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await super().__call__(scope, receive, send)
            self.got.append(await receive())

    app = Listening()
    replay(app, [part(MARKED), GONE])
    assert app.got == [part(MARKED), GONE]


def test_a_read_that_is_given_up_loses_nothing_of_the_body() -> None:
    class Impatient(App):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receive(), 0.01)
            go_on.set()
            await super().__call__(scope, receive, send)

    app, go_on = Impatient(), asyncio.Event()
    parts = [part(MARKED[:9], more=True), part(MARKED[9:])]
    left = parts.copy()

    async def receive() -> dict[str, Any]:
        if len(left) == 1:
            await go_on.wait()
        return left.pop(0)

    async def send(message: Any) -> None:
        pass

    asyncio.run(app.behind_the_middleware()(scope(), receive, send))
    assert app.got == parts
    assert app.ranks == [HOME]


def test_two_tasks_that_read_at_once_share_the_messages_between_them() -> None:
    parts = [part(MARKED[:9], more=True), part(MARKED[9:])]
    arriving: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    class Doubled(App):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            both = asyncio.gather(receive(), receive())
            await asyncio.sleep(0)
            for one in parts:
                arriving.put_nowait(one)
            self.got += await asyncio.wait_for(both, 5)

    app = Doubled()
    asyncio.run(app.behind_the_middleware()(scope(), arriving.get, arriving.put))
    assert app.got == parts


def test_a_task_that_reads_on_after_the_answer_counts_for_no_rank() -> None:
    class Early(App):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            self.receive = receive

    app = Early()

    async def visit() -> None:
        async def receive() -> dict[str, Any]:
            return part(MARKED)

        async def send(message: Any) -> None:
            pass

        await app.behind_the_middleware()(scope(), receive, send)
        assert await app.receive() == part(MARKED)

    asyncio.run(visit())
    assert app.in_flight() == [0, 0]


def test_an_error_of_the_application_after_the_body_gives_the_load_back() -> None:
    class Failing(App):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await receive()
            assert sum(self.in_flight()) == 1
            raise ValueError("of the application")

    app = Failing()
    with pytest.raises(ValueError, match="of the application"):
        replay(app, [part(MARKED)])
    assert app.in_flight() == [0, 0]


@pytest.mark.parametrize(
    "headers",
    [(JSON, (b"x-session-id", b"session-b")), (JSON, (b"thread-id", b"session-b")), ()],
    ids=["our header", "an alias", "no JSON"],
)
def test_a_body_that_need_not_be_read_is_left_to_the_application(headers: Any) -> None:
    app, seen = App(), []

    async def looking(scope: Any, receive: Any, send: Any) -> None:
        seen.append(receive)

    app.middleware = tenuto_vllm.TurnMiddleware(looking)

    async def receive() -> dict[str, Any]:
        return part(MARKED)

    asyncio.run(
        app.behind_the_middleware()({**scope(), "headers": list(headers)}, receive, receive)
    )
    assert seen == [receive]


def test_a_body_in_many_chunks_is_placed_and_arrives_whole() -> None:
    app = App()
    body = json.dumps({"messages": ["x" * 600_000], "session_id": "session-a"}).encode()
    pieces = [body[at : at + 50_000] for at in range(0, len(body), 50_000)]
    with serving(app.behind_the_middleware()) as url:
        answer = httpx.post(
            f"{url}/v1/chat/completions",
            content=iter(pieces),
            headers={"Content-Type": "application/json"},
        )
    assert answer.text == str(len(body))
    assert answer.headers["X-Agent-Served"].endswith("why=hash")
    assert b"".join(message["body"] for message in app.got) == body


def head(url: str, length: int, *more: str) -> tuple[socket.socket, bytes]:
    where = urlsplit(url)
    kind = "Content-Type: application/json"
    lines = ["POST /v1/chat/completions HTTP/1.1", "Host: x", kind, f"Content-Length: {length}"]
    lines += more
    connection = socket.create_connection((where.hostname, where.port), timeout=10)
    return connection, ("\r\n".join(lines) + "\r\n\r\n").encode()


def test_a_client_that_waits_for_100_continue_is_told_to_go_on() -> None:
    app = App()
    with serving(app.behind_the_middleware()) as url:
        connection, said = head(url, len(MARKED), "Expect: 100-continue", "Connection: close")
        with connection:
            connection.sendall(said)
            assert connection.recv(4096).startswith(b"HTTP/1.1 100")
            connection.sendall(MARKED)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"why=hash" in answer


def test_a_client_that_leaves_in_the_middle_of_its_body_holds_nothing_up() -> None:
    app = App()
    with serving(app.behind_the_middleware()) as url:
        connection, said = head(url, 1000)
        with connection:
            connection.sendall(said + MARKED)
        assert eventually(lambda: app.got[-1:] == [GONE])
        answer = httpx.post(
            f"{url}/v1/chat/completions",
            content=MARKED,
            headers={"Content-Type": "application/json"},
        )
    assert answer.headers["X-Agent-Served"].endswith("why=hash")
    assert app.in_flight() == [0, 0]


def test_a_request_that_is_refused_by_its_headers_is_answered_without_its_body() -> None:
    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    with serving(tenuto_vllm.TurnMiddleware(refusing)) as url:
        connection, said = head(url, 10_000_000)
        with connection:
            connection.sendall(said)
            assert connection.recv(4096).startswith(b"HTTP/1.1 401")
