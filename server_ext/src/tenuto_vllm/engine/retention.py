"""What retention adds to vLLM's scheduler: five methods, none of which can fail a request.

| method | what is added |
|---|---|
| `add_request` | the request's hint is read, and its session is in use |
| `_free_blocks` | the blocks get their owner before they are freed, since a free may be put off |
| `schedule` | leases end whose time has come |
| `reset_prefix_cache` | all is forgotten, if it succeeded |
| `shutdown` | the decision log is closed |

`_free_blocks` is called once for each request that ends, by whatever path, and never for one that
is preempted.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenuto_vllm import logs
from tenuto_vllm.config import ConfigError, Settings
from tenuto_vllm.engine.compatibility import problem
from tenuto_vllm.engine.decisions import DecisionLog
from tenuto_vllm.engine.events import Events, connected, hide_hints, rejects_hints
from tenuto_vllm.engine.hints import (
    WORTHLESS,
    Asked,
    asked_of,
    may_have_stopped,
    shortest,
    take_hint,
)
from tenuto_vllm.engine.spans import add_decision
from tenuto_vllm.retention.hint import Hint

if TYPE_CHECKING:
    from tenuto_vllm.engine.leases import Leases


# Checkpoints of a session, and of the least blocks: one of linear attention is a block.
_STATES, _LEAST_STATES = 4, 14


class RetentionMixin:
    """For a class that derives from vLLM's Scheduler.

    Attributes:
        tenuto: the keeper of leases; None where there is none, which one event tells.
        tenuto_log: where decisions are written, if they are.
    """

    tenuto: Leases | None = None
    tenuto_log: DecisionLog | None = None
    tenuto_events: Events | None = None
    _makes_spans = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what vLLM's Scheduler takes."""
        super().__init__(*args, **kwargs)
        self._hides_hints = rejects_hints(self)
        self._try(self._install)
        if self.tenuto is None and self.tenuto_log is not None:
            self.tenuto_log.close()
            self.tenuto_log = None

    def add_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """Read what the request says of its session."""
        if self.tenuto is not None:
            self._try(self._began, self.tenuto, request)
        if self._hides_hints:
            self._try(hide_hints, request)
        above: Any = super()
        above.add_request(request, *args, **kwargs)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Let leases end first."""
        if self.tenuto is not None:
            self._try(self.tenuto.tick)
        if self.tenuto_events is not None:
            self.tenuto_events.deliver()
        above: Any = super()
        return above.schedule(*args, **kwargs)

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
        """Forget all leases once the cache is empty."""
        above: Any = super()
        is_reset = above.reset_prefix_cache(*args, **kwargs)
        if is_reset and self.tenuto is not None:
            self._try(self.tenuto.clear)
        return is_reset

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """Close the decision log."""
        if self.tenuto_log is not None:
            self.tenuto_log.close()
        above: Any = super()
        above.shutdown(*args, **kwargs)

    def _free_blocks(self, request: Any, *args: Any, **kwargs: Any) -> None:
        asked = asked_of(request)
        hint = None if asked is None else asked.hint
        decision: str | None = None
        if hint is not None and self.tenuto is not None:
            decision = self._try(self._ends, self.tenuto, request, hint)
            if decision == "leased" and self.tenuto_events is not None:
                self.tenuto_events.bound(request)
        if hint is None and self.tenuto is not None:
            self._try(self._passed, self.tenuto, request)
        above: Any = super()
        above._free_blocks(request, *args, **kwargs)
        if hint is not None and asked is not None and self.tenuto is not None:
            self._try(self.tenuto.ended, hint, bool(decision), asked.adopted)
        if self.tenuto_log is not None and self.tenuto is not None:
            self._try(self._log, self.tenuto, self.tenuto_log, request, decision)
        if self._makes_spans and hint is not None and self.tenuto is not None:
            add_decision(request, self._try(self.tenuto.decided, hint, decision or "none"))

    def _install(self) -> None:
        try:
            settings = Settings.from_env(os.environ)
        except ConfigError as error:
            _tell_off(str(error))
            return
        logs.set_up(settings.log)
        if why := "it is switched off" if not settings.retention else problem(self):
            _tell_off(why)
            return
        scheduler: Any = self
        observed = getattr(scheduler, "observability_config", None)
        self._makes_spans = bool(getattr(observed, "otlp_traces_endpoint", None))
        manager = scheduler.kv_cache_manager
        pool, managers = manager.block_pool, manager.coordinator.single_type_managers
        if settings.decision_log is not None:
            rank = scheduler.parallel_config.data_parallel_index
            name = f"decisions-{rank}-{os.getpid()}"
            size = getattr(pool, "hash_block_size", scheduler.block_size)
            self.tenuto_log = DecisionLog(settings.decision_log, name, size)
        _offer_utilities()
        # What derives from vLLM's classes is loaded here, where there is a vLLM.
        queues = importlib.import_module("tenuto_vllm.engine.queue")
        keepers = importlib.import_module("tenuto_vllm.engine.leases")
        queue = queues.TurnQueue(pool.free_block_queue, len(pool.blocks))
        keeper = keepers.Leases(
            queue,
            pool.blocks,
            block_size=scheduler.block_size,
            groups=len(managers),
            states=max(map(_states, managers)),
            share=settings.lease_share,
            tenant_share=settings.tenant_share,
            sessions=settings.sessions,
        )
        # Last, since nothing that fails may leave vLLM's queue with marks of ours in it.
        pool.free_block_queue = queue.take_over()
        self.tenuto = keeper
        self.tenuto_events = connected(self, keeper)
        logs.tell(logging.INFO, "retention_on", blocks=len(pool.blocks), share=settings.lease_share)

    def _began(self, keeper: Leases, request: Any) -> None:
        scheduler: Any = self
        # vLLM takes the count off the request with the first token.
        stats = getattr(request, "prefill_stats", None)
        hint = take_hint(request)
        # A further part of a prompt that is streamed in belongs to the request that is there.
        if request.request_id in scheduler.requests:
            return
        if hint is not None or self.tenuto_log is not None:
            # Before 0.31 the request has the count itself.
            request.tenuto = Asked(hint, request if stats is None else stats)
        if hint is not None:
            keeper.began(hint)

    def _ends(self, keeper: Leases, request: Any, hint: Hint) -> str | None:
        """Let the keeper decide on the blocks of a request; None where it leaves none to keep."""
        scheduler: Any = self
        groups = scheduler.kv_cache_manager.coordinator.get_blocks(request.request_id)
        if not any(groups):
            return None
        if request.status.name in WORTHLESS:
            if request.status.name != "FINISHED_ABORTED" or not may_have_stopped(request):
                return None
            # Until news of what follows says that it did.
            hint = shortest(hint)
        if len(groups) == 1:
            table = groups[0]
        else:
            table = [block for group in groups for block in group if not block.is_null]
        asked = asked_of(request)
        cached = 0 if asked is None else asked.cached_tokens
        return keeper.ends(hint, table, cached // scheduler.block_size, cached)

    def _passed(self, keeper: Leases, request: Any) -> None:
        """Let the keeper see what a request of no session has shared."""
        if keeper.queue.has_owners:
            scheduler: Any = self
            for table in scheduler.kv_cache_manager.coordinator.get_blocks(request.request_id):
                keeper.passed(table)

    def _log(self, keeper: Leases, log: DecisionLog, request: Any, decision: str | None) -> None:
        asked = asked_of(request)
        hint = None if asked is None else asked.hint
        cached = 0 if asked is None else asked.cached_tokens
        log.write(request, hint, cached, keeper.decided(hint, decision or "none"))

    def _try(self, step: Callable[..., Any], *args: Any) -> Any:
        """Do a step of ours; one that fails ends the retention, and no request."""
        try:
            return step(*args)
        except Exception as error:
            keeper, self.tenuto = self.tenuto, None
            _tell_off(f"{type(error).__name__}: {error}")
            if keeper is not None:
                keeper.queue.disown()
            return None


def _states(manager: Any) -> int:
    """Return how many blocks a session's newest checkpoints have in one group of layers."""
    window = getattr(manager, "sliding_window", 0) or 0
    return max(_LEAST_STATES, _STATES * -(-window // manager.block_size))


def _tell_off(why: str) -> None:
    logs.tell(logging.WARNING, "retention_off", why=why)


def _offer_utilities() -> None:
    """Let API processes call `tenuto_told` and `tenuto_state`, by name, as vLLM's own utilities."""

    def told(self: Any, text: str) -> None:
        if (keeper := getattr(self.scheduler, "tenuto", None)) is not None:
            self.scheduler._try(keeper.told, text)
            if self.scheduler.tenuto_events is not None:
                self.scheduler.tenuto_events.deliver()

    def state(self: Any) -> dict[str, Any]:
        keeper = getattr(self.scheduler, "tenuto", None)
        states = getattr(self.scheduler, "tenuto_states", None)
        said: dict[str, Any] = {} if keeper is None else keeper.state()
        return said if states is None else said | {"boundaries": dict(states.counts)}

    core = importlib.import_module("vllm.v1.engine.core").EngineCore
    core.tenuto_told, core.tenuto_state = told, state
