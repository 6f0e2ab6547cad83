"""An application with an engine client as vLLM shapes it; it records what reaches the engines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import httpx
import pytest

import tenuto_vllm
from tenuto_vllm.config import Settings
from tenuto_vllm.retention.hint import Hint, unpack
from tests.loopback import read_body, serving

OURS = "tenuto_vllm.TurnScheduler"
STATE = {
    "blocks": 100,
    "free": 90,
    "evict_first": 5,
    "ordinary": 55,
    "leased": 30,
    "leases": 2,
    "counts": {"leased": 7, "saved_tokens": 640},
}
DONE = b'{"choices":[{"index":0,"finish_reason":"stop"}]}'


class Action(NamedTuple):
    action_id: str
    action_type: str
    action_version: str
    payload: dict[str, Any]


class Envelope(NamedTuple):
    protocol_version: str
    message_id: str
    actions: list[Action]


class HintedApp:
    """Serves what `answer` holds, once its engines have taken a request for each prompt.

    Attributes:
        answer: the headers and the parts of the body of each answer.
        requests: what `process_inputs` was called with, and the headers of the request.
        told: (rank, news) as the engines were told.
        asked: ranks whose state was asked for.
        failure: raised by each call to an engine, if set.
        gate: calls to an engine wait while it is False.
        given: what the application itself gives as `kv_hints`.
    """

    def __init__(self, *, ranks: int = 2, scheduler: object = OURS, has_field: bool = True) -> None:
        self.answer: tuple[dict[str, str], list[bytes]] = ({}, [DONE])
        self.requests: list[tuple[dict[str, Any], dict[str, str], bytes]] = []
        self.told: list[tuple[int, dict[str, Any]]] = []
        self.asked: list[int] = []
        self.failure: Exception | None = None
        self.gate = True
        self.given: object = None
        names = [b"%d" % rank for rank in range(ranks)]
        core = SimpleNamespace(
            core_engines=names,
            lb_engines=[[0, 0, 0.0]] * ranks,
            engine_inflight=Counter(),
            client_count=1,
            stats_update_address="ipc://x",
            get_core_engine_for_request=lambda one: names[one.data_parallel_rank or 0],
            _call_utility_async=self._call,
        )
        config = SimpleNamespace(
            instance_id="abcde",
            parallel_config=SimpleNamespace(
                data_parallel_size=ranks, data_parallel_size_local=ranks, local_engines_only=False
            ),
            cache_config=SimpleNamespace(num_gpu_blocks=100, block_size=16),
            scheduler_config=SimpleNamespace(scheduler_cls=scheduler),
        )
        inputs = SimpleNamespace(process_inputs=self._inputs if has_field else self._old_inputs)
        client = SimpleNamespace(engine_core=core, vllm_config=config, input_processor=inputs)
        client.output_processor = SimpleNamespace(get_num_unfinished_requests=lambda: 0)
        self.state = SimpleNamespace(engine_client=client)
        self._has_field = has_field
        self._headers: dict[str, str] = {}
        self._body = b""

    def _inputs(
        self, request_id: str, session_id: str | None = None, kv_hints: object = None
    ) -> Any:
        self.requests.append(({"kv_hints": kv_hints}, self._headers, self._body))
        return SimpleNamespace(data_parallel_rank=None, prompt_token_ids=[1] * 64)

    def _old_inputs(self, request_id: str, session_id: str | None = None) -> Any:
        return self._inputs(request_id, session_id)

    async def _call(self, method: str, *args: str, engine: bytes) -> Any:
        # Opened from another thread than that of the event loop.
        while not self.gate:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        if method == "tenuto_told":
            self.told.append((int(engine), json.loads(args[0])))
        else:
            self.asked.append(int(engine))
        if self.failure is not None:
            raise self.failure
        return STATE

    async def _prompt(self, number: int) -> None:
        client = self.state.engine_client
        more = {"kv_hints": self.given} if self._has_field else {}
        request = client.input_processor.process_inputs(request_id=str(number), **more)
        client.engine_core.get_core_engine_for_request(request)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self._body = await read_body(receive)
        # Of two of one name the first counts, as in vLLM.
        self._headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in reversed(scope["headers"])
        }
        if scope["method"] == "POST":
            prompts = int(self._headers.get("x-prompts", "1"))
            # vLLM makes the requests of a list of prompts in tasks of their own.
            tasks = [asyncio.create_task(self._prompt(number)) for number in range(prompts)]
            await asyncio.gather(*tasks)
        headers, parts = self.answer
        named = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": named})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    @property
    def hints(self) -> list[Hint | None]:
        """The hint that each request of the engine carried in `kv_hints`."""
        return [_hint_in(given["kv_hints"]) for given, _, _ in self.requests]

    def turns(self) -> list[list[Any]]:
        """The turns that any engine was told, session ids without their tenant's tag."""
        told = [turn for _, news in self.told for turn in news["turns"]]
        return [[turn[0].partition(".")[2], *turn[1:]] for turn in told]


def _hint_in(envelope: Any) -> Hint | None:
    if envelope is None:
        return None
    assert [action.action_type for action in envelope.actions] == ["tenuto.turn"]
    return unpack(envelope.actions[0].payload["hint"])


@contextlib.contextmanager
def hinted(app: HintedApp, **settings: Any) -> Iterator[httpx.Client]:
    """Serve the app behind the middleware, as Starlette puts it there, and yield a client."""
    module = ModuleType("vllm.v1.kv_hints")
    module.KvHintAction, module.KvHintsEnvelope = Action, Envelope  # type: ignore[attr-defined]
    middleware = tenuto_vllm.TurnMiddleware(app, settings=Settings(**settings))

    async def served(scope: Any, receive: Any, send: Any) -> None:
        await middleware({**scope, "app": app}, receive, send)

    with (
        pytest.MonkeyPatch.context() as patch,
        serving(served) as url,
        httpx.Client(base_url=url, timeout=10) as http,
    ):
        patch.setitem(sys.modules, module.__name__, module)
        yield http
