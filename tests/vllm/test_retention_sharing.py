"""Sessions that share a prefix: whichever of them goes first, the others find it."""

from __future__ import annotations

import itertools

import pytest

# First: it silences what vLLM's import warns of.
from benchmarks.retention.virtual import VirtualEngine
from tenuto_vllm import _wire
from tenuto_vllm.retention.hint import Hint, pack

from .asking import answer, chat, engine_of, leased, some_tokens

SHARED, OWN = 800, 200
FAMILY = ("parent", "child", "sibling")
PAIRS = list(itertools.permutations(FAMILY, 2))


def hint(session: str, parent: str = "", **turn) -> str:
    return pack(Hint(session, parent=parent, turn=_wire.Turn(**{"next": "tool", **turn})))


def a_family(engine: VirtualEngine, **least) -> dict[str, list[int]]:
    """Let two children fork from a parent and return what each has asked.

    Args:
        engine: to ask.
        least: of a session, its priority.
    """
    context = some_tokens(SHARED)
    asked = {
        "parent": context,
        "child": context + some_tokens(OWN, "child"),
        "sibling": context + some_tokens(OWN, "sibling"),
    }
    for name, tokens in asked.items():
        parent = "" if name == "parent" else "parent"
        answer(engine, tokens, hint(name, parent, prio=least.get(name)), most=1)
    return asked


def flood(engine: VirtualEngine) -> None:
    """Let so much chat come that of ordinary blocks none is left as it was."""
    for seed in range(8):
        chat(engine, 30, seed)


def found(engine: VirtualEngine, name: str, tokens: list[int]) -> int:
    return answer(engine, tokens + some_tokens(20, name), hint(name), most=1).cached


def last_turn(engine, name, tokens):
    answer(engine, tokens, hint(name, next="end"), most=1)


def told_last(engine, name, _):
    engine.tell(turns=[[name, "end", None, None]])


def explicit(engine, name, _):
    engine.tell(ended=[name])


def expiry(engine, name, _):
    engine.tell(turns=[[name, "tool", None, 1]])
    engine.now_s += 3
    engine.step()
    assert engine.ours.state()["counts"]["expired"]


WAYS = (last_turn, told_last, explicit, expiry)
by_name = {"ids": lambda way: way.__name__}


@pytest.mark.parametrize("way", WAYS, **by_name)
@pytest.mark.parametrize("first", FAMILY)
def test_after_one_has_ended_the_others_find_all_that_they_had(way, first):
    engine = engine_of()
    asked = a_family(engine)
    way(engine, first, asked[first])
    flood(engine)
    for name in FAMILY:
        if name != first:
            assert found(engine, name, asked[name]) == len(asked[name]) // 16 * 16


@pytest.mark.parametrize("way", WAYS, **by_name)
@pytest.mark.parametrize("ends", PAIRS, ids=" and ".join)
def test_after_two_have_ended_the_third_finds_all_that_it_had(way, ends):
    engine = engine_of()
    asked = a_family(engine)
    for name in ends:
        way(engine, name, asked[name])
        flood(engine)
    [left] = set(FAMILY) - set(ends)
    assert found(engine, left, asked[left]) == len(asked[left]) // 16 * 16


@pytest.mark.parametrize("first", FAMILY)
def test_who_gives_way_for_room_takes_nothing_that_others_use(first):
    engine = engine_of()
    asked = a_family(engine, **{first: -8})
    # 74 of 199 blocks are leased, of which this takes 15: no more than two tails.
    chat(engine, 140)
    assert engine.ours.state()["counts"]["lost"]
    for name in FAMILY:
        assert found(engine, name, asked[name]) >= SHARED


@pytest.mark.parametrize("ends", [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)], ids=str)
def test_of_three_generations_whichever_is_left_finds_all_that_it_had(ends):
    engine, names = engine_of(), ("first", "second", "third")
    asked = [some_tokens(640)]
    for name in names[1:]:
        asked.append(asked[-1] + some_tokens(160, name))
    for at, (name, tokens) in enumerate(zip(names, asked, strict=True)):
        answer(engine, tokens, hint(name, names[at - 1] if at else ""), most=1)
    for at in ends:
        engine.tell(ended=[names[at]])
        flood(engine)
    [left] = {0, 1, 2} - set(ends)
    assert found(engine, names[left], asked[left]) == len(asked[left])


def test_the_last_of_a_family_leaves_nothing_leased():
    engine = engine_of()
    a_family(engine)
    engine.tell(ended=list(FAMILY))
    engine.check()
    assert leased(engine) == 0
    assert not engine.ours.queue.heirs


def test_children_that_have_ended_take_no_place_of_one_that_waits():
    engine = engine_of()
    asked = a_family(engine)
    for number in range(6):
        tokens = asked["parent"] + some_tokens(60, f"short {number}")
        answer(engine, tokens, hint(f"short-{number}", "parent"), most=1)
        engine.tell(ended=[f"short-{number}"])
    engine.tell(ended=["parent"])
    flood(engine)
    for name in FAMILY[1:]:
        assert found(engine, name, asked[name]) == len(asked[name]) // 16 * 16


def test_siblings_at_the_same_time_are_counted_as_one_at_a_time():
    engine = engine_of()
    context = some_tokens(SHARED)
    answer(engine, context + some_tokens(300, "tail"), hint("parent"), most=1)
    tails = {name: context + some_tokens(OWN, name) for name in FAMILY[1:]}
    live = [engine.submit(tail, 20, hint=hint(name, "parent")) for name, tail in tails.items()]
    # Every step counts what each chain holds.
    while any(engine.asks[name].done_s is None for name in live):
        engine.step()
    engine.drain()
    engine.check()
    for name, tokens in tails.items():
        assert found(engine, name, tokens) == len(tokens) // 16 * 16


def test_requests_of_no_session_that_share_a_prefix_change_nothing():
    engine = engine_of()
    tokens = some_tokens(SHARED)
    answer(engine, tokens, hint("session-a"), most=1)
    before = leased(engine)
    for number in range(20):
        answer(engine, tokens + some_tokens(20, number), most=1)
    assert leased(engine) == before
    answer(engine, some_tokens(100, "other"), hint("session-b"), most=1)
    assert engine.ours.state()["counts"]["demoted"] == 0
    flood(engine)
    assert found(engine, "session-a", tokens) == SHARED


def test_requests_of_no_session_at_the_same_time_are_counted_as_one_at_a_time():
    engine = engine_of()
    tokens = some_tokens(SHARED)
    answer(engine, tokens + some_tokens(300, "tail"), hint("session-a"), most=1)
    live = [engine.submit(tokens + some_tokens(20, number), 20) for number in range(3)]
    # Every step counts what each chain holds.
    while any(engine.asks[name].done_s is None for name in live):
        engine.step()
    engine.drain()
    engine.check()


@pytest.mark.parametrize("steps", [0, 1, 2, 8], ids="{} steps".format)
def test_an_aborted_attempt_leaves_the_lease_as_it_was_and_the_retry_counts_once(steps):
    engine = engine_of()
    turn = answer(engine, some_tokens(SHARED), hint("session-a", gap=60_000))
    before, said = engine.ours.state(), engine.ours.decided(Hint("session-a"), "")
    engine.now_s += 10
    for _ in range(2):
        attempt = turn.tokens + some_tokens(900, "next")
        name = engine.submit(attempt, 40, hint=hint("session-a", ttl=0, prio=-8))
        for _ in range(steps):
            engine.step()
        engine.abort(name)
        engine.drain()
        engine.check()
    after = engine.ours.state()
    assert [after[what] for what in ("leased", "leases")] == [
        before[what] for what in ("leased", "leases")
    ]
    assert after["counts"] == before["counts"]
    assert engine.ours.decided(Hint("session-a"), "") == said
    flood(engine)
    assert found(engine, "session-a", turn.tokens) == SHARED
    counts = engine.ours.state()["counts"]
    assert [counts[what] for what in ("returned", "honoured", "hits")] == [1, 1, 1]


@pytest.mark.parametrize("session", ["session-a", "session-b"], ids=["known", "unknown"])
def test_an_aborted_fork_adds_nothing_and_costs_its_parent_nothing(session):
    engine = engine_of()
    turn = answer(engine, some_tokens(SHARED), hint("session-a"))
    before = leased(engine)
    fork = engine.submit(
        turn.tokens + some_tokens(OWN, "fork"), 40, hint=hint(session, "session-a")
    )
    for _ in range(6):
        engine.step()
    engine.abort(fork)
    engine.drain()
    engine.check()
    assert leased(engine) == before
    flood(engine)
    assert found(engine, "session-a", turn.tokens) == SHARED


def test_side_calls_under_the_name_of_a_session_do_not_cost_its_context():
    engine = engine_of()
    context = some_tokens(SHARED)
    for number in range(3):
        turn = answer(engine, context, hint("session-a"), most=1)
        context = turn.tokens + some_tokens(60, number)
        answer(engine, some_tokens(90, f"side {number}"), hint("session-a"), most=1)
        flood(engine)
        assert answer(engine, context, hint("session-a"), most=1).cached >= SHARED


def test_a_turn_that_ends_with_a_text_of_stop_keeps_its_lease_once_its_news_is_there():
    """https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/engine/output_processor.py

    vLLM looks for the texts of `stop` in its API process and aborts the request in the engine:
    agents that have their answers end so would lose every turn.
    """
    engine = engine_of()
    for session in ("session-a", "session-b"):
        name = engine.submit(some_tokens(SHARED, session), 40, hint=hint(session), stop=["End"])
        for _ in range(12):
            engine.step()
        assert engine.asks[name].request.num_output_tokens
        engine.abort(name)
        engine.drain()
        engine.check()
    engine.tell(turns=[["session-a", "tool", 60_000, None]])
    assert engine.ours.state()["leases"] == 2
    engine.now_s += 11
    engine.step()
    assert engine.ours.decided(Hint("session-a"), "").get("told_s") == 60
    assert "told_s" not in engine.ours.decided(Hint("session-b"), "")
    flood(engine)
    assert found(engine, "session-a", some_tokens(SHARED, "session-a")) >= SHARED - 32


def test_a_client_that_hangs_up_before_the_first_token_leaves_no_lease():
    engine = engine_of()
    name = engine.submit(some_tokens(SHARED), 40, hint=hint("session-a"), stop=["End"])
    engine.step()
    engine.abort(name)
    engine.drain()
    engine.check()
    assert engine.ours.state()["leases"] == 0
