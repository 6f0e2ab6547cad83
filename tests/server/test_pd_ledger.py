"""What the application notes of sessions, of caches and of what comes to each server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tenuto_vllm.pd.alike import cache_tokens
from tenuto_vllm.pd.fleet import Server
from tenuto_vllm.placement.split import Costs, Turn
from tests.loopback import eventually
from tests.server.pd_fakes import IDENTITY, SESSION, FakeServer, stack

OTHER = "session-0002"
SIZED = 'vllm:cache_config_info{{block_size="32",num_gpu_blocks="{}",engine="{}"}} 1.0\n'


@pytest.fixture
def prefill():
    return FakeServer("prefill")


@pytest.fixture
def decode():
    return FakeServer("decode")


def of(app, session=SESSION):
    """What is noted of a session, by role."""
    roles = {one.url: one.role for one in app.app.fleet.all()}
    return {roles[url]: tokens for url, tokens in app.app.copies.of(session).items()}


def settled(app, turns):
    assert eventually(lambda: len(app.told) == turns)


def test_a_hand_off_leaves_the_prompt_there_and_the_whole_context_here(prefill, decode):
    with stack([prefill], [decode], always="remote") as app:
        app.ask(127)
        settled(app, 1)
        assert of(app) == {"prefill": 96, "decode": 128}


def test_a_transfer_that_is_dropped_leaves_the_prompt_on_both(prefill, decode):
    with stack([prefill], [decode], always="remote", lease_s=1e-6) as app:
        app.ask(127)
        settled(app, 1)
        assert of(app) == {"prefill": 96, "decode": 128}


def test_a_prefill_that_failed_leaves_nothing_there(prefill, decode):
    with stack([prefill], [decode], always="remote") as app:
        prefill.statuses.append(500)
        app.ask(127)
        settled(app, 1)
        assert of(app) == {"decode": 128}


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_was_refused_is_cached_nowhere_and_was_not_fast(prefill, decode, is_stream):
    with stack([prefill], [decode], always="local") as app:
        decode.statuses.append(400)
        assert app.ask(3200, stream=is_stream).status_code == 400
        assert of(app) == {}
        assert app.app.fleet.decodes[0].rate == 0.0


def test_a_server_that_failed_has_what_it_had_before(prefill, decode):
    other = FakeServer("decode")
    with stack([prefill], [decode, other], always="local") as app:
        app.ask(320)
        settled(app, 1)
        copies, servers = app.app.copies, [one.url for one in app.app.fleet.decodes]
        (home,) = copies.of(SESSION)
        (beside,) = set(servers) - {home}
        copies.sent(SESSION, beside, 256)
        before = dict(copies.of(SESSION))
        decode.is_dead = other.is_dead = True
        assert app.ask(330).status_code == 502
        assert copies.of(SESSION) == before


def test_what_was_told_since_is_not_taken_back(prefill, decode):
    with stack([prefill], [decode]) as app:
        planner, copies = app.app._planner, app.app.copies
        node = app.app.fleet.decodes[0].url
        plan = planner.place(Turn(SESSION, 1000))
        planner.sent(plan, node)
        copies.decoded(SESSION, node, 640, 1)
        planner.failed(plan, node)
        assert of(app) == {"decode": 640}


def test_a_cache_of_known_size_lets_the_longest_unused_go(prefill):
    decode = FakeServer("decode", metrics=SIZED.format(64, 0) + IDENTITY)
    with stack([prefill], [decode], always="local") as app:
        app.ask(1504)
        app.ask(1504, session=OTHER)
        settled(app, 2)
        assert of(app, OTHER) == {"decode": 1504}
        assert of(app) == {"decode": 2048 - 1504}


def test_a_server_that_begins_anew_has_an_empty_cache_of_its_present_size(prefill):
    began = "process_start_time_seconds 1.0\n"
    decode = FakeServer("decode", metrics=SIZED.format(64, 0) + IDENTITY + began)
    with stack([prefill], [decode], always="local") as app:
        app.ask(1504)
        settled(app, 1)
        decode.metrics = SIZED.format(50, 0) + IDENTITY + began.replace("1.0", "2.0")
        assert eventually(lambda: of(app) == {})
        assert eventually(lambda: app.app.fleet.is_ready)
        app.ask(1504)
        app.ask(1504, session=OTHER)
        settled(app, 3)
        assert of(app) == {"decode": 1600 - 1504}


def test_the_ranks_of_a_server_have_a_cache_each():
    metrics = (SIZED.format(64, 0) + SIZED.format(64, 1)).encode()
    assert cache_tokens(metrics) == 4096
    assert cache_tokens(metrics.replace(b'num_gpu_blocks="64"', b'num_gpu_blocks="None"')) is None
    assert cache_tokens(IDENTITY.encode()) is None


def test_a_call_beside_a_history_is_no_turn_of_it(prefill, decode):
    with stack([prefill], [decode], always="local") as app:
        app.ask(1000, "n=0")
        app.ask(64, "n=1, class=auxiliary")
        decode.cached = 992
        app.ask(1100, "n=1")
        settled(app, 3)
        assert app.metric("tenuto_pd_prediction_error_tokens_total") == 0
        assert app.metric("tenuto_pd_predictions_total") == 2
    assert [told.predicted for told in app.told] == [0, 0, 992]


def test_a_call_beside_a_history_goes_where_what_it_begins_with_is(prefill, decode):
    with stack([prefill], [decode], always="local") as app:
        app.ask(1000, "n=0")
        app.ask(1100, "n=1, class=auxiliary, keep=640")
        headers = {"X-Session-ID": OTHER, "X-Parent-Session-ID": SESSION}
        headers["X-Agent-Turn"] = "n=0, class=auxiliary, fork=inherit"
        body = {"model": "tiny", "prompt": list(range(1100)), "max_tokens": 8}
        app.client.post("/v1/completions", json=body, headers=headers)
        settled(app, 3)
        assert of(app, OTHER) == {}
    assert [told.predicted for told in app.told] == [0, 640, 992]


@pytest.mark.parametrize(
    ("turn", "is_promised"),
    [("n=0", True), ("", True), ("n=0, class=auxiliary", False), ("n=0, prio=-1", False)],
)
def test_what_is_promised_holds_for_all_but_background_work(prefill, decode, turn, is_promised):
    with stack([prefill], [decode], slo_ttft_s=3.0, slo_itl_s=1e-9) as app:
        app.app.fleet.decodes[0].running = 1
        app.ask(40, turn)
        settled(app, 1)
    (told,) = app.told
    assert told.plan.promise_s == (3.0 if is_promised else None)
    # A local prefill would hold up the answer beside it for longer than is promised.
    assert (told.plan.decision.why == "slo") is is_promised


def test_prompts_are_counted_where_they_are_computed(prefill, decode):
    with stack([prefill], [decode], always="remote") as app:
        app.ask(100)
        source, target = app.app.fleet.all()
        assert source.arrivals_per_s > 0
        assert target.arrivals_per_s == 0
    with stack([prefill], [decode], always="local") as app:
        app.ask(100)
        assert app.app.fleet.decodes[0].arrivals_per_s > 0


def test_arrivals_fade():
    server = Server("http://a:1", "decode")
    for second in range(600):
        server.begin(1, 0.1, float(second))
    assert server.node(600.0).arrivals_per_s == pytest.approx(1.0, abs=0.02)
    assert server.node(720.0).arrivals_per_s == pytest.approx(0.37, abs=0.01)
    assert server.node(0.0).arrivals_per_s == server.arrivals_per_s


def test_what_is_being_computed_waits_for_what_is_left_of_it():
    server = Server("http://a:1", "prefill")
    server.begin(1000, 2.0, 10.0)
    server.begin(500, 1.0, 11.0)
    assert server.node(11.5).queued_s == 1.5
    # Late by a second: as long again.
    assert server.node(13.0).queued_s == 2.0
    server.end(1000, 2.0, 13.0)
    assert server.node(13.5).queued_s == 0.5
    server.end(500, 1.0, 14.0)
    assert server.node(14.0).queued_s == 0.0
    assert server.queued_tokens == 0


def test_the_wait_for_others_makes_a_server_no_slower():
    server = Server("http://a:1", "prefill")
    for begun_s in (0.0, 0.0, 0.0):
        server.begin(1000, 1.0, begun_s)
    for ended_s in (1.0, 2.0, 3.0):
        took_s = server.took_s(0.0, ended_s)
        server.end(1000, 1.0, ended_s)
        server.computed(1000, took_s)
    assert server.rate == 1000.0


def test_two_that_are_computed_together_are_no_faster_than_one():
    server = Server("http://a:1", "prefill")
    for pair in range(100):
        begun_s = 2.0 * pair
        server.begin(1000, 1.0, begun_s)
        server.begin(1000, 1.0, begun_s)
        for _ in range(2):
            took_s = server.took_s(begun_s, begun_s + 2.0)
            server.end(1000, 1.0, begun_s + 2.0)
            server.computed(1000, took_s)
    assert server.rate == pytest.approx(1000.0, rel=0.2)


def test_an_answer_that_is_no_stream_decodes_once_its_prompt_should_be_computed(prefill, decode):
    costs = Costs(prefill_s=0.05, prefill_s_per_token=0.0, prefill_s_per_token2=0.0)
    body = {"model": "tiny", "prompt": [1] * 100}
    with (
        stack([prefill], [decode], always="local", costs=costs) as app,
        ThreadPoolExecutor() as pool,
    ):
        decode.is_slow = True
        (_, server) = app.app.fleet.all()
        asked = pool.submit(app.client.post, "/v1/completions", json=body, timeout=2)
        assert eventually(lambda: server.running == 1)
        assert (server.queued_tokens, server.rate) == (0, 0.0)
        assert isinstance(asked.exception(20), httpx.ReadTimeout)
        assert eventually(lambda: server.running == 0)
