"""A virtual engine that keeps what its made-up model wrote, and looks at it on every hit."""

from __future__ import annotations

from typing import Any

from benchmarks.retention.tiny import WINDOW
from benchmarks.retention.virtual import Ask, VirtualEngine
from tests.vllm.invariants import check


class CheckedEngine(VirtualEngine):
    """Fails where a request is given a block that does not hold what its prompt says.

    An attention block holds tokens. A state block holds, in place of the state, the tokens that
    went into it, and is right only if those are all that precede the point of the hit.

    Attributes:
        verified: blocks looked at.
        resumed: requests that came back after a preemption.
    """

    def __init__(self, scheduler: type, blocks: int, **how: Any) -> None:
        super().__init__(scheduler, blocks, **how)
        self.verified = 0
        self.resumed = 0
        self._make_room = getattr(getattr(self.ours, "queue", None), "make_room", None)
        self._held: dict[int, list[int]] = {}
        self._kinds = [group for group in ("attention", how.get("kind", "full")) if group != "full"]

    def step(self) -> int:
        """Do as the engine does, and walk the queue."""
        scheduled = super().step()
        self.check()
        return scheduled

    def check(self) -> None:
        """Every free block is in the queue once and in no request; the queue checks the rest."""
        queue, pool = self.pool.free_block_queue, self.pool
        free = [block.block_id for block in queue.get_all_free_blocks()]
        unused = {b.block_id for b in pool.blocks if b.ref_cnt == 0 and not b.is_null}
        assert len(free) == len(set(free)) == queue.num_free_blocks
        assert set(free) == unused
        if self.ours is not None:
            # Each takes itself off after an error, and the requests go on as if nothing was.
            assert self.scheduler.tenuto is self.ours
            assert self.ours.queue.make_room == self._make_room
            check(self.ours.queue, self.ours)

    def _run(self, plan: Any) -> Any:
        hits = [(new.req_id, new.num_computed_tokens) for new in plan.scheduled_new_reqs]
        again = plan.scheduled_cached_reqs
        for name, computed in zip(again.req_ids, again.num_computed_tokens, strict=True):
            if name in again.resumed_req_ids:
                self.resumed += 1
                hits.append((name, computed))
        for name, many in plan.num_scheduled_tokens.items():
            end = self.asks[name].request.num_computed_tokens
            self._write(name, self.asks[name], end - many, end)
        # After the writes: a request may be given what another one writes in the same step.
        for name, computed in hits:
            self._verify(name, computed)
        return super()._run(plan)

    def _tables(self, name: str) -> list[tuple[str, list[Any]]]:
        managers = self.scheduler.kv_cache_manager.coordinator.single_type_managers
        tables = [manager.req_to_blocks[name] for manager in managers]
        return list(zip(self._kinds, tables, strict=True))

    def _write(self, name: str, ask: Ask, start: int, end: int) -> None:
        size, tokens = self.block_size, ask.known
        for kind, table in self._tables(name):
            if kind == "mamba":
                self._held[table[(end - 1) // size].block_id] = tokens[:end]
                continue
            for index in range(start // size, -(-end // size)):
                begin, block = index * size, table[index]
                if not block.is_null:
                    before = self._held.get(block.block_id, [])[: max(start - begin, 0)]
                    fresh = tokens[max(start, begin) : min(end, begin + size)]
                    self._held[block.block_id] = before + fresh

    def _verify(self, name: str, computed: int) -> None:
        size, tokens = self.block_size, self.asks[name].known
        count = computed // size
        for kind, table in self._tables(name):
            if kind == "mamba":
                needed = {count - 1: tokens[:computed]} if count else {}
            else:
                least = max(0, (computed - WINDOW + 1) // size) if kind == "window" else 0
                needed = {i: tokens[i * size : (i + 1) * size] for i in range(least, count)}
            for index, wanted in needed.items():
                held = self._held.get(table[index].block_id)
                assert held == wanted, (kind, index, count)
                self.verified += 1
