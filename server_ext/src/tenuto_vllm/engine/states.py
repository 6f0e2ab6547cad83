"""Which states of a hybrid model are kept: what a request wants, on top of what vLLM keeps.

Duck-typed: it imports nothing of vLLM. Whatever fails is counted and leaves vLLM's own behaviour.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from tenuto_vllm.engine.hints import WORTHLESS, asked_of
from tenuto_vllm.retention.boundaries import LAST_TURNS, End, wanted
from tenuto_vllm.retention.hint import Hint
from tenuto_vllm.retention.messages import Roles

_SESSIONS = 8192


class Group(NamedTuple):
    """Layers of one kind that cannot resume anywhere.

    Attributes:
        manager: vLLM's.
        size: tokens of a block.
        blocks: that one state takes; of linear attention 1.
        is_linear: a state exists only where a chunk or a block of the answer ended.
    """

    manager: Any
    size: int
    blocks: int
    is_linear: bool


class States:
    """For one scheduler, and called by its thread alone.

    Args:
        scheduler: vLLM's; its `tenuto` keeps the leases, where there is one.
        groups: of layers that cannot resume anywhere.
        roles: how messages begin; None where that is unknown.
        is_more: keep what requests want; else vLLM's states alone get their owner.

    Attributes:
        counts: positions that were wanted, windows kept at the end of an answer, and what failed.
    """

    def __init__(
        self, scheduler: Any, groups: Sequence[Group], roles: Roles | None, *, is_more: bool = True
    ) -> None:
        self.counts: Counter[str] = Counter(wanted=0, answers=0, failed=0)
        self._scheduler = scheduler
        self._groups = groups
        self._roles = roles
        self._is_more = is_more
        self._block: int = scheduler.block_size
        self._hash_block: int = scheduler.kv_cache_manager.block_pool.hash_block_size
        self._ends: OrderedDict[str, deque[End]] = OrderedDict()
        for group in groups:
            self._widen_cache(group)
        if is_more:
            self._widen_split()

    def ended(self, request: Any) -> None:
        """Keep the state at the end of an answer, and remember where that is."""
        hint = _hint(request)
        if hint is None or not self._is_more or request.status.name in WORTHLESS:
            return
        try:
            # The last token was sampled, and is in no cache.
            done = min(request.num_computed_tokens, request.num_tokens - 1)
            for group in self._groups:
                if not group.is_linear:
                    self._keep_window(group, request, done)
            end = done // self._block * self._block
            if (key := self._key(request, end)) is not None:
                ends = self._ends.setdefault(hint.session, deque(maxlen=LAST_TURNS))
                ends.append(End(end, key))
                self._ends.move_to_end(hint.session)
                if len(self._ends) > _SESSIONS:
                    self._ends.popitem(last=False)
        except Exception:
            self.counts["failed"] += 1

    def _wanted(self, request: Any, hint: Hint, cached: int) -> tuple[int, ...]:
        """Return the wanted positions of a request, found out once for all its chunks."""
        asked = asked_of(request)
        # One that was preempted begins again, and may find less.
        if asked is not None and 0 <= asked.wanted[0] <= cached:
            return asked.wanted[1]
        found: tuple[int, ...] = ()
        try:
            found = wanted(
                request.prompt_token_ids or (),
                hint.turn,
                block=self._block,
                cached=cached,
                roles=self._roles,
                earlier=(*self._ends.get(hint.session, ()), *self._ends.get(hint.parent, ())),
                key_at=lambda position: self._key(request, position),
            )
            self.counts["wanted"] += len(found)
        except Exception:
            self.counts["failed"] += 1
        if asked is not None:
            asked.wanted = (cached, found)
        return found

    def _key(self, request: Any, position: int) -> object:
        """Return vLLM's hash of the tokens before a position, None where it has none."""
        index = position // self._hash_block - 1
        return request.block_hashes[index] if 0 <= index < len(request.block_hashes) else None

    def _widen_split(self) -> None:
        original = self._scheduler._mamba_block_aligned_split

        def split(
            request: Any,
            num_new_tokens: int,
            num_new_local_computed_tokens: int = 0,
            num_external_computed_tokens: int = 0,
        ) -> int:
            found, loaded = num_new_local_computed_tokens, num_external_computed_tokens
            count: int = original(request, num_new_tokens, found, loaded)
            # An answer's tokens come one by one.
            if count < 2 or (hint := _hint(request)) is None:
                return count
            start = request.num_computed_tokens + found + loaded
            for position in self._wanted(request, hint, start):
                if start < position < start + count:
                    return position - start
            return count

        self._scheduler._mamba_block_aligned_split = split

    def _widen_cache(self, group: Group) -> None:
        manager, size = group.manager, group.size
        original, cached_blocks = manager.cache_blocks, manager.num_cached_block

        def cache_blocks(
            request: Any,
            num_tokens: int,
            retention_interval: int | None = None,
            *,
            replay_boundaries: Sequence[int],
        ) -> None:
            before: int = cached_blocks.get(request.request_id, 0)
            # Of an answer most tokens complete no block.
            if num_tokens // size <= before or (hint := _hint(request)) is None:
                original(
                    request, num_tokens, retention_interval, replay_boundaries=replay_boundaries
                )
                return
            positions = replay_boundaries
            if self._is_more:
                positions = (*positions, *self._wanted(request, hint, before * size))
                if group.is_linear and num_tokens > request.num_prompt_tokens:
                    positions = (*positions, num_tokens)
            original(request, num_tokens, retention_interval, replay_boundaries=positions)
            self._adopt(group, request, hint, before, retention_interval is None and positions)

        manager.cache_blocks = cache_blocks

    def _adopt(
        self,
        group: Group,
        request: Any,
        hint: Hint,
        before: int,
        positions: Sequence[int] | Literal[False],
    ) -> None:
        """Hand states that were just kept to the keeper: they leave the request before it ends.

        Args:
            group: whose states.
            request: whose, too.
            hint: of the request.
            before: blocks that were complete earlier.
            positions: of the states, where vLLM keeps every block's.
        """
        keeper: Any = getattr(self._scheduler, "tenuto", None)
        if keeper is None:
            return
        try:
            name = request.request_id
            blocks = group.manager.req_to_blocks[name]
            after = min(group.manager.num_cached_block.get(name, 0), len(blocks))
            spans = [(before, after)]
            if positions is not False:
                ends = [one // self._block * self._block // group.size for one in positions]
                spans = [(end - group.blocks, end) for end in sorted(ends)]
            for begin, end in spans:
                for block in blocks[max(before, begin) : min(after, end)]:
                    if block.block_hash is not None and not block.is_null:
                        keeper.adopt(hint, block)
                        if (asked := asked_of(request)) is not None:
                            asked.adopted.append(block.block_id)
        except Exception:
            self.counts["failed"] += 1

    def _keep_window(self, group: Group, request: Any, done: int) -> None:
        manager, name = group.manager, request.request_id
        blocks = manager.req_to_blocks.get(name) or ()
        end = done // self._block * self._block // group.size
        window = range(max(0, end - group.blocks), end)
        if not window or end > len(blocks) or any(blocks[index].is_null for index in window):
            return
        missing = [index for index in window if blocks[index].block_hash is None]
        for index in missing:
            manager.block_pool.cache_full_blocks(
                request=request,
                blocks=blocks,
                num_cached_blocks=index,
                num_full_blocks=index + 1,
                block_size=manager.block_size,
                kv_cache_group_id=manager.kv_cache_group_id,
            )
        self.counts["answers"] += bool(missing)


def _hint(request: Any) -> Hint | None:
    asked = asked_of(request)
    hint = None if asked is None else asked.hint
    return None if hint is None or hint.turn.kind == "auxiliary" else hint
