"""Leases as events for vLLM's KV connector, behind which the tiers of an offloaded cache are.

A connector that has a method `on_tenuto_event` is called with each `LeaseEvent`, in the scheduler's
thread between two steps, and so are those within a `MultiConnector`. docs/offload.md says what the
events are. What a request says of itself, a connector finds in the request's own `kv_hints`.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto_vllm import logs
from tenuto_vllm.engine.hints import asked_of
from tenuto_vllm.retention.hint import ACTION, id_of

if TYPE_CHECKING:
    from tenuto_vllm.engine.lease import Lease
    from tenuto_vllm.engine.leases import Leases

HOOK = "on_tenuto_event"

_TIMED = frozenset({"leased", "retimed"})


class Boundary(NamedTuple):
    """Where a later prompt can go on.

    Attributes:
        tokens: before it.
        block_hash: of the block that ends there, as vLLM's KV events name it.
    """

    tokens: int
    block_hash: bytes | int


class LeaseEvent(NamedTuple):
    """What became of a session's lease.

    Attributes:
        event: a word of docs/offload.md.
        session: the client's id, as in vLLM's KV events.
        tenant: the same session of another tenant is another session.
        time_s: seconds since 1970.
        lasts_s: how long from then the blocks are evicted late; None where that is as it was.
        boundaries: of a turn that has ended, ascending, that are in the cache.
    """

    event: str
    session: str
    tenant: str
    time_s: float
    lasts_s: float | None = None
    boundaries: tuple[Boundary, ...] = ()


class Events:
    """What there is to tell; it waits until the scheduler is between two steps.

    A lease can be lost while vLLM hands out blocks, and then nobody may touch its queue.

    Args:
        scheduler: vLLM's.
        keeper: of its leases.
        listeners: each is dropped with its first error.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        scheduler: Any,
        keeper: Leases,
        listeners: list[Callable[[LeaseEvent], object]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        manager = scheduler.kv_cache_manager
        self._pool: Any = manager.block_pool
        self._groups = list(range(len(manager.coordinator.single_type_managers)))
        self._block: int = scheduler.block_size
        self._named = importlib.import_module(
            "vllm.v1.core.kv_cache_utils"
        ).maybe_convert_block_hash
        self._keeper = keeper
        self._listeners = listeners
        self._clock = clock
        self._waiting: list[LeaseEvent] = []

    def heard(self, event: str, lease: Lease) -> None:
        """Take in what became of a lease."""
        lasts_s: float | None = None
        if event in _TIMED:
            lasts_s = max(0.0, lease.until_s - self._keeper.clock()) if lease.is_held else 0.0
        session = id_of(lease.session)
        self._waiting.append(LeaseEvent(event, session, lease.tenant, self._clock(), lasts_s))

    def bound(self, request: Any) -> None:
        """Add its boundaries to the turn that was heard of last, whose blocks are not free yet."""
        # Without them the event still says that the turn has ended, and for how long it counts.
        with contextlib.suppress(Exception):
            boundaries = tuple(self._cached(request, sorted(self._positions(request))))
            self._waiting[-1] = self._waiting[-1]._replace(boundaries=boundaries)

    def deliver(self) -> None:
        """Tell what waits; it never raises."""
        if not self._waiting:
            return
        events, self._waiting = self._waiting, []
        for listener in list(self._listeners):
            try:
                for event in events:
                    listener(event)
            except Exception as error:
                self._listeners.remove(listener)
                logs.tell(logging.WARNING, "connector_untold", why=type(error).__name__)

    def _positions(self, request: Any) -> set[int]:
        """Return the ends of the prompt and of the answer, and what the turn wanted kept."""
        asked = asked_of(request)
        wanted = (0, ()) if asked is None else asked.wanted
        # The last token was sampled, and is in no cache; that of the prompt is always computed.
        done = min(request.num_computed_tokens, request.num_tokens - 1)
        ends = (min(done, request.num_prompt_tokens - 1), done)
        return {*wanted[1], *(end // self._block * self._block for end in ends)}

    def _cached(self, request: Any, positions: list[int]) -> Iterator[Boundary]:
        size: int = self._pool.hash_block_size
        for position in positions:
            index = position // size - 1
            if 0 <= index < len(request.block_hashes):
                block_hash = request.block_hashes[index]
                if self._pool.get_cached_block(block_hash, self._groups) is not None:
                    yield Boundary(position, self._named(block_hash))


def connected(scheduler: Any, keeper: Leases) -> Events | None:
    """Tell that there is a connector, if there is; return events for one that wants them."""
    connector: Any = getattr(scheduler, "connector", None)
    if connector is None:
        return None
    several = (connector, *getattr(connector, "sub_connectors", ()))
    listeners = [hook for one in several if callable(hook := getattr(one, HOOK, None))]
    logs.tell(
        logging.INFO,
        "connector",
        name=type(connector).__name__,
        told=len(listeners),
        hints=not rejects_hints(scheduler),
        frees_late=bool(scheduler.defer_block_free),
    )
    if not listeners:
        return None
    events = Events(scheduler, keeper, listeners)
    keeper.heard = events.heard
    return events


def rejects_hints(scheduler: Any) -> bool:
    """Tell whether a tier of the connector fails on hints that are not its own.

    KVCR raises where an envelope has no `kv.fetch`, and vLLM 0.31 to 0.33 lets that end the engine.
    """
    try:
        return "'kvcr'" in repr(scheduler.vllm_config.kv_transfer_config.kv_connector_extra_config)
    except Exception:
        return False


def hide_hints(request: Any) -> None:
    """Take an envelope off a request in which there is nothing but ours."""
    envelope = getattr(request, "kv_hints", None)
    if envelope is not None and all(one.action_type == ACTION for one in envelope.actions):
        request.kv_hints = None
