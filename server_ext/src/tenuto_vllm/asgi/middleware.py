"""`TurnMiddleware`: give every marked request its rank, and say where it went.

    vllm serve MODEL --data-parallel-size 2 --middleware tenuto_vllm.TurnMiddleware

It keeps no session: the home of a session is in the token that the client echoes, so
that any number of API processes place alike. Whatever goes wrong in here costs the
placement, never the request.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from typing import Any

from tenuto_vllm import _wire
from tenuto_vllm.asgi.in_flight import InFlight
from tenuto_vllm.asgi.responder import Responder, Visit
from tenuto_vllm.asgi.routes import is_generation, path_of
from tenuto_vllm.asgi.types import App, Message, Receive, Scope, Send
from tenuto_vllm.config import Settings
from tenuto_vllm.engine import seam
from tenuto_vllm.engine.view import VllmView
from tenuto_vllm.metrics import STATUS_PATH, Counters
from tenuto_vllm.model import EngineView, Placement
from tenuto_vllm.placement import Recent, home_of, place

RANK = b"x-data-parallel-rank"
_ASCII_RANK = re.compile(rb"[0-9]{1,5}")


class TurnMiddleware:
    """Pure ASGI; holds this process's counters and nothing of any request.

    | request | what happens |
    |---|---|
    | lifespan, websocket | passed on untouched |
    | any HTTP request | its rank header is stripped, all else is passed on untouched |
    | a model call with a valid session id | placed, and its answer says where |
    | a model call with a trusted rank | sent there |
    | `GET /tenuto/status` | this process's counters, as JSON |
    """

    def __init__(self, app: App, *, settings: Settings | None = None) -> None:
        self._app = app
        self._settings = settings or Settings.from_env(os.environ)
        self._counters = Counters()
        self._in_flight = InFlight()
        self._recent = Recent()
        self._vllm: VllmView | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope; errors of the wrapped application pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if path_of(scope) == STATUS_PATH and scope["method"] == "GET":
            await _answer_json(send, self._status(scope))
            return
        scope, trusted = self._without_rank(scope)
        visit = self._plan(scope, trusted) if is_generation(scope) else None
        if visit is None:
            if trusted is not None:
                scope = _with_rank(scope, trusted)
            with seam.own_box(scope):
                await self._app(scope, receive, send)
            return
        with self._in_flight.on(visit.placement.rank), seam.request_box(visit.scope) as box:
            box.wanted = visit.placement.rank
            responder = Responder(visit, box, send, self._served)
            await self._app(visit.scope, receive, responder.send)

    def _without_rank(self, scope: Scope) -> tuple[Scope, int | None]:
        """Take the rank from outside off a request; return it when it is to be trusted."""
        given = [value for name, value in scope["headers"] if name == RANK]
        if not given:
            return scope, None
        kept = [header for header in scope["headers"] if header[0] != RANK]
        scope = {**scope, "headers": kept}
        try:
            return scope, self._trusted(given, scope)
        except Exception:
            self._counters.drop("placement")
            return scope, None

    def _trusted(self, given: list[bytes], scope: Scope) -> int | None:
        """Return a rank that is allowed, single, in ASCII digits, and one the engine has."""
        if not self._settings.trust_rank or len(given) != 1:
            return None
        view = self._view(scope)
        if view is None or _ASCII_RANK.fullmatch(given[0]) is None:
            return None
        rank = int(given[0])
        return rank if rank < view.ranks() else None

    def _plan(self, scope: Scope, trusted: int | None) -> Visit | None:
        """Place a request, or return None to leave it to vLLM."""
        try:
            decoded = _wire.decode(scope["headers"])
            for kind in decoded.dropped:
                self._counters.drop(kind)
            view = self._view(scope)
            if view is None:
                return None
            ranks = view.ranks()
            placement = Placement(trusted, "unkeyed") if trusted is not None else None
            markers, token = decoded.markers, None
            if markers is not None:
                instance = view.instance()
                placement = (
                    placement
                    or home_of(markers, instance, ranks)
                    or self._choose(markers, view, ranks)
                )
                token = _wire.affinity_token(instance, placement.rank)
            if placement is None:
                return None
            self._counters.placed[placement.why] += 1
            if ranks > 1:
                scope = _with_rank(scope, placement.rank)
            return Visit(scope, placement, token)
        except Exception:
            self._counters.drop("placement")
            return None

    def _choose(self, markers: _wire.Markers, view: EngineView, ranks: int) -> Placement:
        if markers.turn.n != 0 or ranks == 1:
            # Load has no say then, so it is not read.
            return place(markers, (0.0,) * ranks, (0.0,) * ranks)
        recent = self._recent.at(time.monotonic(), ranks)
        return place(markers, self._loads(view, ranks), recent)

    def _served(self, placement: Placement) -> None:
        """Count a session that has begun; an attempt that failed has not."""
        if placement.why == "first":
            now_s, ranks = time.monotonic(), max(placement.rank + 1, len(self._recent.counts))
            self._recent = self._recent.placed(placement.rank, now_s, ranks)

    def _loads(self, view: EngineView, ranks: int) -> Sequence[float]:
        """Return the engine's load, no less than what this process has just sent.

        A load that cannot be had, or not for each rank (as while an engine grows), is
        none: it only prefers.
        """
        try:
            known = view.loads()
        except Exception:
            self._counters.drop("load")
            known = ()
        if len(known) == ranks and not self._in_flight:
            return known
        sent = self._in_flight.counts(ranks)
        if len(known) != ranks:
            return [float(own) for own in sent]
        return [max(load, own) for load, own in zip(known, sent, strict=True)]

    def _view(self, scope: Scope) -> EngineView | None:
        state = getattr(scope.get("app"), "state", None)
        view: EngineView | None = getattr(state, "tenuto_view", None)
        client = getattr(state, "engine_client", None)
        if view is not None or client is None:
            return view
        if self._vllm is None or self._vllm.engine_client is not client:
            self._vllm = VllmView(client)
            seam.install(client)
        return self._vllm

    def _status(self, scope: Scope) -> dict[str, Any]:
        try:
            view = self._view(scope)
            ranks = view.ranks() if view is not None else 0
        except Exception:
            ranks = 0
        return {
            "protocol": 1,
            "process": os.getpid(),
            "ranks": ranks,
            "in_flight": self._in_flight.counts(ranks),
            "placed": dict(self._counters.placed),
            "dropped": dict(self._counters.dropped),
        }


def _with_rank(scope: Scope, rank: int) -> Scope:
    return {**scope, "headers": [*scope["headers"], (RANK, b"%d" % rank)]}


async def _answer_json(send: Send, value: object) -> None:
    start: Message = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", b"application/json")],
    }
    await send(start)
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})
