"""The workload: agents whose tools take seconds, and people who ask once, on one engine.

Twelve sessions of eight turns begin within twenty seconds; a turn adds 150 to 400 tokens to a
prompt of at first 600, of which 200 are the same for all, and the next one comes half a second to
eight seconds after its answer. Beside them some four one-shot chats a second, of 300 to 900
tokens. Everything follows from the seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmarks.retention.virtual import Ask, VirtualEngine
from tenuto_vllm import _wire
from tenuto_vllm.retention.hint import Hint, pack

SESSIONS, TURNS, ANSWER = 12, 8, 24
FIRST_TOKENS, SHARED_TOKENS = 600, 200
TURN_TOKENS, CHAT_TOKENS, CHAT_ANSWER = (150, 400), (300, 900), 16
GAP_S, BEGIN_WITHIN_S, CHATS_PER_S = (0.5, 8.0), 20.0, 4.0


@dataclass(frozen=True, slots=True)
class Client:
    """What the agents say of themselves.

    Attributes:
        marked: anything at all.
        gaps: how long each wait will be.
        release: which turn is the last, and that the session has ended.
        wrong: the part of the turns that say the opposite of what comes.
    """

    marked: bool = True
    gaps: bool = False
    release: bool = True
    wrong: float = 0.0


class Outcome(NamedTuple):
    """What one run came to; `hit` is of all prompt tokens of that kind, times are seconds."""

    hit: float
    uncached_tokens: int
    ttft_s: tuple[float, ...]
    chat_ttft_s: tuple[float, ...]
    counts: dict[str, float]


@dataclass(slots=True)
class _Session:
    name: str
    random: random.Random
    tokens: list[int]
    left: int = TURNS
    gap_s: float = 0.0
    says_end: bool = False


@dataclass(slots=True)
class _Run:
    engine: VirtualEngine
    client: Client
    random: random.Random
    due: list[tuple[float, int, Callable[..., None], Any]] = field(default_factory=list)
    live: dict[str, _Session | None] = field(default_factory=dict)
    agents: list[Ask] = field(default_factory=list)
    chats: list[Ask] = field(default_factory=list)
    ended: int = 0
    order: itertools.count[int] = field(default_factory=itertools.count)

    def at(self, when_s: float, do: Callable[..., None], what: Any = None) -> None:
        heapq.heappush(self.due, (when_s, next(self.order), do, what))

    def turn(self, session: _Session) -> None:
        draw = session.random
        session.left -= 1
        session.tokens += _tokens(draw, draw.randint(*TURN_TOKENS))
        # One draw is left for whether a tool takes long, which this workload has none of.
        draw.random()
        session.gap_s = draw.uniform(*GAP_S)
        ends = session.left == 0 and self.client.release
        if self.client.wrong and draw.random() < self.client.wrong:
            ends = not ends
        session.says_end = ends
        self.live[self.engine.submit(session.tokens, ANSWER, hint=self._hint(session))] = session

    def chat(self, _: None) -> None:
        tokens = _tokens(self.random, self.random.randint(*CHAT_TOKENS))
        self.live[self.engine.submit(tokens, CHAT_ANSWER)] = None
        if self.ended < SESSIONS:
            self.at(self.engine.now_s + self.random.expovariate(CHATS_PER_S), self.chat)

    def collect(self) -> bool:
        done = [name for name in self.live if self.engine.asks[name].done_s is not None]
        for name in done:
            session, ask = self.live.pop(name), self.engine.asks[name]
            if session is None:
                self.chats.append(ask)
                continue
            self.agents.append(ask)
            session.tokens += ask.out
            if session.left:
                self.at(self.engine.now_s + session.gap_s, self.turn, session)
                continue
            self.ended += 1
            if session.says_end and self.client.marked:
                self.engine.tell(ended=[session.name])
        return bool(done)

    def _hint(self, session: _Session) -> str:
        if not self.client.marked:
            return ""
        gap = round(session.gap_s * 1000) if self.client.gaps else None
        turn = _wire.Turn(next="end" if session.says_end else "tool", gap=gap)
        return pack(Hint(session.name, turn=turn))


def run(scheduler: type, blocks: int, client: Client, seed: int) -> Outcome:
    """Run the workload once on a scheduler with a pool of `blocks` blocks of 16 tokens."""
    draw = random.Random(seed)
    this = _Run(VirtualEngine(scheduler, blocks), client, draw)
    shared = _tokens(draw, SHARED_TOKENS)
    for i in range(SESSIONS):
        this.at(draw.uniform(0, BEGIN_WITHIN_S), _begin(this, shared, seed * 1000 + i), f"run{i}")
    this.at(draw.expovariate(CHATS_PER_S), this.chat)
    engine = this.engine
    while this.ended < SESSIONS or this.live:
        while this.due and this.due[0][0] <= engine.now_s:
            _, _, do, what = heapq.heappop(this.due)
            do(what)
        scheduled = engine.step()
        if not this.collect() and not scheduled:
            engine.drain()
            if not this.live:
                engine.now_s = max(engine.now_s, this.due[0][0])
    engine.drain()
    _accounted_for(engine)
    return _outcome(this)


def _begin(this: _Run, shared: list[int], seed: int) -> Callable[[str], None]:
    def begin(name: str) -> None:
        draw = random.Random(seed)
        this.turn(_Session(name, draw, shared + _tokens(draw, FIRST_TOKENS - SHARED_TOKENS)))

    return begin


def _tokens(draw: random.Random, many: int) -> list[int]:
    return [draw.randrange(3, 500) for _ in range(many)]


def _accounted_for(engine: VirtualEngine) -> None:
    free, all_blocks = engine.pool.get_num_free_blocks(), engine.pool.num_gpu_blocks
    if free != all_blocks - 1:
        raise RuntimeError(f"{free} of {all_blocks} blocks are free after the last request")


def _outcome(this: _Run) -> Outcome:
    prompt = sum(ask.request.num_prompt_tokens for ask in this.agents)
    cached = sum(ask.cached or 0 for ask in this.agents)
    ours = this.engine.ours
    return Outcome(
        hit=cached / prompt,
        uncached_tokens=prompt - cached,
        ttft_s=_waits(this.agents),
        chat_ttft_s=_waits(this.chats),
        counts=ours.state()["counts"] if ours is not None else {},
    )


def _waits(asks: list[Ask]) -> tuple[float, ...]:
    return tuple(ask.first_s - ask.asked_s for ask in asks if ask.first_s is not None)


def mean_and_p95(waits_s: tuple[float, ...]) -> tuple[float, float]:
    """Return the mean and the 95th percentile."""
    return statistics.mean(waits_s), sorted(waits_s)[int(len(waits_s) * 0.95)]
