"""Prefill and decode nodes on a virtual clock, with caches of real blocks. Nothing is drawn."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tenuto.trace import Runs
from tenuto_vllm.placement.split import Costs

# Of an edge: what is evicted at once is no more.
MOST_BLOCKS = 128


@dataclass(slots=True, eq=False)
class _Edge:
    """A stretch of consecutive block ids that each prompt has all of; a bit for each node."""

    length: int
    nodes: int = 0
    after: dict[int, _Edge] = field(default_factory=dict)


class Caches:
    """What every node has cached, in stretches of blocks, by last use and the ends first.

    So does vLLM, block by block.

    Args:
        nodes: how many.
        block_size: tokens in a block.
        capacity: tokens of each node.
    """

    def __init__(self, nodes: int, block_size: int, capacity: int) -> None:
        self._block_size = block_size
        self._most = capacity // block_size
        self._roots: dict[int, dict[int, _Edge]] = {}
        self._used: list[OrderedDict[_Edge, None]] = [OrderedDict() for _ in range(nodes)]
        self._blocks = [0] * nodes
        self.evicted = 0

    def held(self, trace: int, runs: Runs, input_tokens: int) -> list[int]:
        """Return how many leading tokens of a prompt each node has, but never the last."""
        counts = [0] * len(self._blocks)
        edges, having, blocks = self._roots.get(trace, {}), (1 << len(counts)) - 1, 0
        for first, length in runs:
            at, left = first, length
            while left and having and (edge := edges.get(at)):
                for node in range(len(counts)):
                    if (having & ~edge.nodes) >> node & 1:
                        counts[node] = blocks
                having &= edge.nodes
                step = min(left, edge.length)
                blocks, at, left = blocks + step, at + step, left - step
                edges = edge.after if step == edge.length else {}
            if left:
                break
        most = (input_tokens - 1) // self._block_size
        return [
            min(blocks if having >> node & 1 else count, most) * self._block_size
            for node, count in enumerate(counts)
        ]

    def put(self, trace: int, runs: Runs, blocks: int, node: int) -> None:
        """Put the first `blocks` blocks of a prompt into a node's cache."""
        edges, bit, path = self._roots.setdefault(trace, {}), 1 << node, []
        for first, length in runs:
            at, left = first, min(length, blocks)
            blocks -= left
            while left:
                edge = edges.get(at)
                if edge is None:
                    edge = edges[at] = _Edge(min(left, MOST_BLOCKS))
                elif left < edge.length:
                    edge = edges[at] = self._head(edge, at, left)
                path.append(edge)
                at, left, edges = at + edge.length, left - edge.length, edge.after
        used = self._used[node]
        for edge in reversed(path):
            if not edge.nodes & bit:
                edge.nodes |= bit
                self._blocks[node] += edge.length
                used[edge] = None
            used.move_to_end(edge)
        while self._blocks[node] > self._most and len(used) > len(path):
            edge, _ = used.popitem(last=False)
            edge.nodes &= ~bit
            self._blocks[node] -= edge.length
            self.evicted += edge.length

    def _head(self, edge: _Edge, first: int, length: int) -> _Edge:
        """Cut an edge; return its first part. The rest keeps its place in the order."""
        head = _Edge(length, edge.nodes, {first + length: edge})
        edge.length -= length
        for node, used in enumerate(self._used):
            if edge.nodes >> node & 1:
                used[head] = None
        return head


# Over which arrivals are counted.
FADE_S = 120.0


@dataclass(slots=True)
class Worker:
    """One node on the virtual clock.

    Attributes:
        free_s: when it has computed all prompts that it was given.
        waiting: seconds that its caller expects of each prompt that is not computed.
        since_s: when the first of them began.
        arrivals_per_s: prompts that come to it, as of `seen_s`.
        seen_s: when the last one came.
        running: requests that decode there.
        computed: tokens.
    """

    free_s: float = 0.0
    waiting: deque[float] = field(default_factory=deque)
    since_s: float = 0.0
    arrivals_per_s: float = 0.0
    seen_s: float = 0.0
    running: int = 0
    computed: int = 0

    def queued_s(self, now_s: float) -> float:
        """Return what waits there as its caller thinks."""
        if not self.waiting:
            return 0.0
        # What takes longer than expected is expected to take as long again as it is late.
        first = abs(self.waiting[0] - (now_s - self.since_s))
        return first + sum(self.waiting) - self.waiting[0]

    def sent(self, now_s: float, thought_s: float) -> None:
        """Note a prompt, and how long its caller thinks that it takes."""
        if not self.waiting:
            self.since_s = now_s
        self.waiting.append(thought_s)
        fade = math.exp(-(now_s - self.seen_s) / FADE_S)
        self.arrivals_per_s = self.arrivals_per_s * fade + 1 / FADE_S
        self.seen_s = now_s

    def done(self, now_s: float) -> None:
        """Note that the first of the prompts is computed."""
        self.waiting.popleft()
        self.since_s = now_s


class Taken(NamedTuple):
    """What a turn takes on certain nodes, with everything known.

    Attributes:
        cost_s: what the decision minimises: all of what follows, and what others lose.
        first_s: to the first token.
        work_s: of the prefill.
        computed: tokens.
        moved: tokens whose cache goes from one node to the other.
        after_s: of `cost_s`, what prompts wait that come during the prefill.
    """

    cost_s: float
    first_s: float
    work_s: float
    computed: int
    moved: int
    after_s: float


def taken(
    tokens: int,
    held: tuple[int, int],
    costs: Costs,
    *,
    wait_s: float,
    running: int,
    output: int,
    arrivals_per_s: float,
    is_remote: bool,
) -> Taken:
    """Return what a turn takes.

    Args:
        tokens: of its prompt.
        held: of them cached on the node that decodes and on the one that prefills.
        costs: as they are.
        wait_s: for the node that prefills.
        running: requests that decode on the node that decodes.
        output: tokens that are written.
        arrivals_per_s: prompts at the node that prefills.
        is_remote: whether the two nodes are two.
    """
    work_s = costs.prefill(tokens - held[1], held[1])
    first_s, moved = wait_s + work_s, 0
    damage_s = costs.stall_weight * running * work_s
    if is_remote:
        moved = tokens - held[0]
        first_s += costs.hop_s + costs.transfer(moved)
        damage_s = 0.0
    after_s = arrivals_per_s * work_s * work_s / 2
    cost_s = first_s + damage_s + after_s + output * costs.decode_s_per_running * running
    return Taken(cost_s, first_s, work_s, tokens - held[1], moved, after_s)
