"""Which of vLLM's own routes leave the caches empty, and when."""

from __future__ import annotations

import anyio
import pytest

from tenuto_vllm.asgi.emptied import may_empty, watching


@pytest.mark.parametrize(
    ("path", "query", "empties"),
    [
        ("/reset_prefix_cache", b"", True),
        ("/release_kv_cache_memory", b"", True),
        ("/pause", b"", True),
        ("/pause", b"mode=wait", True),
        ("/pause", b"mode=keep", False),
        ("/pause", b"clear_cache=false", False),
        ("/pause", b"clear_cache=False&mode=abort", False),
        ("/sleep", b"", True),
        ("/sleep", b"level=2", True),
        ("/sleep", b"level=0", False),
        ("/resume", b"", False),
        ("/wake_up", b"", False),
        ("/v1/completions", b"", False),
        ("/pause", b"\xff=%ff&mode", True),
    ],
)
def test_a_route_is_known_by_its_path_and_its_options(
    path: str, query: bytes, empties: bool
) -> None:
    assert may_empty(path, {"query_string": query}) is empties


@pytest.mark.parametrize(
    ("path", "status", "body", "is_emptied"),
    [
        ("/reset_prefix_cache", 200, b'{"success":true}', True),
        ("/reset_prefix_cache", 200, b'{"success": true}', True),
        ("/reset_prefix_cache", 200, b'{"success":false}', False),
        ("/reset_prefix_cache", 500, b'{"success":true}', False),
        ("/pause", 200, b'{"status":"paused"}', True),
        ("/pause", 400, b'{"error":"no"}', False),
        ("/sleep", 200, b"", True),
    ],
)
def test_caches_are_taken_for_empty_only_where_the_server_says_it_has_done_so(
    path: str, status: int, body: bytes, is_emptied: bool
) -> None:
    sent: list[object] = []
    told: list[bool] = []

    async def send(message: object) -> None:
        sent.append(message)

    messages = [
        {"type": "http.response.start", "status": status, "headers": []},
        {"type": "http.response.body", "body": body, "more_body": True},
        {"type": "http.response.body", "body": b""},
    ]

    async def answer() -> None:
        watched = watching(path, send, lambda: told.append(True))
        for message in messages:
            await watched(message)

    anyio.run(answer)
    assert told == [True] * is_emptied
    assert sent == messages
