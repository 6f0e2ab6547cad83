"""From an API process to the scheduler of ours in the engines: hints with a request, and calls.

It works on vLLM's engine client, duck-typed. The two calls are vLLM's own "utility" calls, of
methods that `tenuto_vllm.TurnScheduler` adds to the engine; no request ever waits for one.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from typing import Any, cast

from tenuto_vllm.news import News, TurnNews
from tenuto_vllm.retention.hint import ACTION

TOLD = "tenuto_told"
STATE = "tenuto_state"

MOST_WAITING = 4096
"""Sessions of which news waits for one engine."""

_OURS = "tenuto_vllm"
_REST_S = 60.0
_FRESH_S = 1.0

State = Mapping[str, Any]


def is_scheduler_ours(engine_client: object) -> bool:
    """Tell whether the engines run `TurnScheduler`, or a scheduler that is made of its mixin."""
    try:
        client: Any = engine_client
        chosen: Any = client.vllm_config.scheduler_config.scheduler_cls
        if isinstance(chosen, str):
            if chosen.partition(".")[0] == _OURS:
                return True
            module, _, name = chosen.rpartition(".")
            chosen = getattr(importlib.import_module(module), name)
        family: Sequence[type] = chosen.__mro__ if isinstance(chosen, type) else ()
        return any(one.__module__.partition(".")[0] == _OURS for one in family)
    except Exception:
        return False


def envelope(text: str) -> object | None:
    """Return vLLM's envelope (0.31 and above) around a packed hint; None where there is none."""
    try:
        kv_hints: Any = importlib.import_module("vllm.v1.kv_hints")
        action = kv_hints.KvHintAction("0", ACTION, "0.1", {"hint": text})
        return kv_hints.KvHintsEnvelope("0.1", uuid.uuid4().hex, [action])
    except Exception:
        return None


class Engines:
    """The engines behind one engine client; for one event loop.

    Args:
        engine_client: vLLM's `AsyncLLM`.
        failed: told of each piece of news that was lost, for want of room, with a failed call or
            in the minute after one; and of each question that failed.
        missing: told once, when the engines turn out to have no such methods.
    """

    def __init__(
        self, engine_client: object, *, failed: Callable[[], None], missing: Callable[[], None]
    ) -> None:
        client: Any = engine_client
        self.engine_client = engine_client
        self._core: Any = client.engine_core
        self._failed = failed
        self._missing = missing
        self._is_missing = False
        self._engines: dict[int, _Engine] = {}

    def tell(self, rank: int | None, news: News) -> None:
        """Tell one engine, or all for None; returns at once and never raises."""
        try:
            engines = self._all()
            for one, engine in enumerate(engines):
                if rank is None or rank == one:
                    engine.tell(news)
        except Exception:
            self._failed()

    async def states(self, within_s: float) -> Sequence[State | None]:
        """Return what each engine says of its cache, None for one that does not in time.

        An answer stands for a second, and an engine is asked once at a time, however many ask.
        """
        try:
            engines = self._all()
            asked = [task for engine in engines if (task := engine.ask()) is not None]
            if asked:
                # Not cancelled when time is up: it would be asked again, and twice at once.
                await asyncio.wait(asked, timeout=within_s)
            return [engine.state() for engine in engines]
        except Exception:
            return ()

    def _all(self) -> Sequence[_Engine]:
        if self._is_missing:
            return ()
        count = len(getattr(self._core, "core_engines", ())) or 1
        for rank in range(len(self._engines), count):
            self._engines[rank] = _Engine(self._core, rank, self._failed, self._learn_missing)
        return [self._engines[rank] for rank in range(count)]

    def _learn_missing(self) -> None:
        if not self._is_missing:
            self._is_missing = True
            self._missing()


class _Engine:
    """One engine. It has one call of news at a time: what comes meanwhile goes with the next."""

    def __init__(
        self, core: Any, rank: int, failed: Callable[[], None], missing: Callable[[], None]
    ) -> None:
        self._core = core
        self._rank = rank
        self._failed = failed
        self._missing = missing
        self._turns: dict[str, TurnNews] = {}
        self._ended: dict[str, None] = {}
        self._resting_until_s = 0.0
        self._state: State | None = None
        self._state_s = float("-inf")
        # Held here, since the loop holds its tasks weakly.
        self._sending: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None

    def tell(self, news: News) -> None:
        """Take news; of several about a session the last counts."""
        if self._is_resting():
            self._lose(len(news.turns) + len(news.ended))
            return
        for turn in news.turns:
            if turn.session in self._turns or self._has_room():
                self._turns[turn.session] = turn
        for session in news.ended:
            self._turns.pop(session, None)
            if session in self._ended or self._has_room():
                self._ended[session] = None
        if self._sending is None:
            self._sending = _start(self._send)

    def ask(self) -> asyncio.Task[None] | None:
        """Ask for the state, unless it is fresh; return the question that is under way."""
        is_fresh = time.monotonic() - self._state_s < _FRESH_S
        if self._asking is None and not is_fresh and not self._is_resting():
            self._asking = _start(self._ask)
        return self._asking

    def state(self) -> State | None:
        """Return what was answered last; None while an answer is awaited."""
        return self._state if self._asking is None else None

    async def _send(self) -> None:
        sent = 0
        try:
            while self._turns or self._ended:
                news = {"turns": list(self._turns.values()), "ended": list(self._ended)}
                sent = len(self._turns) + len(self._ended)
                self._turns, self._ended = {}, {}
                await self._call(TOLD, json.dumps(news))
        except Exception as error:
            lost = sent + len(self._turns) + len(self._ended)
            self._turns, self._ended = {}, {}
            self._rest(error, lost)
        finally:
            self._sending = None

    async def _ask(self) -> None:
        self._state = None
        try:
            said = await self._call(STATE)
            # An engine that keeps no leases says nothing.
            self._state = cast("State", said) if said and isinstance(said, dict) else None
            self._state_s = time.monotonic()
        except Exception as error:
            self._rest(error, 1)
        finally:
            self._asking = None

    async def _call(self, method: str, *args: str) -> object:
        call = getattr(self._core, "_call_utility_async", None)
        if call is None:
            return await self._core.call_utility_async(method, *args)
        return await call(method, *args, engine=self._core.core_engines[self._rank])

    def _rest(self, error: Exception, lost: int) -> None:
        # vLLM logs every failed call with its traceback.
        self._resting_until_s = time.monotonic() + _REST_S
        if "has no attribute" in str(error):
            self._missing()
        else:
            self._lose(lost)

    def _is_resting(self) -> bool:
        return time.monotonic() < self._resting_until_s

    def _has_room(self) -> bool:
        has_room = len(self._turns) + len(self._ended) < MOST_WAITING
        if not has_room:
            self._lose(1)
        return has_room

    def _lose(self, pieces: int) -> None:
        for _ in range(pieces):
            self._failed()


def _start(work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    # In a context of its own: that of a request would live as long as the work.
    return asyncio.get_running_loop().create_task(work(), context=Context())
