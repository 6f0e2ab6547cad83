"""The operators' routes: what the server is doing, and ranks taken out of it and back."""

from __future__ import annotations

import itertools
import json
import logging
import os
from hashlib import blake2b
from hmac import compare_digest
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import parse_qs

from tenuto_vllm import logs
from tenuto_vllm.asgi.answers import answer_json, read_body, refuse, refuse_method
from tenuto_vllm.asgi.bearer import bearer
from tenuto_vllm.asgi.leases import Leases
from tenuto_vllm.asgi.placer import Placer
from tenuto_vllm.asgi.types import Receive, Scope, Send
from tenuto_vllm.config import Settings, shown, variable
from tenuto_vllm.metrics import STATE_PATH, Counters

DRAIN_PATH = "/tenuto/ranks/drain"
RESTORE_PATH = "/tenuto/ranks/restore"
PATHS = frozenset({STATE_PATH, DRAIN_PATH, RESTORE_PATH})
MOST_LISTED = 1_000

_UNSET = f"This takes an admin key; start the server with {variable('admin_key')} set to one."
_WRONG = "This takes the admin key, as Authorization: Bearer KEY."
_CHALLENGE = ((b"www-authenticate", b"Bearer"),)
_SHAPE = 'The body must be an object with a rank: {"rank": 1}.'


class AdminDesk:
    """Answers for the API process that was asked; what is drained holds for all of them."""

    def __init__(
        self, settings: Settings, placer: Placer, counters: Counters, leases: Leases
    ) -> None:
        self._settings = settings
        self._placer = placer
        self._counters = counters
        self._leases = leases

    async def answer(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request to one of the routes.

        | request | answer |
        |---|---|
        | `GET` of the state | 200, without ids |
        | `GET` of the state with `sessions=1` and the key | 200, with the sessions last seen |
        | `POST` of a rank and the key | 200 `{"ranks": 2, "drained": [1]}` |
        | the same where no key is set; without the key or with another | 403; 401 |
        | `POST` of another shape, or of a rank that is not there | 400 |
        | `POST` of the last rank that is not drained | 409 |
        | `POST` of over 64 KiB | 413 |
        | another method | 405 |
        """
        method = "GET" if path == STATE_PATH else "POST"
        if scope["method"] != method:
            await refuse_method(send, path, method)
        elif path != STATE_PATH:
            if await self._is_admin(scope, send):
                await self._order(path, scope, receive, send)
        elif not _asks_for_sessions(scope):
            await answer_json(send, await self._state(scope))
        elif await self._is_admin(scope, send):
            await answer_json(send, await self._state(scope) | {"listed": self._listed()})

    async def _is_admin(self, scope: Scope, send: Send) -> bool:
        """Tell whether a request carries the key; one that does not has been answered."""
        if not self._settings.admin_key:
            await refuse(send, HTTPStatus.FORBIDDEN, _UNSET)
            return False
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        key = bearer(given) or b""
        # Of digests, since comparing texts of two lengths tells the length.
        if compare_digest(_digest(key), _digest(self._settings.admin_key.encode())):
            return True
        await refuse(send, HTTPStatus.UNAUTHORIZED, _WRONG, _CHALLENGE)
        return False

    async def _order(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Drain a rank or restore it."""
        body = await read_body(receive, send)
        if body is None:
            return
        rank = _rank(body)
        if rank is None:
            await refuse(send, HTTPStatus.BAD_REQUEST, _SHAPE)
            return
        ranks = self._placer.ranks(scope)
        if rank >= ranks:
            said = f"There is no rank {rank}: this server has {ranks}, counted from 0."
            await refuse(send, HTTPStatus.BAD_REQUEST, said)
            return
        standing = self._placer.standing
        before = standing.drained()
        if self._settings.shadow:
            said = "A dry run places nothing, so there is nothing to drain or restore."
            await refuse(send, HTTPStatus.CONFLICT, said)
            return
        if path == RESTORE_PATH:
            standing.restore(rank)
        elif not standing.drain(rank, ranks):
            said = f"Rank {rank} is the last one that takes requests; restore another one first."
            await refuse(send, HTTPStatus.CONFLICT, said)
            return
        drained = standing.drained()
        self._counters.stand(ranks, drained)
        if (rank in drained) != (rank in before):
            event = "restored" if path == RESTORE_PATH else "drained"
            logs.tell(logging.INFO, event, rank=rank, drained=sorted(drained))
        await answer_json(send, {"ranks": ranks, "drained": sorted(drained)})

    async def _state(self, scope: Scope) -> dict[str, Any]:
        retention = await self._leases.states(scope)
        placer, counters = self._placer, self._counters
        ranks = placer.ranks(scope)
        ledger = placer.ledger
        return {
            "protocol": 1,
            "process": os.getpid(),
            "instance": placer.instance,
            "ranks": ranks,
            "drained": sorted(placer.standing.drained()),
            "shared": placer.standing.is_shared,
            "unfit": sorted(placer.unfit(scope)),
            "epochs": [placer.standing.epoch(rank) for rank in range(ranks)],
            "load": list(placer.loads(scope)),
            "in_flight": list(placer.traffic.in_flight.counts(ranks)),
            "pending": list(placer.traffic.pending.counts(ranks)),
            "homes": list(ledger.homes()) if ranks else [],
            "home_tokens": list(ledger.live()) if ranks else [],
            "sessions": len(ledger),
            "placed": dict(counters.placed),
            "carriers": dict(counters.carriers),
            "news": dict(counters.news),
            "dropped": dict(counters.dropped),
            "shadow": dict(counters.shadow),
            "retention": retention,
            "settings": shown(self._settings),
        }

    def _listed(self) -> list[dict[str, Any]]:
        """Return the sessions last seen, the latest first."""
        seats = itertools.islice(self._placer.ledger.seats(), MOST_LISTED)
        return [
            {
                "session": session,
                "rank": seat.rank,
                "tokens": seat.tokens,
                "turn": seat.turn,
                "warm": seat.is_warm,
            }
            for session, seat in seats
        ]


def _asks_for_sessions(scope: Scope) -> bool:
    said = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    return said.get("sessions", ["0"])[-1] not in {"0", "false"}


def _digest(key: bytes) -> bytes:
    return blake2b(key).digest()


def _rank(body: bytes) -> int | None:
    """Return the rank that a body names, >= 0; None for a body of another shape."""
    try:
        told: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    rank = cast("dict[str, Any]", told).get("rank") if isinstance(told, dict) else None
    return rank if type(rank) is int and rank >= 0 else None
