"""What the engines are told of sessions, where they run the scheduler of ours, and what they say.

| what is known | goes |
|---|---|
| a model call's markers | with the call: in vLLM's `kv_hints`, before 0.31 in `X-Session-ID` |
| what follows a turn: news of it, the end of its answer | to the session's rank, if it is known |
| sessions that have ended: news of it, `drop` | to all ranks: it may have been at several |

A session is named by its tenant's tag and its id, so that nobody can name another tenant's. The
engine's own `session_id` and what it publishes keep the bare id.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from tenuto_vllm import _wire, logs
from tenuto_vllm.asgi.bearer import bearer
from tenuto_vllm.asgi.placer import Placer
from tenuto_vllm.asgi.types import Scope
from tenuto_vllm.config import Settings
from tenuto_vllm.engine import seam
from tenuto_vllm.engine.seam import RankBox
from tenuto_vllm.engine.told import Engines, State, envelope, is_scheduler_ours
from tenuto_vllm.metrics import Counters
from tenuto_vllm.news import News, TurnNews
from tenuto_vllm.retention.hint import Hint, pack

_SESSION = _wire.SESSION.lower().encode()
_CREDENTIALS = (b"authorization", b"x-api-key", b"api-key")
_NO_CREDENTIAL = "0"
_TAG_BYTES = 6
_MOST_KEY_BYTES = 64
_PATIENCE_S = 1.0
_NO_SCHEDULER = (
    "the engines do not know what they are told of sessions, and evict as without it; start vLLM "
    "with --scheduler-cls tenuto_vllm.TurnScheduler of the same version"
)


def tag_of(headers: Iterable[tuple[bytes, bytes]], key: bytes) -> str:
    """Return the tenant's name: 12 hex characters of its credential's hash, "0" without one.

    Args:
        headers: (name, value) pairs as ASGI gives them.
        key: of the hash, at most 64 bytes.
    """
    found = {name: value for name, value in headers if name in _CREDENTIALS and value}
    for name in _CREDENTIALS:
        if name in found:
            # The same key may come in either header.
            value = found[name].strip()
            value = bearer(value) or value
            return blake2b(value, digest_size=_TAG_BYTES, key=key).hexdigest()
    return _NO_CREDENTIAL


class Leases:
    """Hands on what the scheduler goes by; nothing of it raises, and no request waits for it.

    Where the engines run another scheduler, and in a dry run, it does nothing.
    """

    def __init__(self, settings: Settings, counters: Counters, placer: Placer) -> None:
        self._is_on = settings.retention and not settings.shadow
        self._counters = counters
        self._placer = placer
        self._client: object = None
        self._engines: Engines | None = None
        self._has_field = False
        self._key = b""

    def hand(self, scope: Scope, markers: _wire.Markers, box: RankBox) -> bool:
        """Give the engine's request a hint; tell whether it has one.

        Args:
            scope: the request's own; its headers are replaced where the hint goes in one.
            markers: what the request says.
            box: the request's.
        """
        try:
            if self._of(scope) is None:
                return False
            tag, turn = tag_of(scope["headers"], self._key), markers.turn
            parent = f"{tag}.{markers.parent}" if markers.parent else ""
            if turn.drop:
                turn = turn._replace(drop=())
            text = pack(Hint(f"{tag}.{markers.session}", markers.run or "", parent, turn))
            if self._has_field:
                box.kv_hints = envelope(text)
                return box.kv_hints is not None
            kept = [header for header in scope["headers"] if header[0] != _SESSION]
            scope["headers"] = [*kept, (_SESSION, text.encode())]
        except Exception:
            self._counters.drop("told")
            return False
        return True

    def tell(self, scope: Scope, news: News, rank: int | None = None) -> None:
        """Tell the engines news.

        Args:
            scope: of the request that it comes from.
            news: taken to be of that request's tenant's sessions, and of no others.
            rank: where its turns were served, if it is known.
        """
        try:
            engines = self._of(scope)
            if engines is None:
                return
            tag = tag_of(scope["headers"], self._key)
            for turn in news.turns:
                told = TurnNews(f"{tag}.{turn.session}", turn.next, turn.gap, turn.ttl)
                where = self._rank(turn.session) if rank is None else rank
                engines.tell(where, News(turns=(told,)))
            if news.ended:
                ended = tuple(f"{tag}.{session}" for session in news.ended)
                engines.tell(None, News(ended=ended))
        except Exception:
            self._counters.drop("told")

    async def states(self, scope: Scope) -> Sequence[State | None] | None:
        """Return what each rank says of its cache; None where there is nobody to say it."""
        engines = self._of(scope)
        return (await engines.states(_PATIENCE_S) or None) if engines is not None else None

    async def show(self, scope: Scope) -> None:
        """Bring the numbers of `/metrics` up to date."""
        try:
            for rank, state in enumerate(await self.states(scope) or ()):
                if state is not None:
                    self._counters.retain(rank, state)
        except Exception:
            self._counters.drop("told")

    def _rank(self, session: str) -> int | None:
        seat = self._placer.ledger.seat(session)
        return None if seat is None else seat.rank

    def _of(self, scope: Scope) -> Engines | None:
        if not self._is_on:
            return None
        client: Any = getattr(getattr(scope.get("app"), "state", None), "engine_client", None)
        if client is not self._client:
            self._client = client
            self._engines = self._new(client, scope)
        return self._engines

    def _new(self, client: object, scope: Scope) -> Engines | None:
        if not is_scheduler_ours(client):
            return None
        try:
            engines = Engines(client, failed=self._failed, missing=self._missing)
            # So that the engine's name is known, and with it all processes' key.
            self._placer.ranks(scope)
            self._key = self._placer.instance.encode()[-_MOST_KEY_BYTES:]
            self._has_field = seam.install_hints(client) and envelope("") is not None
        except Exception:
            self._counters.drop("told")
            return None
        carrier = "kv_hints" if self._has_field else _wire.SESSION
        logs.tell(logging.INFO, "hints", carrier=carrier)
        return engines

    def _failed(self) -> None:
        self._counters.drop("told")

    def _missing(self) -> None:
        logs.tell(logging.WARNING, "retention_off", why=_NO_SCHEDULER)
