"""Real sockets on 127.0.0.1 for tests: ASGI transports buffer and cannot disconnect."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn

try:
    import httpx2 as openai_http
except ImportError:
    # openai before 3 is built on httpx.
    import httpx as openai_http  # type: ignore[no-redef]

__all__ = [
    "DEFAULT_SIGNALS",
    "Arrived",
    "Recorder",
    "eventually",
    "openai_http",
    "read_body",
    "serving",
]

CHAT: dict[str, Any] = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": '{"word":"hi"}'},
        }
    ],
}
COMPLETION: dict[str, Any] = {
    "id": "c",
    "object": "text_completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "text": "hi", "logprobs": None}],
}
RESPONSE: dict[str, Any] = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": '{"word":"hi"}', "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
EMBEDDING: dict[str, Any] = {
    "object": "list",
    "model": "m",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.0]}],
    "usage": {"prompt_tokens": 1, "total_tokens": 1},
}
ANSWERS = (
    ("/chat/completions", CHAT),
    ("/completions", COMPLETION),
    ("/responses", RESPONSE),
    ("/embeddings", EMBEDDING),
)

DEFAULT_SIGNALS = ["env", "--default-signal=INT,TERM,HUP"] if sys.platform == "linux" else []
"""Put before a command: it takes signals that this process was started to ignore, as by nohup."""


@dataclass
class Arrived:
    """One request as it came over the wire."""

    path: str
    headers: dict[str, str]
    body: Any

    @property
    def markers(self) -> dict[str, str]:
        """The headers that are ours, the attempt left out of the turn."""
        return {name: value for name, value in self.headers.items() if name in OURS}

    @property
    def turn(self) -> dict[str, str]:
        """The parts of `X-Agent-Turn`."""
        said = self.headers.get("x-agent-turn", "")
        return dict(part.split("=", 1) for part in said.split(", ") if part)


async def read_body(receive: Any) -> bytes:
    """Return the body of one ASGI request."""
    raw, more = b"", True
    while more:
        message = await receive()
        raw, more = raw + message.get("body", b""), message.get("more_body", False)
    return raw


OURS = (
    "x-session-id",
    "x-session-affinity",
    "x-parent-session-id",
    "x-agent-run-id",
    "x-agent-turn",
    "x-agent-affinity",
)


@dataclass
class Recorder:
    """An OpenAI-shaped ASGI app that records what arrives and answers by a script.

    `script` gives the status of each answer in turn, then 200; a string is a redirect.
    `answer_fields` are further ones of an answer that is no stream.
    """

    script: list[int | str] = field(default_factory=list[int | str])
    answer_headers: dict[str, str] = field(default_factory=dict[str, str])
    answer_fields: dict[str, Any] = field(default_factory=dict[str, Any])
    arrived: list[Arrived] = field(default_factory=list[Arrived])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw = await read_body(receive)
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        body = json.loads(raw) if raw else None
        self.arrived.append(Arrived(scope["path"], headers, body))
        status = self.script.pop(0) if self.script else 200
        answered = [(k.encode(), v.encode()) for k, v in self.answer_headers.items()]
        if isinstance(status, str):
            answered.append((b"location", status.encode()))
            status = 307
        payload, kind = _payload(scope["path"], body, status, self.answer_fields)
        answered.append((b"content-type", kind))
        await send({"type": "http.response.start", "status": status, "headers": answered})
        await send({"type": "http.response.body", "body": payload})


def _payload(path: str, body: Any, status: int, fields: dict[str, Any]) -> tuple[bytes, bytes]:
    if status != 200:
        return b'{"error":{"message":"scripted"}}', b"application/json"
    answer = next(
        (answer for end, answer in ANSWERS if path.endswith(end)), {"data": [], "object": "list"}
    )
    if not (isinstance(body, dict) and body.get("stream")):
        return json.dumps({**answer, **fields}).encode(), b"application/json"
    if answer is RESPONSE:
        events = [
            {
                "type": "response.created",
                "sequence_number": 0,
                "response": {**RESPONSE, "output": []},
            },
            {"type": "response.completed", "sequence_number": 1, "response": RESPONSE},
        ]
        lines = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events]
    else:
        chunk = json.loads(
            json.dumps(answer)
            .replace('"message"', '"delta"')
            .replace("chat.completion", "chat.completion.chunk")
        )
        lines = [f"data: {json.dumps(chunk)}\n\n", "data: [DONE]\n\n"]
    return "".join(lines).encode(), b"text/event-stream"


@contextlib.contextmanager
def serving(app: Callable[..., Any], *, timeout_s: float = 10.0) -> Iterator[str]:
    """Serve an ASGI app on a free port of 127.0.0.1 and yield its root URL."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="auto")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + timeout_s
    while not server.started:
        if time.monotonic() > deadline or not thread.is_alive():
            raise RuntimeError("the loopback server did not start")
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout_s)


def eventually(true: Callable[[], bool], timeout_s: float = 5.0) -> bool:
    """Poll until `true()` holds or the time is up; return whether it held."""
    deadline = time.monotonic() + timeout_s
    while not (held := true()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return held
