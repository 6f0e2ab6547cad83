"""One retry layer: failover with the session kept, a broken stream told, a quota not retried.

python examples/retrying.py
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openai

import tenuto

HEAD = {"id": "c", "created": 1, "model": "m"}


class Server(BaseHTTPRequestHandler):
    """A server that is restarting, has no credit left, or streams half an answer."""

    def do_POST(self) -> None:
        """Answer by what the prompt asks for."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = body["messages"][-1]["content"]
        name: str = self.server.name  # type: ignore[attr-defined]
        session = self.headers.get("x-session-id", "none")[:8]
        print(f"  {name}: {said!r}, session {session}…, turn {self.headers.get('x-agent-turn')}")
        if body.get("stream"):
            self._stream_half()
        elif said == "spend":
            self._json(429, {"error": {"message": "no credit", "code": "insufficient_quota"}})
        elif name == "home" and said == "plan":
            self._json(503, {"error": {"message": "restarting"}})
        else:
            message = {"role": "assistant", "content": f"from {name}"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._json(200, {**HEAD, "object": "chat.completion", "choices": [choice]})

    def _json(self, status: int, body: dict[str, Any]) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _stream_half(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for word in ("Rome ", "was "):
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            chunk = {**HEAD, "object": "chat.completion.chunk", "choices": [choice]}
            self.wfile.write(b"data: %s\n\n" % json.dumps(chunk).encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing on stderr."""


@contextlib.contextmanager
def serving(name: str) -> Iterator[str]:
    """Serve on a free port of this machine and yield the base URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        server.name = name  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def ask(client: openai.OpenAI, said: str, **more: Any) -> Any:
    """Make one chat call."""
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": said}], **more
    )


def main(home: str, spare: str) -> None:
    """Make a call of each kind."""
    plain = openai.OpenAI(base_url=home, api_key="none")
    client = tenuto.retrying(plain, attempts=3, deadline_s=30, base_urls=[spare])
    with plain, tenuto.run() as run, run.agent("planner"):
        for said in ("plan", "go on"):
            print(said)
            print(f"  answered {ask(client, said).choices[0].message.content}")
        print("stream")
        try:
            for chunk in ask(client, "stream", stream=True):
                print(f"  {chunk.choices[0].delta.content}")
        except tenuto.StreamInterrupted as error:
            print(f"  broken off, with {error.text!r} in {len(error.partial)} chunks")
        print("spend")
        try:
            ask(client, "spend")
        except openai.RateLimitError as error:
            print(f"  {error.code}")


if __name__ == "__main__":
    with serving("home") as first, serving("spare") as second:
        main(first, second)
