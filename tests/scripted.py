"""A server on 127.0.0.1 that answers byte by byte by a script: cuts, stalls, torn chunks."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.loopback import CHAT, Arrived

__all__ = [
    "CUT",
    "DONE",
    "RESET",
    "STALL",
    "Scripted",
    "chat_chunks",
    "failure",
    "found",
    "response_events",
    "scripted",
    "streamed",
]

Step = bytes | Literal["cut", "reset", "stall"]
Answer = list[Step]

CUT: Step = "cut"
RESET: Step = "reset"
STALL: Step = "stall"
DONE = "[DONE]"


def found(body: Any, **headers: str) -> Answer:
    """Return an answer with status 200 and a JSON body; bytes are sent as they are."""
    return failure(200, body, **headers)


def failure(status: int, body: Any = None, **headers: str) -> Answer:
    """Return a JSON answer; `_` in the name of a header stands for `-`."""
    payload = body if isinstance(body, bytes) else json.dumps(body or {"error": {}}).encode()
    return [
        _head(status, content_type="application/json", **headers, content_length=len(payload)),
        payload,
    ]


def streamed(*events: Any, end: Step | None = None, torn: bool = False, **headers: str) -> Answer:
    """Return an event stream in chunked encoding.

    Args:
        events: JSON values, each one event, or text such as `DONE`.
        end: how it ends instead of as it should.
        torn: end in the midst of a chunk.
        headers: more of them.
    """
    head = _head(200, content_type="text/event-stream", transfer_encoding="chunked", **headers)
    sent: Answer = [head, *(_chunk(_event(event)) for event in events)]
    if torn:
        return [*sent, b"fff\r\ndata: {", CUT]
    return [*sent, b"0\r\n\r\n" if end is None else end]


def chat_chunks(*texts: str, finish: str | None = "stop") -> list[dict[str, Any]]:
    """Return chunks of a chat completion, one for each text; the last has the finish reason."""
    head = {key: CHAT[key] for key in ("id", "created", "model")}
    return [
        {
            **head,
            "object": "chat.completion.chunk",
            "choices": [
                {
                    "index": 0,
                    "delta": {"role": "assistant", "content": text},
                    "finish_reason": finish if i == len(texts) - 1 else None,
                }
            ],
        }
        for i, text in enumerate(texts)
    ]


def response_events(*texts: str, end: str | None = "completed") -> list[dict[str, Any]]:
    """Return events of a response that says `texts`, each one delta."""
    answer = {
        **{"id": "r", "object": "response", "created_at": 1, "model": "m", "tools": []},
        **{"parallel_tool_calls": True, "tool_choice": "auto", "output": []},
    }
    part = {"type": "output_text", "text": "", "annotations": []}
    item = {"id": "i", "type": "message", "role": "assistant", "status": "in_progress"}
    place = {"item_id": "i", "output_index": 0, "content_index": 0}
    whole = {**item, "status": "completed", "content": [{**part, "text": "".join(texts)}]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**answer, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **place, "part": part},
        *(
            {"type": "response.output_text.delta", **place, "delta": t, "logprobs": []}
            for t in texts
        ),
    ]
    if end is not None:
        events.append({"type": "response.output_item.done", "output_index": 0, "item": whole})
        ended = {**answer, "status": end, "output": [whole]}
        events.append({"type": f"response.{end}", "response": ended})
    return [{**event, "sequence_number": i} for i, event in enumerate(events)]


def _head(status: int, **headers: Any) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _event(event: Any) -> bytes:
    return f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@dataclass
class Scripted:
    """What the server is to answer, in turn, and what has arrived.

    `left` counts the clients that hung up in the midst of an answer.
    """

    answers: list[Answer] = field(default_factory=list[Answer])
    arrived: list[Arrived] = field(default_factory=list[Arrived])
    left: int = 0


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while self._answer():
                pass

    def _answer(self) -> bool:
        request = self.rfile.readline().decode()
        if not request:
            return False
        headers: dict[str, str] = {}
        while line := self.rfile.readline().strip().decode("latin-1"):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        raw = self.rfile.read(int(headers.get("content-length", 0)))
        script: Scripted = self.server.script  # type: ignore[attr-defined]
        path = request.split()[1].partition("?")[0]
        body = json.loads(raw) if headers.get("content-type") == "application/json" else raw
        script.arrived.append(Arrived(path, headers, body))
        try:
            return all(self._step(step) for step in script.answers.pop(0))
        except ConnectionError:
            script.left += 1
            return False

    def _step(self, step: Step) -> bool:
        if isinstance(step, bytes):
            self.wfile.write(step)
            return True
        if step == STALL:
            self.request.settimeout(30)
            if not self.request.recv(1):
                raise ConnectionError
        elif step == RESET:
            linger = struct.pack("ii", 1, 0)
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        return False


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def shutdown_request(self, request: Any) -> None:
        # The base class ends its side first, and a reset would not be one.
        self.close_request(request)


@contextlib.contextmanager
def scripted(*answers: Answer) -> Iterator[tuple[Scripted, str]]:
    """Serve a script on a free port and yield it with the server's root URL."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        script = server.script = Scripted(list(answers))  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield script, f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
