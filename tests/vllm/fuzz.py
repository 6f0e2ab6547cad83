"""Random requests, hints and news, also hostile ones; everything follows from the seed."""

from __future__ import annotations

import itertools
import random
from collections import Counter

# First: it silences what vLLM's import warns of.
from benchmarks.retention.tiny import MESSAGE, SYSTEM, envelope
from tenuto_vllm import _wire
from tenuto_vllm.retention.hint import ACTION, Hint, pack

from .checked import CheckedEngine

SESSIONS, TENANTS = 6, 3
LONGEST = 420

HOSTILE_HINTS = [
    *(";;;", "s", "s;;;", "s" * 9000, "s;;s;next=tool", "☃;;;next=tool", "\x00;;;", 5, None, {}),
    *("s;;;next=tool, gap=1e400", "s;;;gap=-1", "s;;;ttl=99999999", "s;;;next=end, next=tool"),
    *("s;;;at=(0 1 2 3 9999 -9999)", "s;;;keep=999999999, prefix=0", 's;s;s;drop="s s s"'),
]
_SHAPES = [
    *('{"turns": 1}', '{"turns": [[]]}', '{"turns": [["s"]]}', '{"turns": [null]}'),
    *('{"turns": [["s", "tool", -1, -1]]}', '{"turns": [["s", "no", 1e999, NaN]]}'),
    *('{"turns": [[5, {}, [], ""]]}', '{"turns": [["s", "tool", "1", true, 7]]}'),
    *('{"ended": "abc"}', '{"ended": [[]]}', '{"ended": [null, 5, {}]}'),
]
HOSTILE_NEWS = [
    *("", "{", "null", "[]", '"x"', "5", "NaN", "[" * 5000, "\ud800", None, 5, b"\xff", {}),
    *_SHAPES,
]


def envelopes(draw):
    """Return a request's field with an envelope as another orchestrator, or an enemy, sends it."""
    payloads = [{}, {"hint": draw.choice(HOSTILE_HINTS)}, {"hint": ["s"]}, {"other": 1}]
    kinds = [ACTION, "other.action", ""]
    many = draw.choice([0, 1, 3])
    return envelope(*((draw.choice(kinds), draw.choice(payloads)) for _ in range(many)))


class Fuzz:
    """Sessions of several tenants that talk at random.

    Args:
        seed: everything follows from it.
        scheduler: a class of vLLM's or ours.
        blocks: of the pool.
        marked: hints and news are sent.
        deferred: blocks are freed late, as with a connector that brings KV from elsewhere.
        how: the engine's other arguments.
    """

    def __init__(self, seed, scheduler, *, blocks=90, marked=True, deferred=False, **how):
        self.draw = random.Random(seed)
        self.engine = CheckedEngine(scheduler, blocks, batched_tokens=256, **how)
        self.engine.scheduler.defer_block_free = deferred
        self.marked = marked
        self.contexts = {}
        self.live = {}
        self.most_live = 14
        self.did = Counter()

    def run(self, requests):
        """Let so many requests come and end."""
        happens = {
            self.ask: 0.5,
            self.hang_up: 0.02,
            self.tell: 0.05,
            self.reset: 0.01,
            self.reset_running: 0.003,
            self.wait: 0.02,
            self.crowd: 0.01,
        }
        while self.did["requests"] < requests or self.live:
            for what, chance in happens.items():
                if self.draw.random() < chance and (what != self.ask or self.has_room(requests)):
                    what()
            self.engine.step()
            self.collect()
        for _ in range(3):
            self.engine.step()

    def has_room(self, requests):
        return self.did["requests"] < requests and len(self.live) < self.most_live

    def crowd(self):
        # Leases are lost where it is crowded, and honoured or run out where it is not.
        self.most_live = self.draw.choice([1, 3, 14])

    def wait(self):
        self.engine.now_s += self.draw.choice([0.5, 5.0, 700.0])

    def reset(self):
        self.did["resets"] += self.engine.scheduler.reset_prefix_cache()
        self.engine.check()

    def reset_running(self):
        self.engine.drain()
        self.engine.scheduler.reset_prefix_cache(reset_running_requests=True)
        self.engine.check()
        self.did["resets"] += 1

    def ask(self):
        draw = self.draw
        name = f"t{draw.randrange(TENANTS)}.session-{draw.randrange(SESSIONS)}"
        parent = ""
        context = self.contexts.get(name)
        if context is None:
            parent = draw.choice(["", *self.contexts])
            context = list(self.contexts.get(parent, [])) or self.tokens(draw.randint(5, 60))
        if draw.random() < 0.12:
            context = context[: draw.randint(1, len(context))]
        if draw.random() < 0.08 or len(context) > LONGEST:
            context = context[:20] + self.tokens(30)
        context = self.contexts[name] = context + self.tokens(draw.randint(1, 90))
        said = draw.random()
        fields = {"priority": draw.randrange(-2, 3)}
        if not self.marked or said < 0.15:
            fields["session_id"] = name
        elif said < 0.25:
            fields |= envelopes(draw)
        elif said < 0.35:
            fields["session_id"] = str(draw.choice(HOSTILE_HINTS))
        elif said < 0.4:
            fields["session_id"] = pack(self.hint(name, parent))
        else:
            fields["hint"] = pack(self.hint(name, parent))
        self.live[self.engine.submit(context, draw.randint(1, 90), **fields)] = name
        self.did["requests"] += 1

    def hint(self, name, parent):
        draw = self.draw
        turn = _wire.Turn(
            n=draw.choice([None, 0, 7]),
            attempt=draw.choice([None, None, 0, 1, 2]),
            phase=draw.choice([None, *sorted(_wire.PHASES)]),
            next=draw.choice([None, "tool", *sorted(_wire.NEXTS)]),
            gap=draw.choice([None, 0, 100, 5_000, 999_999_999]),
            ttl=draw.choice([None, None, 0, 1, 30, 99_999_999]),
            prefix=draw.choice([None, None, 0, 17, 64, 10**6]),
            keep=draw.choice([None, None, 0, 16, 100, 10**6]),
            at=draw.choice([(), (), (0,), (0, -1), (1, -9999)]),
            kind=draw.choice([None, *sorted(_wire.CLASSES)]),
            fork=draw.choice([None, "fresh", "inherit"]),
            prio=draw.choice([None, None, None, -8, 1, 8]),
            drop=draw.choice([(), (), ("nobody-here",)]),
        )
        return Hint(name, draw.choice(["", "run-1", "run-2"]), parent, turn)

    def hang_up(self):
        if not self.live:
            return
        name = self.draw.choice(list(self.live))
        self.engine.abort(name)
        self.live.pop(name)
        self.did["aborts"] += 1
        self.engine.check()

    def tell(self):
        if not self.marked:
            return
        draw = self.draw
        names = [f"t{draw.randrange(TENANTS)}.session-{draw.randrange(SESSIONS)}" for _ in range(2)]
        if draw.random() < 0.3:
            self.engine.ours.told(draw.choice(HOSTILE_NEWS))
        elif draw.random() < 0.2:
            self.engine.tell(ended=names)
        else:
            waits = [draw.choice([None, "tool", "user"]), draw.choice([None, 0, 3_000]), None]
            self.engine.tell(turns=[[name, *waits] for name in names])
        self.did["news"] += 1
        self.engine.check()

    def collect(self):
        for request in [name for name in self.live if self.engine.asks[name].done_s is not None]:
            name = self.live.pop(request)
            self.did["finished"] += 1
            if self.draw.random() < 0.7:
                self.contexts[name] = self.engine.asks[request].tokens

    def tokens(self, many):
        return [MESSAGE, SYSTEM, *(self.draw.randrange(3, MESSAGE + 1) for _ in range(many))]


def all_sessions():
    names = itertools.product(range(TENANTS), range(SESSIONS))
    # "s" is the one of the hostile hints that can be read.
    return ["s", *(f"t{tenant}.session-{session}" for tenant, session in names)]
