"""The ranks behind HTTP: `Core` on a clock that really passes, with answers made of text."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from tenuto_vllm.embedded.asked import Asked
from tenuto_vllm.embedded.clock import Clock, RealClock
from tenuto_vllm.embedded.core import Call, Core, Ticket
from tenuto_vllm.embedded.errors import RequestError
from tenuto_vllm.embedded.names import Names
from tenuto_vllm.embedded.placements import PLACEMENTS
from tenuto_vllm.embedded.pool import Ints
from tenuto_vllm.embedded.settings import EngineSettings
from tenuto_vllm.retention import RETENTIONS

# Shorter sleeps are mostly the event loop's own cost.
_SHORTEST_SLEEP_S = 0.002
_NAMES_PER_BLOCK = 8


@dataclass(slots=True)
class RankStats:
    """Counts of one rank since its start; tokens are counted when a request is admitted."""

    requests: int = 0
    in_flight: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    free_blocks: int = 0
    total_blocks: int = 0


class Generation:
    """One request in the engine, from `Engine.submit` until `close`.

    Use it as `with contextlib.closing(engine.submit(...)) as generation`, await
    `admitted`, then iterate over `pieces`. Leaving early at any point, by cancellation
    too, gives back what it holds.

    Attributes:
        rank: the rank that serves it.
        prompt_tokens: length of the prompt.
    """

    def __init__(self, engine: Engine, ticket: Ticket, output: str) -> None:
        self.rank = ticket.rank
        self.prompt_tokens = ticket.call.prompt_tokens
        self._engine = engine
        self._ticket = ticket
        self._output = output
        self._closed = False

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens found in the rank's cache; 0 until admitted."""
        return self._ticket.cached_tokens

    async def admitted(self) -> None:
        """Wait for the rank's prefill and for enough free blocks, and take both."""
        await self._engine.admission(self._ticket)

    async def pieces(self) -> AsyncIterator[str]:
        """Yield the output as it is decoded: ASCII, one character per token.

        Raises:
            RuntimeError: the generation was not admitted, or is closed.
        """
        first_s = self._ticket.first_s
        if first_s is None or self._closed:
            raise RuntimeError("await admitted() before the first piece")
        await self._engine.reach(first_s)
        end_s = self._ticket.end_s
        if end_s is None:
            raise RuntimeError("the request was given back before its first token")
        tokens = len(self._output)
        per_token_s = (end_s - first_s) / (tokens - 1) if tokens > 1 else 0.0
        at = 0
        for size in piece_sizes(tokens, 1 / per_token_s if per_token_s else math.inf):
            at += size
            await self._engine.reach(end_s if at == tokens else first_s + (at - 1) * per_token_s)
            yield self._output[at - size : at]

    def close(self) -> None:
        """Give back the rank, its prefill and all blocks; later calls do nothing."""
        self._closed = True
        self._engine.take_back(self._ticket)


class Engine:
    """The ranks, and where a request goes among them; implements `EngineView`.

    All methods belong to one event loop. None blocks it.

    Args:
        settings: sizes, speeds and policies.
        clock: where time comes from; the event loop's by default.

    Attributes:
        settings: as given.
        stopping: set by `stop`; whoever serves requests ends them when it is.
    """

    def __init__(self, settings: EngineSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.stopping = asyncio.Event()
        self._clock = clock or RealClock()
        self._core = Core(
            settings.ranks,
            settings.blocks,
            settings.block_size,
            latency=settings.takes(),
            placement=PLACEMENTS[settings.placement],
            retention=RETENTIONS[settings.retention],
        )
        self._names = Names(
            settings.block_size, _NAMES_PER_BLOCK * settings.blocks * settings.ranks
        )
        self._instance = secrets.token_hex(8)
        self._admissions: dict[Ticket, asyncio.Event] = {}

    def ranks(self) -> int:
        """Return how many ranks there are, >= 1."""
        return len(self._core.ranks)

    def instance(self) -> str:
        """Return this engine's random name: 16 hex digits, new at every start."""
        return self._instance

    def capacity(self) -> int | None:
        """Return the tokens that a rank's cache holds."""
        return self._core.ranks[0].pool.total * self.settings.block_size

    def dead(self) -> frozenset[int]:
        """Return no rank: none fails here."""
        return frozenset()

    def loads(self) -> Sequence[float]:
        """Return unfinished requests of each rank, rank order."""
        return [float(rank.load().inflight) for rank in self._core.ranks]

    def stats(self) -> list[dict[str, int]]:
        """Return `RankStats` of each rank as plain dictionaries, rank order."""
        return [
            asdict(
                RankStats(
                    rank.requests,
                    rank.load().inflight,
                    rank.prompt_tokens,
                    rank.cached_tokens,
                    rank.pool.free,
                    rank.pool.total,
                )
            )
            for rank in self._core.ranks
        ]

    def reset_prefix_cache(self) -> bool:
        """Empty the cache of every rank that runs nothing; return whether all could."""
        return self._core.reset()

    def stop(self) -> None:
        """Ask those who serve requests to end them."""
        self.stopping.set()

    def submit(
        self,
        prompt: Sequence[int],
        output: str,
        rank: int | None = None,
        asked: Asked | None = None,
    ) -> Generation:
        """Place a request; it counts as in flight until the result is closed or has ended.

        Args:
            prompt: token ids in [0, 2**32).
            output: what will be answered, ASCII, one token per character.
            rank: the rank that the request names; the placement decides if None.
            asked: whose it is and what follows it, for the policies; nothing is known if None.

        Raises:
            RequestError: no such rank, or the request can never fit.
        """
        ranks = self.ranks()
        if rank is not None and not 0 <= rank < ranks:
            raise RequestError(f"data_parallel_rank {rank} is out of range [0, {ranks}).")
        self._check_size(len(prompt), len(output))
        self._names.tidy(self._is_used)
        full = len(prompt) // self.settings.block_size
        # The newest token is not computed before the next one, so the last fills no block.
        keys = self._names.of([*prompt, *output[:-1].encode()])
        call = Call(
            keys[:full],
            len(prompt),
            len(output),
            keys[full:],
            **(asked or Asked())._asdict(),
        )
        ticket = self._core.submit(call, self._clock.now(), rank)
        self._admissions[ticket] = asyncio.Event()
        self._advance(self._clock.now())
        return Generation(self, ticket, output)

    async def admission(self, ticket: Ticket) -> None:
        """Return when a request has been admitted."""
        event = self._admissions.get(ticket)
        if event is not None:
            await event.wait()

    async def reach(self, at_s: float) -> None:
        """Return when the time is `at_s` and what happens until then has happened."""
        await self._clock.sleep(at_s - self._clock.now())
        # A sleep may end a rounding error early.
        self._advance(max(at_s, self._clock.now()))

    def take_back(self, ticket: Ticket) -> None:
        """Take a request back, wherever it is."""
        self._core.cancel(ticket, self._clock.now())
        self._admissions.pop(ticket, None)
        self._advance(self._clock.now())

    def _advance(self, now_s: float) -> None:
        for happened in self._core.advance(now_s):
            event = self._admissions.pop(happened.ticket, None)
            if event is not None:
                event.set()

    def _is_used(self, numbers: Ints) -> NDArray[np.bool_]:
        used = np.zeros(len(numbers), np.bool_)
        for rank in self._core.ranks:
            used |= rank.pool.holds(numbers)
            for ticket in rank.open:
                used |= np.isin(numbers, ticket.call.keys)
                if ticket.call.output_keys is not None:
                    used |= np.isin(numbers, ticket.call.output_keys)
        return used

    def _check_size(self, prompt_tokens: int, output_tokens: int) -> None:
        if prompt_tokens == 0:
            raise RequestError("The prompt is empty; send at least one token.")
        self.settings.check_length(prompt_tokens, output_tokens)
        pool = self._core.ranks[0].pool
        needed = pool.blocks_for(prompt_tokens, output_tokens)
        if needed > pool.total:
            raise RequestError(
                f"The request needs {needed} cache blocks of {pool.block_size} tokens and a rank "
                f"has {pool.total}. Shorten it, or start the engine with more --blocks."
            )


def piece_sizes(tokens: int, tokens_per_s: float) -> list[int]:
    """Split an output: its first token, then pieces that take 2 ms or more where they can.

    Args:
        tokens: output tokens, >= 0.
        tokens_per_s: decode speed, above 0; `inf` gives one piece.
    """
    if math.isinf(tokens_per_s) or tokens < 2:
        return [tokens] if tokens else []
    least = math.ceil(_SHORTEST_SLEEP_S * tokens_per_s)
    rest = tokens - 1
    if rest < 2 * least:
        return [1, rest]
    whole, over = divmod(rest, least)
    return [1, *[least] * (whole - 1), least + over]
