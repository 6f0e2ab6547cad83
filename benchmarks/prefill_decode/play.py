"""One rule on one pool, call by call."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from typing import Any

from benchmarks.prefill_decode.pool import Caches, Taken, Worker, taken
from benchmarks.prefill_decode.rules import Places, Rule
from tenuto.replay import CallRef, Schedule
from tenuto.trace import Trace
from tenuto.trace import Turn as Call
from tenuto_vllm.placement.split import Copies, Costs, Node, Turn

LIVE = 24
GAP_CAP_S = 300.0
BLOCK = 64
TRUE = Costs()
DECODE_S = 0.012
# What the rule does not know: how far its measured costs are off, what a prompt adds before
# anybody has tokenised it, and how long this prefill takes in particular.
OFF = (1.1, 0.9, 1.15)
SIGMA_TOKENS = 0.1
SIGMA_WORK = 0.1


class Play:
    """One rule on one pool.

    Args:
        traces: what is played.
        rule: that places; None chooses the best with everything known.
        prefills: how many prefill nodes.
        decodes: how many decode nodes.
        bytes_per_s: between them.
        capacity: of each node's cache, tokens.
    """

    def __init__(  # noqa: PLR0917 - what is varied
        self,
        traces: Sequence[Trace],
        rule: Rule | None,
        prefills: int,
        decodes: int,
        bytes_per_s: float,
        capacity: int,
    ) -> None:
        self._traces, self._rule = traces, rule
        self._names = [f"p{n}" for n in range(prefills)] + [f"d{n}" for n in range(decodes)]
        self._prefills = prefills
        self._workers = [Worker() for _ in self._names]
        self._caches = Caches(len(self._names), BLOCK, capacity)
        self._copies = Copies(BLOCK)
        for name in self._names:
            self._copies.sized(name, capacity)
        self._costs = TRUE._replace(transfer_bytes_per_s=bytes_per_s)
        self._said = self._costs._replace(
            prefill_s_per_token=self._costs.prefill_s_per_token * OFF[0],
            prefill_s_per_token2=self._costs.prefill_s_per_token2 * OFF[1],
            transfer_bytes_per_s=bytes_per_s * OFF[2],
        )
        self._had: dict[CallRef, int] = {}
        self._costs_s: list[float] = []
        self._best_s: list[float] = []
        self._firsts_s: list[float] = []
        self._after_s = 0.0
        self._moved = self._local = self._exact = self._cached = 0

    def play(self) -> dict[str, Any]:
        """Play all calls; return what came of it."""
        schedule = Schedule(self._traces, gap_cap_s=GAP_CAP_S, live_sessions=LIVE)
        events: list[tuple[float, int, int, CallRef, int]] = []
        count = 0
        for due in schedule.start(0.0):
            heapq.heappush(events, (due.at_s, 2, count := count + 1, due.ref, 0))
        while events:
            now_s, kind, _, ref, node = heapq.heappop(events)
            call = self._call(ref)
            if kind == 2:
                first_s, node, prefill = self._place(ref, call, now_s)
                done_s = self._workers[prefill].free_s
                heapq.heappush(events, (done_s, -1, count := count + 1, ref, prefill))
                heapq.heappush(events, (now_s + first_s, 1, count := count + 1, ref, node))
            elif kind == -1:
                self._workers[node].done(now_s)
                self._prefilled(ref, call, node)
            elif kind == 1:
                worker = self._workers[node]
                each_s = DECODE_S + self._costs.decode_s_per_running * worker.running
                worker.running += 1
                over_s = now_s + each_s * max(0, call.output_tokens - 1)
                heapq.heappush(events, (over_s, 0, count := count + 1, ref, node))
            else:
                self._workers[node].running -= 1
                self._answered(ref, call, node)
                for due in schedule.finished(ref, now_s):
                    heapq.heappush(events, (due.at_s, 2, count := count + 1, due.ref, 0))
        return self._outcome()

    def _call(self, ref: CallRef) -> Call:
        return self._traces[ref.trace].sessions[ref.session].turns[ref.turn]

    def _place(self, ref: CallRef, call: Call, now_s: float) -> tuple[float, int, int]:
        """Send a call; return the seconds to its first token, and the node that decodes."""
        held = self._caches.held(ref.trace, call.blocks, call.input_tokens)
        draw = random.Random(f"{ref}")
        off = draw.lognormvariate(0.0, SIGMA_WORK)
        costs = self._costs._replace(
            prefill_s_per_token=self._costs.prefill_s_per_token * off,
            prefill_s_per_token2=self._costs.prefill_s_per_token2 * off,
        )
        known = {
            (decode, prefill): self._taken(call, held, (decode, prefill), now_s, costs)
            for decode in range(self._prefills, len(self._names))
            for prefill in (decode, *range(self._prefills))
        }
        best = min(known, key=lambda pair: known[pair].cost_s)
        if self._rule is None:
            decode, prefill = best
        else:
            turn = self._turn(ref, call, draw.lognormvariate(0.0, SIGMA_TOKENS))
            nodes = [self._node(index, now_s) for index in range(len(self._names))]
            pool = nodes[: self._prefills], nodes[self._prefills :]
            named, by = self._rule(Places(turn, self._copies, *pool, self._said))
            decode = self._names.index(named)
            prefill = decode if by is None else self._names.index(by)
        what = known[decode, prefill]
        self._costs_s.append(what.cost_s)
        self._best_s.append(known[best].cost_s)
        self._after_s += what.after_s
        self._firsts_s.append(what.first_s)
        self._moved += what.moved
        self._local += decode == prefill
        self._cached += held[prefill]
        self._sent(ref, (decode, prefill), what, held[prefill], now_s)
        return what.first_s, decode, prefill

    def _taken(
        self, call: Call, held: list[int], pair: tuple[int, int], now_s: float, costs: Costs
    ) -> Taken:
        decode, prefill = pair
        return taken(
            call.input_tokens,
            (held[decode], held[prefill]),
            costs,
            wait_s=max(0.0, self._workers[prefill].free_s - now_s),
            running=self._workers[decode].running,
            output=call.output_tokens,
            arrivals_per_s=self._workers[prefill].arrivals_per_s,
            is_remote=decode != prefill,
        )

    def _turn(self, ref: CallRef, call: Call, off: float) -> Turn:
        """Return what a client says of a call: it has not tokenised what is new."""
        session = self._traces[ref.trace].sessions[ref.session]
        if not ref.turn:
            return Turn(_name(ref), round(call.input_tokens * off))
        before = session.turns[ref.turn - 1]
        prefix, keep = before.input_tokens + before.output_tokens, None
        shared = _shared(before, call)
        if shared < before.block_count or call.input_tokens < prefix:
            keep = min(shared * BLOCK, call.input_tokens)
            self._copies.edited(_name(ref), keep)
        kept = prefix if keep is None else keep
        append = round((call.input_tokens - kept) * off)
        return Turn(_name(ref), keep=keep, prefix=prefix, append=append)

    def _node(self, index: int, now_s: float) -> Node:
        worker = self._workers[index]
        role = "prefill" if index < self._prefills else "decode"
        return Node(
            self._names[index],
            role,
            0,
            worker.running,
            queued_s=worker.queued_s(now_s),
            arrivals_per_s=worker.arrivals_per_s,
        )

    def _sent(
        self, ref: CallRef, pair: tuple[int, int], what: Taken, held: int, now_s: float
    ) -> None:
        (decode, prefill), call = pair, self._call(ref)
        worker, name = self._workers[prefill], self._names[prefill]
        worker.free_s = max(now_s, worker.free_s) + what.work_s
        worker.computed += what.computed
        expected = self._copies.expected(_name(ref), name)
        self._exact += min(expected, (call.input_tokens - 1) // BLOCK * BLOCK) == held
        work_s = self._said.prefill(call.input_tokens - expected, expected)
        worker.sent(now_s, work_s)
        self._had[ref] = held
        for node in {prefill, decode}:
            self._copies.sent(_name(ref), self._names[node], call.input_tokens)
        for node in {prefill, decode}:
            self._caches.put(ref.trace, call.blocks, call.block_count, node)

    def _prefilled(self, ref: CallRef, call: Call, node: int) -> None:
        name = self._names[node]
        self._copies.reported(_name(ref), name, self._had.pop(ref))
        self._copies.prefilled(_name(ref), name, call.input_tokens)
        self._caches.put(ref.trace, call.blocks, call.block_count, node)

    def _answered(self, ref: CallRef, call: Call, node: int) -> None:
        name = self._names[node]
        self._copies.decoded(_name(ref), name, call.input_tokens, call.output_tokens)
        self._caches.put(ref.trace, call.blocks, call.block_count, node)
        turns = self._traces[ref.trace].sessions[ref.session].turns
        if ref.turn + 1 == len(turns):
            self._copies.forget(_name(ref))
        elif _shared(call, turns[ref.turn + 1]) == call.block_count:
            blocks = (call.input_tokens + call.output_tokens - 1) // BLOCK
            self._caches.put(ref.trace, turns[ref.turn + 1].blocks, blocks, node)

    def _outcome(self) -> dict[str, Any]:
        calls, best_s = len(self._costs_s), sum(self._best_s)
        firsts_s = sorted(self._firsts_s)
        return {
            "calls": calls,
            "total_s": (sum(self._costs_s) - self._after_s) / calls,
            "cost_s": sum(self._costs_s) / calls,
            "regret": (sum(self._costs_s) - best_s) / best_s,
            "ttft_s": sum(firsts_s) / calls,
            "ttft_p95_s": firsts_s[int(0.95 * calls)],
            "local": self._local / calls,
            "exact": self._exact / calls,
            "computed_prefill": sum(one.computed for one in self._workers[: self._prefills]),
            "computed_decode": sum(one.computed for one in self._workers[self._prefills :]),
            "moved_gb": self._moved * self._costs.kv_bytes_per_token / 1e9,
            "evicted": self._caches.evicted,
        }


def _name(ref: CallRef) -> str:
    return f"{ref.trace}.{ref.session}"


def _shared(one: Call, two: Call) -> int:
    """Return how many leading blocks two prompts share."""
    shared = 0
    for (first, length), (second, other) in zip(one.blocks, two.blocks, strict=False):
        if first != second:
            break
        shared += min(length, other)
        if length != other:
            break
    return shared
