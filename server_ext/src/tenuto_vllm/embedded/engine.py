"""N ranks in one asyncio process: placement, queues, prefill, decode, and their counts."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass

from tenuto_vllm.embedded.blocks import BlockPool, BlockTable
from tenuto_vllm.embedded.clock import Clock, RealClock
from tenuto_vllm.embedded.errors import RequestError
from tenuto_vllm.embedded.settings import EngineSettings
from tenuto_vllm.embedded.stock import RankLoad, place

# Shorter sleeps are mostly the event loop's own cost.
_SHORTEST_SLEEP_S = 0.002


@dataclass(slots=True)
class RankStats:
    """Counts of one rank since its start; tokens are counted when a request is admitted."""

    requests: int = 0
    in_flight: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    free_blocks: int = 0
    total_blocks: int = 0


class _Rank:
    """One rank's blocks and its line of requests that wait for prefill."""

    def __init__(self, settings: EngineSettings) -> None:
        self.pool = BlockPool(settings.blocks, settings.block_size)
        # First come, first served; held from admission until the prompt is computed.
        self.prefill = asyncio.Lock()
        # Only the holder of `prefill` ever waits for it.
        self.blocks_freed = asyncio.Event()
        self.stats = RankStats()
        self.running = 0

    def load(self) -> RankLoad:
        waiting = self.stats.in_flight - self.running
        return RankLoad(self.stats.in_flight, waiting, self.running, self.pool.usage)


class Generation:
    """One request in the engine, from `Engine.submit` until `close`.

    Use it as `with contextlib.closing(engine.submit(...)) as generation`, await
    `admitted`, then iterate over `pieces`. Leaving early at any point, by cancellation
    too, gives back what it holds.

    Attributes:
        rank: the rank that serves it.
        prompt_tokens: length of the prompt.
        cached_tokens: prompt tokens found in the rank's cache; 0 until admitted.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        output: str,
        rank: int,
        state: _Rank,
        *,
        settings: EngineSettings,
        clock: Clock,
    ) -> None:
        self.rank = rank
        self.prompt_tokens = len(prompt)
        self.cached_tokens = 0
        self._prompt = prompt
        self._output = output
        self._state = state
        self._settings = settings
        self._clock = clock
        self._table: BlockTable | None = None
        self._holds_prefill = False
        self._closed = False
        state.stats.requests += 1
        state.stats.in_flight += 1

    async def admitted(self) -> None:
        """Wait for the rank's prefill and for enough free blocks, and take both."""
        state = self._state
        await state.prefill.acquire()
        self._holds_prefill = True
        while (table := state.pool.allocate(self._prompt, len(self._output))) is None:
            state.blocks_freed.clear()
            await state.blocks_freed.wait()
        self._table = table
        self.cached_tokens = table.cached_tokens
        state.running += 1
        state.stats.prompt_tokens += self.prompt_tokens
        state.stats.cached_tokens += self.cached_tokens

    async def pieces(self) -> AsyncIterator[str]:
        """Yield the output as it is decoded: ASCII, one character per token.

        Raises:
            RuntimeError: the generation was not admitted, or is closed.
        """
        table = self._table
        if table is None:
            raise RuntimeError("await admitted() before the first piece")
        uncached_tokens = self.prompt_tokens - self.cached_tokens
        await self._clock.sleep(uncached_tokens / self._settings.prefill_tokens_per_s)
        self._end_prefill()
        start, rate = 0, self._settings.decode_tokens_per_s
        for size in piece_sizes(len(self._output), rate):
            await self._clock.sleep(size / rate)
            piece = self._output[start : start + size]
            self._state.pool.append(table, piece.encode())
            start += size
            yield piece

    def close(self) -> None:
        """Give back the rank, its prefill and all blocks; later calls do nothing."""
        if self._closed:
            return
        self._closed = True
        self._end_prefill()
        if self._table is not None:
            self._state.pool.release(self._table)
            self._table = None
            self._state.running -= 1
            self._state.blocks_freed.set()
        self._state.stats.in_flight -= 1

    def _end_prefill(self) -> None:
        if self._holds_prefill:
            self._holds_prefill = False
            self._state.prefill.release()


class Engine:
    """The ranks, and where a request goes among them; implements `EngineView`.

    All methods belong to one event loop. None blocks it.

    Args:
        settings: sizes and speeds.
        clock: where time comes from; the event loop's by default.

    Attributes:
        settings: as given.
        stopping: set by `stop`; whoever serves requests ends them when it is.
    """

    def __init__(self, settings: EngineSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.stopping = asyncio.Event()
        self._clock = clock or RealClock()
        self._ranks = [_Rank(settings) for _ in range(settings.ranks)]
        self._instance = secrets.token_hex(8)
        self._scan_start = 0

    def ranks(self) -> int:
        """Return how many ranks there are, >= 1."""
        return len(self._ranks)

    def instance(self) -> str:
        """Return this engine's random name: 16 hex digits, new at every start."""
        return self._instance

    def loads(self) -> Sequence[float]:
        """Return unfinished requests of each rank, rank order."""
        return [float(rank.stats.in_flight) for rank in self._ranks]

    def stats(self) -> list[dict[str, int]]:
        """Return `RankStats` of each rank as plain dictionaries, rank order."""
        for rank in self._ranks:
            rank.stats.free_blocks, rank.stats.total_blocks = rank.pool.free, rank.pool.total
        return [asdict(rank.stats) for rank in self._ranks]

    def reset_prefix_cache(self) -> bool:
        """Empty the cache of every rank that runs nothing; return whether all could."""
        return all([rank.pool.reset() for rank in self._ranks])

    def stop(self) -> None:
        """Ask those who serve requests to end them."""
        self.stopping.set()

    def submit(self, prompt: Sequence[int], output: str, rank: int | None = None) -> Generation:
        """Place a request; it counts as in flight until the result is closed.

        Args:
            prompt: token ids in [0, 2**32).
            output: what will be answered, ASCII, one token per character.
            rank: the rank that the request names; the stock rule decides if None.

        Raises:
            RequestError: no such rank, or the request can never fit.
        """
        ranks = len(self._ranks)
        if rank is not None and not 0 <= rank < ranks:
            raise RequestError(f"data_parallel_rank {rank} is out of range [0, {ranks}).")
        self._check_size(len(prompt), len(output))
        loads = [state.load() for state in self._ranks]
        chosen, self._scan_start = place(loads, self._scan_start, given=rank)
        state = self._ranks[chosen]
        return Generation(prompt, output, chosen, state, settings=self.settings, clock=self._clock)

    def _check_size(self, prompt_tokens: int, output_tokens: int) -> None:
        if prompt_tokens == 0:
            raise RequestError("The prompt is empty; send at least one token.")
        self.settings.check_length(prompt_tokens, output_tokens)
        pool = self._ranks[0].pool
        needed = pool.blocks_for(prompt_tokens, output_tokens)
        if needed > pool.total:
            raise RequestError(
                f"The request needs {needed} cache blocks of {pool.block_size} tokens and a rank "
                f"has {pool.total}. Shorten it, or start the engine with more --blocks."
            )


def piece_sizes(tokens: int, tokens_per_s: float) -> list[int]:
    """Split an output so that no piece takes under 2 ms, unless the whole does.

    Args:
        tokens: output tokens, >= 0.
        tokens_per_s: decode speed, above 0; `inf` gives one piece.
    """
    least = tokens if math.isinf(tokens_per_s) else math.ceil(_SHORTEST_SLEEP_S * tokens_per_s)
    if tokens < 2 * least:
        return [tokens] if tokens else []
    whole, rest = divmod(tokens, least)
    return [least] * (whole - 1) + [least + rest]
