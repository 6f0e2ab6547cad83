"""`TurnMiddleware`: give every marked request its rank, and say where it went.

    vllm serve MODEL --data-parallel-size 2 --middleware tenuto_vllm.TurnMiddleware

It needs no memory of a session: its home is in the token that the client echoes, so
that any number of API processes place alike. Whatever goes wrong in here costs the
placement, never the request.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from tenuto_vllm import logs
from tenuto_vllm.asgi.admin import PATHS as ADMIN_PATHS
from tenuto_vllm.asgi.admin import AdminDesk
from tenuto_vllm.asgi.call import Call
from tenuto_vllm.asgi.emptied import may_empty, watching
from tenuto_vllm.asgi.leases import Leases
from tenuto_vllm.asgi.news_desk import NewsDesk, OnNews
from tenuto_vllm.asgi.placer import Placer
from tenuto_vllm.asgi.rank_header import put_rank
from tenuto_vllm.asgi.read_ahead import ReadAhead
from tenuto_vllm.asgi.routes import GENERATION_PATHS, path_of
from tenuto_vllm.asgi.types import App, Receive, Scope, Send
from tenuto_vllm.carriers import Said, in_body, in_headers, is_json
from tenuto_vllm.config import ConfigError, Settings, shown
from tenuto_vllm.engine import seam
from tenuto_vllm.metrics import METRICS_PATH, Counters
from tenuto_vllm.news import PATHS as NEWS_PATHS


class TurnMiddleware:
    """Pure ASGI; holds this process's counters and a bounded ledger of what it has seen.

    | request | what happens |
    |---|---|
    | lifespan, websocket | passed on untouched |
    | any HTTP request | its rank header is stripped (not in a dry run), all else untouched |
    | a model call with a session in its headers | placed, and its answer says where |
    | any other model call in JSON | the same, if its body or baggage gives a session |
    | a model call with a trusted rank | sent there |
    | `/metrics` | passed on when the engines' numbers are there, after a second at most |
    | `/tenuto/turns`, `/tenuto/sessions/end` | news: counted, and handed to `on_news` |
    | `/tenuto/state`, `/tenuto/ranks/drain`, `/tenuto/ranks/restore` | for operators |

    Args:
        app: the application behind it.
        settings: from the environment if None. One that cannot be used ends the server as it
            starts (the `startup.failed` of ASGI's lifespan), with a sentence.
        on_news: told what sessions say of their waits and ends, in the event loop.
    """

    def __init__(
        self, app: App, *, settings: Settings | None = None, on_news: OnNews | None = None
    ) -> None:
        self._app = app
        # Servers build their middleware where an exception is no end of theirs, and one that
        # asks for no lifespan goes on with the defaults.
        self._mistake = ""
        try:
            settings = settings or Settings.from_env(os.environ)
        except ConfigError as error:
            self._mistake = f"tenuto: {error}"
            settings = Settings()
            logs.tell(logging.ERROR, "unusable_settings", about=self._mistake)
        logs.set_up(settings.log)
        counters = Counters()
        self._counters = counters
        self._placer = Placer(settings, counters)
        self._leases = Leases(settings, counters, self._placer)
        self._desk = NewsDesk(counters, self._leases, self._placer.hear, on_news)
        self._admin = AdminDesk(settings, self._placer, counters, self._leases)
        logs.tell(logging.INFO, "started", **shown(settings))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope; errors of the wrapped application pass through."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan" and self._mistake:
                await receive()
                await send({"type": "lifespan.startup.failed", "message": self._mistake})
                return
            await self._app(scope, receive, send)
            return
        path = path_of(scope)
        if path in ADMIN_PATHS:
            await self._admin.answer(path, scope, receive, send)
        elif path in NEWS_PATHS:
            await self._desk.answer(path, scope, receive, send)
        else:
            scope, trusted = self._placer.without_rank(scope)
            if scope["method"] == "POST" and path in GENERATION_PATHS:
                await self._generate({**scope}, trusted, receive, send)
            else:
                if trusted is not None:
                    scope = {**scope}
                    put_rank(scope, trusted)
                if scope["method"] == "POST" and may_empty(path, scope):
                    send = watching(path, send, partial(self._placer.emptied, scope))
                elif path == METRICS_PATH:
                    await self._leases.show(scope)
                with seam.own_box(scope):
                    await self._app(scope, receive, send)

    async def _generate(
        self, scope: Scope, trusted: int | None, receive: Receive, send: Send
    ) -> None:
        """Serve one model call; `scope` is its own to write in."""
        headers = scope["headers"]
        with seam.request_box(scope) as box:
            desks = self._placer, self._desk, self._leases
            call = Call(*desks, scope=scope, trusted=trusted, box=box, send=send)
            try:
                said = self._heard(in_headers, headers)
                if said.markers is not None:
                    call.place(said)
                elif is_json(headers):
                    receive = ReadAhead(
                        receive, lambda body: call.place(self._heard(in_body, body, headers))
                    ).receive
                else:
                    call.place(self._heard(in_body, b"", headers))
                await self._app(scope, receive, call.send)
            finally:
                call.end()

    def _heard(self, read: Callable[..., Said], *request: Any) -> Said:
        """Return what a carrier says; one that cannot be read says nothing."""
        try:
            said = read(*request)
            self._counters.hear(said)
        except Exception:
            self._counters.drop("placement")
            return Said(None)
        return said
