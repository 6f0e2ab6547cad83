"""The decision is the cheapest of all pairs of nodes, as one reckons it by hand."""

from __future__ import annotations

from math import isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto_vllm.placement.split import Copies, Costs, Node, PlacementDecision, Turn, decide

BLOCK = 16
COSTS = Costs()


def naive(
    turn: Turn, copies: Copies, prefills: list[Node], decodes: list[Node], costs: Costs
) -> tuple[bool, float]:
    """Return whether the best pair breaks a promise, and what it costs."""
    length = turn.prompt_tokens

    def held(node: Node) -> int:
        bound = min(
            length - 1, *(said for said in (turn.keep, turn.prefix) if said is not None), length
        )
        return min(copies.expected(turn.session, node.name), bound // BLOCK * BLOCK)

    def work(new: int, behind: int) -> float:
        a, b = costs.prefill_s_per_token, costs.prefill_s_per_token2
        return costs.prefill_s + a * new + b * ((behind + new) ** 2 - behind**2)

    def queue(node: Node) -> float:
        return node.queued_s + node.queued_tokens * costs.prefill_s_per_token

    def move(tokens: int) -> float:
        return tokens * costs.kv_bytes_per_token / costs.transfer_bytes_per_s

    ways: list[tuple[bool, float]] = []
    for d in (node for node in decodes if node.is_up):
        crowd = turn.output_tokens * costs.decode_s_per_running * d.running
        own = work(length - held(d), held(d))
        first = queue(d) + own
        chunk = min(length - held(d), costs.chunk_tokens)
        breaks = (turn.slo_ttft_s is not None and first > turn.slo_ttft_s) or (
            turn.slo_itl_s is not None
            and d.running > 0
            and work(chunk, length - chunk) > turn.slo_itl_s
        )
        stall = costs.stall_weight * d.running * own + d.arrivals_per_s * own**2 / 2
        ways.append((breaks, first + stall + crowd))
        for p in (node for node in prefills if node.is_up):
            own = work(length - held(p), held(p))
            if costs.is_bidirectional and held(d) > held(p):
                own = min(own, move(held(d) - held(p)) + work(length - held(d), held(d)))
            first = queue(p) + own + costs.hop_s + move(length - held(d))
            breaks = turn.slo_ttft_s is not None and first > turn.slo_ttft_s
            ways.append((breaks, first + p.arrivals_per_s * own**2 / 2 + crowd))
    return min(ways)


def nodes(role: str) -> st.SearchStrategy[list[Node]]:
    one = st.tuples(
        st.integers(0, 50_000),
        st.integers(0, 40 if role == "decode" else 0),
        st.booleans(),
        st.floats(0, 5),
        st.floats(0, 2),
    )
    return st.lists(one, min_size=1, max_size=4).map(
        lambda values: [Node(f"{role}{n}", role, *value) for n, value in enumerate(values)]  # type: ignore[arg-type]
    )


TURNS = st.builds(
    Turn,
    session=st.just("s"),
    prompt_tokens=st.integers(1, 200_000),
    slo_ttft_s=st.none() | st.floats(0.05, 20),
    slo_itl_s=st.none() | st.floats(0.01, 0.5),
    keep=st.none() | st.integers(0, 200_000),
    prefix=st.none() | st.integers(0, 200_000),
)


@settings(max_examples=150, deadline=None)
@given(TURNS, nodes("prefill"), nodes("decode"), st.booleans(), st.data())
def test_no_pair_of_nodes_is_cheaper(
    turn: Turn,
    prefills: list[Node],
    decodes: list[Node],
    is_bidirectional: bool,
    data: st.DataObject,
) -> None:
    copies = Copies(BLOCK)
    for node in [*prefills, *decodes]:
        copies.reported("s", node.name, data.draw(st.sampled_from([0, 0, 30_000, 150_000])))
    costs = COSTS._replace(
        transfer_bytes_per_s=data.draw(st.sampled_from([1e9, 12e9, 1e11])),
        is_bidirectional=is_bidirectional,
    )
    # The prefill node is chosen by its cost, which is not its wait where others come after.
    if turn.slo_ttft_s is not None:
        prefills = [node._replace(arrivals_per_s=0.0) for node in prefills]
    decodes = [decodes[0]._replace(is_up=True), *decodes[1:]]
    made = decide(turn, copies, prefills, decodes, costs)
    _, best = naive(turn, copies, prefills, decodes, costs)
    cost = made.local_cost_s if made.prefill is None else made.remote_cost_s
    assert cost is not None
    assert isclose(cost, best, rel_tol=1e-9)


def pool(count: int, role: str, **state: object) -> list[Node]:
    return [Node(f"{role}{n}", role)._replace(**state) for n in range(count)]  # type: ignore[arg-type]


def made(turn: Turn, copies: Copies | None = None, **changed: object) -> PlacementDecision:
    prefills = changed.pop("prefills", None)
    decodes = changed.pop("decodes", None)
    return decide(
        turn,
        copies or Copies(BLOCK),
        pool(2, "prefill") if prefills is None else prefills,  # type: ignore[arg-type]
        decodes or pool(2, "decode", running=8),  # type: ignore[arg-type]
        COSTS,
        **changed,  # type: ignore[arg-type]
    )


def warm() -> Copies:
    copies = Copies(BLOCK)
    copies.prefilled("s", "prefill1", 100_000)
    copies.decoded("s", "decode1", 100_000, 400)
    return copies


def test_a_cold_prompt_goes_to_a_prefill_node_with_a_deadline() -> None:
    decision = made(Turn("s", 140_000))
    assert decision.prefill is not None
    assert (decision.why, decision.deadline_s) == ("stall", 20.0)
    assert decision.new_tokens == decision.transfer_tokens == 140_000
    assert decision.predicted == {decision.decode: 0, decision.prefill: 0}


def test_a_warm_turn_stays_where_its_cache_is() -> None:
    decision = made(Turn("s", 100_800, keep=100_400), warm(), decodes=pool(2, "decode", running=1))
    assert (decision.decode, decision.prefill, decision.deadline_s) == ("decode1", None, None)
    assert (decision.why, decision.new_tokens, decision.transfer_tokens) == ("warm", 416, 0)
    assert decision.predicted == {"decode1": 100_384}


def test_a_large_result_goes_to_the_prefill_node_that_has_the_prompt() -> None:
    decision = made(Turn("s", 150_400), warm())
    assert (decision.decode, decision.prefill) == ("decode1", "prefill1")
    assert decision.transfer_tokens == 150_400 - 100_384
    assert decision.predicted == {"decode1": 100_384, "prefill1": 100_000}


def test_the_markers_say_the_length_where_nobody_has_tokenised() -> None:
    decision = made(Turn("s", prefix=100_400, append=300), warm())
    assert (decision.prompt_tokens, decision.new_tokens) == (100_700, 316)
    decision = made(Turn("s", keep=1_000, prefix=100_400, append=2_000), warm())
    assert (decision.prompt_tokens, decision.predicted["decode1"]) == (3_000, 992)


@pytest.mark.parametrize(
    ("why", "turn", "changed"),
    [
        ("short", Turn("s", 100_400), {}),
        ("no-prefill", Turn("s", 150_000), {"prefills": []}),
        ("no-prefill", Turn("s", 150_000), {"prefills": pool(2, "prefill", is_up=False)}),
        ("no-decode", Turn("s", 100_800), {"decodes": pool(2, "decode", is_up=False)}),
        ("queue", Turn("s", 150_000), {"prefills": pool(2, "prefill", queued_s=90.0)}),
        ("queue", Turn("t", 9_000), {"decodes": pool(2, "decode", queued_s=9.0)}),
        ("slo", Turn("s", 100_900, slo_itl_s=0.05), {"decodes": pool(2, "decode", running=1)}),
        ("transfer", Turn("t", 50_000), {"decodes": pool(2, "decode")}),
    ],
)
def test_it_says_what_decided_it(why: str, turn: Turn, changed: dict[str, object]) -> None:
    assert made(turn, warm(), **changed).why == why


def test_new_sessions_are_dealt_over_nodes_that_are_alike() -> None:
    decisions = [made(Turn(f"s{n}", 140_000)) for n in range(40)]
    assert len({(one.decode, one.prefill) for one in decisions}) >= 2
    assert made(Turn("s1", 140_000)) == made(Turn("s1", 140_000))


def test_the_deadline_is_the_lease_less_its_margin() -> None:
    assert made(Turn("s", 140_000), lease_s=6.0).deadline_s == 4.0


def test_without_a_decode_node_there_is_nothing_to_decide() -> None:
    with pytest.raises(ValueError, match="no decode node"):
        decide(Turn("s", 10), Copies(BLOCK), [], [], COSTS)
