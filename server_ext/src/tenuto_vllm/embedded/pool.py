"""One rank's cache blocks: prefix lookup, references and the order of eviction. Pure.

Arrays, since a prompt of 142,000 tokens has 2,200 blocks. Keys stand for a block and all before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tenuto_vllm.embedded.batches import Batch, batches
from tenuto_vllm.retention import RETENTIONS, Held, Retention

Ints = NDArray[np.int64]

# Keys that no prompt has: of a block that is not full, and of one that nothing will look for.
PLAIN, NAMELESS = -1, -2


@dataclass(slots=True)
class Table:
    """The blocks of one admitted request.

    Attributes:
        slots: places of its blocks, in token order.
        cached_tokens: prompt tokens that were found in the cache.
        hits: how many leading blocks those are.
        keys: of the output's blocks that will be full, in order.
        prompt_full: how many blocks the prompt alone fills.
    """

    slots: Ints
    cached_tokens: int
    hits: int
    keys: Ints
    prompt_full: int


class Pool:
    """A fixed number of blocks, shared by the requests of one rank.

    It follows vLLM 0.32's `BlockPool`: a cached block that nobody uses can be found until it
    is handed out again; freed blocks that are not full are reused first, full ones in the
    order of their release, a request's tail before its head; equal blocks computed twice are
    both kept, and the older is found. A policy may change that order, and nothing else.

    It differs in one way: vLLM admits a request when its prompt fits and preempts when outputs
    outgrow the pool; here an output's blocks are taken at admission, so that an admitted
    request always finishes.

    Args:
        blocks: of the rank, >= 2. One is reserved, as vLLM's null block.
        block_size: tokens in a block, >= 1.
        retention: the order of eviction.
    """

    def __init__(
        self, blocks: int, block_size: int, retention: Retention = RETENTIONS["lru"]
    ) -> None:
        self.block_size = block_size
        self.total = blocks - 1
        self.free = self.total
        self._retention = retention
        self._references = np.zeros(blocks, np.int64)
        self._key_of = np.full(blocks, PLAIN, np.int64)
        self._batch_of = np.full(blocks, -1, np.int64)
        self._slot_of = np.full(256, -1, np.int64)
        # Of keys that several blocks have: all but the one that is found.
        self._twins: dict[int, list[int]] = {}
        self._plain = np.arange(blocks - 1, 0, -1, dtype=np.int64)
        self._plain_count = self.total
        self._batches = batches(retention, self.total)
        self._latest: dict[str, list[int]] = {}

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0..1."""
        return 1.0 - self.free / self.total

    def blocks_for(self, prompt_tokens: int, output_tokens: int) -> int:
        """Return how many blocks a request holds at its end.

        The last output token is sampled but never computed, so it needs no place.
        """
        return -(-(prompt_tokens + max(output_tokens - 1, 0)) // self.block_size)

    def found(self, keys: Ints, prompt_tokens: int) -> int:
        """Return how many leading blocks of a prompt are in the cache, but its last token's."""
        return len(self._found(keys, prompt_tokens))

    def holds(self, keys: Ints) -> NDArray[np.bool_]:
        """Return for each key whether a block has it."""
        self._grow(keys)
        return self._slot_of[keys] >= 0

    def allocate(
        self,
        keys: Ints,
        prompt_tokens: int,
        output_tokens: int,
        output_keys: Ints | None = None,
        now_s: float = 0.0,
        *,
        session: str = "",
    ) -> Table | None:
        """Take the blocks of a prompt and of the output to come.

        Args:
            keys: of the prompt's full blocks, in order.
            prompt_tokens: length of the prompt, >= 1.
            output_tokens: most tokens that will be appended.
            output_keys: of the blocks that the output fills; None where nobody will look
                for them.
            now_s: the time.
            session: whose it is; what it had and does not use goes first.

        Returns:
            The request's table, its prompt's full blocks findable; None, with nothing
            changed, while too few blocks are free.
        """
        found = self._found(keys, prompt_tokens)
        idle = found[self._references[found] == 0]
        needed = self.blocks_for(prompt_tokens, output_tokens) - len(found)
        if len(idle) + needed > self.free:
            return None
        self._touch(found, idle)
        self._supersede(session)
        fresh = self._take(needed, now_s)
        hits, full = len(found), prompt_tokens // self.block_size
        self._register(fresh[: full - hits], keys[hits:full])
        if output_keys is None:
            whole = (prompt_tokens + max(output_tokens - 1, 0)) // self.block_size
            output_keys = np.full(max(0, whole - full), NAMELESS, np.int64)
        slots = np.concatenate([found, fresh])
        return Table(slots, hits * self.block_size, hits, output_keys, full)

    def release(
        self, table: Table, parts: Sequence[tuple[int, Held]], output_blocks: int | None = None
    ) -> None:
        """Give back everything that a request holds; once for each table.

        Args:
            table: of the request.
            parts: what the policy is to know of its blocks: so many leading ones, and so on;
                the last part has all that are left.
            output_blocks: how many blocks the output has filled; all of them by default.
        """
        names = table.keys[:output_blocks]
        at = table.prompt_full
        self._register(table.slots[at : at + len(names)], names)
        self._references[table.slots] -= 1
        self._supersede(parts[0][1].session)
        # A prompt's tail goes first: the last part is the oldest.
        end = len(table.slots)
        starts = [0]
        for count, _ in parts[:-1]:
            starts.append(min(end, starts[-1] + count))
        for (_, held), start in reversed(list(zip(parts, starts, strict=True))):
            self._give_back(table.slots[start:end], held)
            end = start

    def await_turn(self, session: str, *, is_active: bool) -> None:
        """Note whether a request of a session waits for its turn.

        Args:
            session: whose blocks it will look for.
            is_active: False when it was taken back.
        """
        for number in self._latest.get(session, ()):
            if number in self._batches.of:
                held = self._batches.of[number].held
                self._batches.change(number, held._replace(is_active=is_active))

    def reset(self) -> bool:
        """Forget every cached block; refused (False) while any block is in use."""
        if self.free != self.total:
            return False
        self.__init__(self.total + 1, self.block_size, self._retention)
        return True

    def _grow(self, keys: Ints) -> None:
        most = int(keys.max(initial=0))
        if most >= len(self._slot_of):
            grown = np.full(max(2 * len(self._slot_of), most + 1), -1, np.int64)
            grown[: len(self._slot_of)] = self._slot_of
            self._slot_of = grown

    def _found(self, keys: Ints, prompt_tokens: int) -> Ints:
        self._grow(keys)
        slots = self._slot_of[keys[: max(0, prompt_tokens - 1) // self.block_size]]
        missing = slots < 0
        first = int(missing.argmax()) if len(missing) else 0
        return slots[:first] if len(missing) and missing[first] else slots

    def _touch(self, found: Ints, idle: Ints) -> None:
        batches, counts = np.unique(self._batch_of[idle], return_counts=True)
        for number, count in zip(batches.tolist(), counts.tolist(), strict=True):
            self._batches.shrink(number, count)
        self._batch_of[idle] = -1
        self._references[found] += 1
        self.free -= len(idle)

    def _take(self, count: int, now_s: float) -> Ints:
        plain = min(count, self._plain_count)
        taken = [self._plain[self._plain_count - plain : self._plain_count][::-1].copy()]
        self._plain_count -= plain
        left = count - plain
        if left:
            for number in self._batches.order(now_s):
                part = self._cut(number, left)
                self._forget(part)
                taken.append(part)
                left -= len(part)
                if not left:
                    break
        slots = np.concatenate(taken)
        self._references[slots] = 1
        self._key_of[slots] = PLAIN
        self.free -= count
        return slots

    def _cut(self, number: int, most: int) -> Ints:
        """Take up to `most` blocks from the front of a batch."""
        batch = self._batches.of[number]
        rest = batch.slots[batch.at :]
        places = np.flatnonzero(self._batch_of[rest] == number)[:most]
        part = rest[places]
        batch.at += int(places[-1]) + 1
        self._batch_of[part] = -1
        self._batches.shrink(number, len(part))
        return part

    def _forget(self, slots: Ints) -> None:
        keys = self._key_of[slots]
        named = keys >= 0
        keys, slots = keys[named], slots[named]
        found = self._slot_of[keys] == slots
        self._slot_of[keys[found]] = -1
        if self._twins:
            for key, slot, was_found in zip(
                keys.tolist(), slots.tolist(), found.tolist(), strict=True
            ):
                self._forget_twin(key, slot, was_found)

    def _forget_twin(self, key: int, slot: int, was_found: bool) -> None:
        twins = self._twins.get(key)
        if twins is None:
            return
        if was_found:
            self._slot_of[key] = twins.pop(0)
        elif slot in twins:
            twins.remove(slot)
        if not twins:
            del self._twins[key]

    def _register(self, slots: Ints, keys: Ints) -> None:
        self._key_of[slots] = keys
        named = keys >= 0
        if not named.all():
            slots, keys = slots[named], keys[named]
        self._grow(keys)
        known = self._slot_of[keys] >= 0
        if known.any():
            for key, slot in zip(keys[known].tolist(), slots[known].tolist(), strict=True):
                self._twins.setdefault(key, []).append(slot)
            slots, keys = slots[~known], keys[~known]
        self._slot_of[keys] = slots

    def _supersede(self, session: str) -> None:
        for number in self._latest.pop(session, ()):
            if number in self._batches.of:
                held = self._batches.of[number].held
                self._batches.change(number, held._replace(is_superseded=True))

    def _give_back(self, slots: Ints, held: Held) -> None:
        slots = slots[self._references[slots] == 0]
        self.free += len(slots)
        is_plain = self._key_of[slots] == PLAIN
        plain = slots[is_plain]
        self._plain[self._plain_count : self._plain_count + len(plain)] = plain
        self._plain_count += len(plain)
        kept = slots[~is_plain][::-1]
        if not len(kept):
            return
        number = self._batches.add(Batch(kept, held, len(kept)))
        self._batch_of[kept] = number
        if held.session:
            self._latest.setdefault(held.session, []).append(number)
            self._sweep()

    def _sweep(self) -> None:
        if len(self._latest) > 4 * self.total:
            alive = {
                one: [number for number in numbers if number in self._batches.of]
                for one, numbers in self._latest.items()
            }
            self._latest = {one: numbers for one, numbers in alive.items() if numbers}
