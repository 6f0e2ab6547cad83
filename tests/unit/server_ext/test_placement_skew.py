"""Skewed loads against the placement, on the embedded engine's virtual clock."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tenuto_vllm.embedded.core import Call, Core, Ticket
from tenuto_vllm.embedded.latency import Latency
from tenuto_vllm.embedded.placements import PLACEMENTS

RANKS = 8
BLOCK = 64
# Of each client's own blocks; the engine's tables are as long as the largest.
STRIDE = 4_096
TOKENS_PER_S = 8_000


class Client(NamedTuple):
    """One that sends its next call when the last has ended and its wait is over."""

    session: str
    first_tokens: int
    grows: int
    gap_s: float = 0.0
    begins_s: float = 0.0
    calls: int = 1_000_000
    parent: str = ""
    shares: int = 0


def played(clients: Sequence[Client], until_s: float, tokens: int = 1_000_000) -> list[Ticket]:
    """Return the calls that were begun until then, by the server's placement, in order."""
    core = Core(
        RANKS,
        tokens // BLOCK + 1,
        BLOCK,
        latency=Latency(uncached_s=1 / TOKENS_PER_S, decode_s=1e-3),
        placement=PLACEMENTS["tenuto"],
    )
    due = [(client.begins_s, number, 0) for number, client in enumerate(clients)]
    heapq.heapify(due)
    whose: dict[Ticket, tuple[int, int]] = {}
    sent: list[Ticket] = []
    while due or whose:
        if due and (core.next_s is None or due[0][0] < core.next_s):
            at_s, number, turn = heapq.heappop(due)
            if at_s < until_s:
                ticket = core.submit(call_of(clients[number], number, turn), at_s)
                whose[ticket] = (number, turn)
                sent.append(ticket)
            continue
        assert core.next_s is not None
        for happened in core.advance(core.next_s):
            if happened.kind == "end":
                number, turn = whose.pop(happened.ticket)
                if turn + 1 < clients[number].calls:
                    heapq.heappush(due, (happened.at_s + clients[number].gap_s, number, turn + 1))
    return sent


def call_of(client: Client, number: int, turn: int) -> Call:
    tokens = client.shares + client.first_tokens + client.grows * turn
    of = 0 if client.parent else number + 1
    shared = of * STRIDE + np.arange(client.shares // BLOCK, dtype=np.int64)
    own = (number + 1) * STRIDE + np.arange(tokens // BLOCK - len(shared), dtype=np.int64)
    return Call(
        np.concatenate([shared, own]),
        tokens + 1,
        50,
        session=client.session,
        run=client.session,
        parent=client.parent,
        turn=turn,
        inherits=bool(client.parent),
    )


def most_moves_a_minute(sent: Sequence[Ticket]) -> int:
    moved: defaultdict[str, list[float]] = defaultdict(list)
    homes: dict[str, int] = {}
    for ticket in sent:
        session = ticket.call.session
        if homes.setdefault(session, ticket.rank) != ticket.rank:
            moved[session].append(ticket.submitted_s)
        homes[session] = ticket.rank
    return max(map(_most, moved.values()), default=0)


def _most(times: Sequence[float]) -> int:
    return max(sum(since <= at < since + 60 for at in times) for since in times)


def waits_s(sent: Sequence[Ticket]) -> list[float]:
    return [ticket.first_s - ticket.submitted_s for ticket in sent if ticket.first_s is not None]


def others() -> list[Client]:
    return [Client(f"other-{n:02}", 4_000, 200, 4.0, n * 0.3) for n in range(32)]


def test_a_key_with_much_of_the_traffic_is_no_thrash_and_starves_no_rank() -> None:
    heavy = [Client("heavy", 2_000, 800, begins_s=12.0, calls=60) for _ in range(32)]
    sent = played([*others(), *heavy], 240.0)
    share = sum(ticket.call.session == "heavy" for ticket in sent) / len(sent)
    assert 0.35 < share < 0.65
    assert most_moves_a_minute(sent) == 1
    for minute in range(4):
        served = Counter(t.rank for t in sent if minute * 60 <= t.submitted_s < minute * 60 + 60)
        assert min(served[rank] for rank in range(RANKS)) > 10
    behind = waits_s([t for t in sent if t.call.session != "heavy" and t.submitted_s > 30])
    assert np.percentile(behind, 90) < 1.0


def test_a_fan_out_of_64_children_goes_to_all_ranks_and_each_child_stays_where_it_is() -> None:
    parent = Client("parent", 16_000, 16, 5.0, calls=4)
    children = [
        Client(f"child-{n:02}", 10_000, 200, 5.0, 16.0, calls=6, parent="parent", shares=16_000)
        for n in range(64)
    ]
    sent = played([parent, *children, *others()], 120.0)
    first = Counter(ticket.rank for ticket in sent if ticket.call.parent and not ticket.call.turn)
    assert sorted(first) == list(range(RANKS))
    assert max(first.values()) < 64 / 2
    assert most_moves_a_minute(sent) <= 1
    last = [ticket for ticket in sent if ticket.submitted_s > 60]
    assert np.percentile(waits_s(last), 90) < 1.0
