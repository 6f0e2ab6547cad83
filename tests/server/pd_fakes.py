"""Prefill and decode servers as the application sees them, without a model."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from tenuto_vllm.pd.app import App
from tenuto_vllm.pd.options import Options
from tests.loopback import eventually, read_body, serving

BLOCK = 32
IDENTITY = 'tenuto_transfer_identity{dtype="float32",hash_seed="0",hybrid_off="False"} 1\n'
CACHE = 'vllm:cache_config_info{block_size="32",cache_dtype="auto"} 1.0\n'
SESSION = "session-0001"


class FakeServer:
    """Answers like vLLM with NIXL; a prompt is a list of tokens, and every answer is two of them.

    Attributes:
        role: of the two.
        asked: bodies of the model calls, those of the warm-up left out, with their headers.
        statuses: of the next model calls; 200 once they are used up.
        is_dead: breaks off whatever it is asked.
        is_slow: its model calls do not end, until they are cancelled.
        hangs: how many of the next model calls do not end either; streams have begun by then.
        cancelled: how many of both were.
        warms_up: whether the requests of a warm-up end.
        pause: before the second event of each stream, until it is set.
        streamed: events of the next streams, if others than the usual ones.
        cached: tokens that its answers say were cached.
        back: what its answers give to be fetched.
        transfer: what its answers give to be fetched when they are asked to.
        trial: before the answer to each prompt of a warm-up that is handed over, until it is set.
        tells_length: of its streams.
        writes: tokens that its answers say were written.
        cuts: tokens by which its prompts are shorter than they were sent.
    """

    def __init__(self, role: str, *, version: str = "0.32.0", metrics: str = CACHE + IDENTITY):
        self.role = role
        self.asked: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.warmed: list[dict[str, Any]] = []
        self.statuses: deque[int] = deque()
        self.is_dead = False
        self.is_slow = False
        self.hangs = 0
        self.warms_up = True
        self.cancelled = 0
        self.pause: threading.Event | None = None
        self.streamed: deque[list[bytes]] = deque()
        self.cached = 0
        self.back: dict[str, Any] | None = None
        self.transfer: dict[str, Any] | None = TRANSFER
        self.trial: threading.Event | None = None
        self.tells_length = False
        self.writes = len(WRITTEN)
        self.cuts = 0
        self._facts = {"/version": {"version": version}, "/v1/models": MODELS}
        self.metrics = metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if self.is_dead:
            # The rest never comes: uvicorn closes the connection.
            length = [(b"content-length", b"9")]
            await send({"type": "http.response.start", "status": 200, "headers": length})
            raise RuntimeError("dead")
        path = scope["path"]
        if path == "/metrics":
            await _answer(send, 200, self.metrics.encode())
        elif path in self._facts:
            await _answer(send, 200, json.dumps(self._facts[path]).encode())
        elif path.startswith("/v1/"):
            body = json.loads(await read_body(receive))
            await self._call(path, scope, body, receive, send)
        else:
            await _answer(send, 200, b"{}")

    async def _call(self, path: str, scope: Any, body: Any, receive: Any, send: Any) -> None:
        params = body.get("kv_transfer_params") or {}
        if "Warm up" in str(body.get("prompt")):
            self.warmed.append(body)
            if self.trial is not None and params.get("do_remote_decode"):
                await asyncio.to_thread(self.trial.wait, 20)
            if not self.warms_up:
                # Broken off, and tried again at the next look.
                await _answer(send, 503, b"{}")
                return
        else:
            headers = {k.decode(): v.decode() for k, v in scope["headers"]}
            self.asked.append((body, headers))
            if await self._fails(body, receive, send):
                return
        length = (len(body.get("prompt") or "") or 1) - self.cuts
        used = {
            "prompt_tokens": length,
            "completion_tokens": self.writes,
            "total_tokens": length + self.writes,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }
        if not body.get("stream"):
            kv = self.transfer if params.get("do_remote_decode") else self.back
            choice: dict[str, Any] = {"text": "ab"}
            if body.get("return_token_ids"):
                choice["token_ids"] = WRITTEN
            told = {"id": "c", "choices": [choice], "usage": used, "kv_transfer_params": kv}
            await _answer(send, 200, json.dumps(told).encode())
            return
        events = self.streamed.popleft() if self.streamed else [_event("a"), _event("b")]
        if (body.get("stream_options") or {}).get("include_usage"):
            usage = json.dumps({"choices": [], "usage": used}, separators=(",", ":"))
            events = [*events, b"data: " + usage.encode()]
        length = sum(len(event) + 2 for event in events) + len(b"data: [DONE]\n\n")
        told_length = [(b"content-length", b"%d" % length)] if self.tells_length else []
        headers = [*EVENTS, *told_length]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, event in enumerate([*events, b"data: [DONE]"]):
            if number == 1 and self.pause is not None:
                await asyncio.to_thread(self.pause.wait, 20)
            part = event + b"\n\n"
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _fails(self, body: Any, receive: Any, send: Any) -> bool:
        """Do what is scripted in place of an answer, if anything is."""
        if self.hangs:
            self.hangs -= 1
            await self._hang(body, receive, send)
        elif self.is_slow:
            assert (await receive())["type"] == "http.disconnect"
            self.cancelled += 1
        elif self.statuses and (status := self.statuses.popleft()) != 200:
            await _answer(send, status, b'{"error":{"message":"scripted"}}')
        else:
            return False
        return True

    async def _hang(self, body: Any, receive: Any, send: Any) -> None:
        if body.get("stream"):
            await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
        assert (await receive())["type"] == "http.disconnect"
        self.cancelled += 1


EVENTS = [(b"content-type", b"text/event-stream")]
MODELS = {"data": [{"id": "tiny", "root": "/models/tiny", "max_model_len": 4096}]}
TRANSFER = {"do_remote_prefill": True, "remote_engine_id": "P", "remote_block_ids": [[1, 2]]}
WRITTEN = [7, 8]
FAILED = b'data: {"error":{"message":"the load failed","code":500}}'


def _event(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"text": text}]}).encode()


async def _answer(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Stack:
    """The application in front of fakes, ready to be asked."""

    def __init__(self, url: str, app: App, told: list[Any]) -> None:
        self.url = url
        self.app = app
        self.told = told
        self.client = httpx.Client(base_url=url, trust_env=False, timeout=20)

    def ask(self, tokens: int, turn: str = "", session: str = SESSION, **more: Any) -> Any:
        body = {"model": "tiny", "prompt": list(range(tokens)), "max_tokens": 8, **more}
        headers = {"X-Session-ID": session}
        if turn:
            headers["X-Agent-Turn"] = turn
        return self.client.post("/v1/completions", json=body, headers=headers)

    def metric(self, name: str) -> float:
        for line in self.client.get("/metrics").text.splitlines():
            if line.startswith(name + " "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(name)


@contextmanager
def stack(
    prefills: list[FakeServer], decodes: list[FakeServer], wait: bool = True, **options: Any
) -> Iterator[Stack]:
    told: list[Any] = []
    with ExitStack() as running:
        sources = [running.enter_context(serving(one)) for one in prefills]
        targets = [running.enter_context(serving(one)) for one in decodes]
        options = {"look_every_s": 0.02, **options}
        app = App(Options(sources, targets, **options), told.append, BLOCK)
        url = running.enter_context(serving(app))
        one = Stack(url, app, told)
        running.callback(one.client.close)
        if wait:
            assert eventually(lambda: all(s.node().is_up for s in app.fleet.all()))
        yield one
