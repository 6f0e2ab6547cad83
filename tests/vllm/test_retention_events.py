"""What a KV connector is told of leases, on vLLM's own scheduler with a connector of our own."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import pytest

# First: it silences what vLLM's import warns of.
from benchmarks.retention.virtual import MESSAGE, SYSTEM, envelope
from examples.deploy.offload.lines import Lines
from tenuto_vllm import TurnScheduler, _wire
from tenuto_vllm.retention.hint import ACTION, Hint, pack, unpack

from .asking import some_tokens
from .checked import CheckedEngine

# isort: split
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1 import multi_connector
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.v1.engine.core import EngineCore
from vllm.v1.outputs import KVConnectorOutput

SESSION = "session-a"
KEY = f"tenant.{SESSION}"


class Tier(KVConnectorBase_V1, SupportsHMA):
    """Stores nothing. It holds the blocks of finished requests while `holds`, as one that does."""

    holds = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.asked, self.held = [], []

    def on_new_request(self, request):
        self.asked.append(request)

    def request_finished(self, request, block_ids):
        if self.holds:
            self.held.append(request.request_id)
        return self.holds, None

    def request_finished_all_groups(self, request, block_ids):
        return self.request_finished(request, block_ids)

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return 0, False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        pass

    def build_connector_meta(self, scheduler_output):
        return KVConnectorMetadata()

    def start_load_kv(self, forward_context, **kwargs):
        pass

    def wait_for_layer_load(self, layer_name):
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass

    def wait_for_save(self):
        pass


class ToldTier(Tier):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.told = []

    def on_tenuto_event(self, event):
        self.told.append(event)


class Engine(CheckedEngine):
    """A virtual engine with a connector."""

    def __init__(self, tier, blocks=200, extra=None, **how):
        transfer = KVTransferConfig(
            kv_connector=tier.__name__,
            kv_connector_module_path=tier.__module__,
            kv_role="kv_both",
            kv_connector_extra_config=extra or {},
        )

        def connected(vllm_config, **fields):
            vllm_config.kv_transfer_config = transfer
            return TurnScheduler(vllm_config=vllm_config, **fields)

        super().__init__(connected, blocks, batched_tokens=512, **how)
        self.tier = self.scheduler.connector
        self.sent = set()

    def _run(self, plan):
        ran = super()._run(plan)
        ran.kv_connector_output = KVConnectorOutput(finished_sending=self.sent)
        self.sent = set()
        return ran

    def answer(self, tokens, session=KEY, most=20, **turn):
        said = pack(Hint(session, turn=_wire.Turn(**{"next": "tool", **turn})))
        name = self.submit(tokens, most, hint=said if session else "")
        while self.asks[name].done_s is None:
            self.step()
        self.settle()
        return self.asks[name]

    def tell(self, **news):
        """Bring news as an API process does."""
        EngineCore.tenuto_told(SimpleNamespace(scheduler=self.scheduler), json.dumps(news))

    def settle(self):
        """Step as vLLM does while an ended request is to be told of."""
        self.drain()
        self.step()

    def words(self):
        return [event.event for event in self.tier.told if event.session == SESSION]


def test_a_connector_finds_the_markers_in_the_hints_of_a_request():
    engine = Engine(Tier)
    engine.answer(some_tokens(100), gap=4000)
    (action,) = engine.tier.asked[0].kv_hints.actions
    assert action.action_type == ACTION
    assert unpack(action.payload["hint"]) == Hint(KEY, turn=_wire.Turn(next="tool", gap=4000))


def test_a_turn_is_told_with_the_blocks_that_its_prompt_and_its_answer_end_with():
    engine = Engine(ToldTier)
    published = []
    engine.pool.enable_kv_cache_events = True
    engine.scheduler.kv_event_publisher.publish = published.append
    engine.answer(some_tokens(100), most=30, gap=4000)
    (event,) = engine.tier.told
    assert (event.event, event.session, event.tenant) == ("leased", SESSION, "tenant")
    assert event.lasts_s > 4
    stored = [event for batch in published for event in batch.events]
    hashes = [block_hash for event in stored for block_hash in event.block_hashes]
    # Of 129 tokens in the cache, in blocks of 16.
    assert len(hashes) == 8
    assert event.boundaries == ((96, hashes[5]), (128, hashes[7]))


def test_states_that_a_hybrid_model_keeps_are_boundaries():
    engine = Engine(ToldTier, kind="mamba")
    system, task = [MESSAGE, SYSTEM, *some_tokens(78)], [MESSAGE, *some_tokens(79)]
    prompt = [*system, *task, MESSAGE, *some_tokens(100)]
    engine.answer(prompt, at=(1,), n=0)
    (event,) = engine.tier.told
    # The ends of the system prompt and of the named message, of the prompt and of the answer.
    assert [boundary.tokens for boundary in event.boundaries] == [80, 160, 256, 272]
    for boundary in event.boundaries:
        again = engine.answer([*engine.asks["r0"].tokens[: boundary.tokens], 501], "")
        assert again.cached == boundary.tokens


def test_a_state_that_was_not_kept_is_no_boundary(monkeypatch):
    monkeypatch.setenv("TENUTO_BOUNDARIES", "0")
    engine = Engine(ToldTier, kind="mamba")
    engine.answer([MESSAGE, SYSTEM, *some_tokens(198)], most=30)
    # vLLM keeps the state at the prompt's end, and none at 224, in the answer.
    assert [boundary.tokens for boundary in engine.tier.told[0].boundaries] == [192]


def test_what_becomes_of_a_lease_is_told_in_order():
    engine = Engine(ToldTier)
    context = engine.answer(some_tokens(200), gap=2000).tokens
    engine.tell(turns=[[KEY, None, 60_000, 90]])
    retimed = engine.tier.told[-1]
    assert retimed.lasts_s == pytest.approx(90, abs=1)
    context = engine.answer([*context, *some_tokens(50)]).tokens
    engine.answer([*context[:100], *some_tokens(100, seed=1)], keep=100)
    engine.now_s += 3600
    engine.settle()
    engine.tell(ended=[KEY])
    assert engine.words() == [
        *("leased", "retimed", "returned", "leased", "returned", "superseded", "leased"),
        *("expired", "released"),
    ]


def test_a_client_that_ends_the_wait_ends_the_lease():
    engine = Engine(ToldTier)
    engine.answer(some_tokens(200))
    engine.tell(turns=[[KEY, "end", None, None]])
    assert (engine.tier.told[-1].event, engine.tier.told[-1].lasts_s) == ("retimed", 0.0)


def test_a_lease_whose_blocks_others_need_is_lost_and_one_above_the_share_demoted():
    engine = Engine(ToldTier, blocks=100)
    engine.answer(some_tokens(800))
    engine.answer(some_tokens(1400, seed=1), session="")
    assert engine.words() == ["leased", "lost"]
    engine = Engine(ToldTier, blocks=100)
    engine.answer(some_tokens(800))
    engine.answer(some_tokens(700, seed=1), session="tenant.session-b")
    told = {(event.session, event.event) for event in engine.tier.told}
    assert {(SESSION, "leased"), ("session-b", "leased")} < told
    assert "demoted" in {word for _, word in told}


class Meddler(ToldTier):
    """Takes blocks into use and lets them go, as one that copies them does."""

    def bind_gpu_block_pool(self, gpu_block_pool):
        self.pool = gpu_block_pool

    def on_tenuto_event(self, event):
        super().on_tenuto_event(event)
        blocks = self.pool.free_block_queue.get_all_free_blocks()[::3]
        self.pool.touch(blocks)
        self.pool.free_blocks(blocks)


def test_a_connector_may_take_blocks_while_it_is_told():
    engine = Engine(Meddler, blocks=100)
    contexts = {f"tenant.session-{i}": some_tokens(400, seed=i) for i in "abc"}
    for seed in range(4):
        for session, context in contexts.items():
            contexts[session] = engine.answer([*context, *some_tokens(20)], session).tokens
        engine.answer(some_tokens(900, seed=seed), session="")
    assert {"leased", "lost", "returned"} <= {event.event for event in engine.tier.told}
    assert engine.pool.get_num_free_blocks() == engine.pool.num_gpu_blocks - 1


class Failing(ToldTier):
    def on_tenuto_event(self, event):
        super().on_tenuto_event(event)
        raise ZeroDivisionError


def test_a_connector_that_fails_is_told_nothing_more_and_no_request_fails(caplog):
    engine = Engine(Failing)
    with caplog.at_level(logging.INFO, "tenuto_vllm"):
        context = engine.answer(some_tokens(100)).tokens
        engine.answer(context)
    assert engine.words() == ["leased"]
    assert engine.ours.state()["counts"]["leased"] == 2
    assert [one.message for one in caplog.records] == ["connector_untold why=ZeroDivisionError"]


def test_a_connector_without_the_method_costs_nothing(caplog):
    with caplog.at_level(logging.INFO, "tenuto_vllm"):
        engine = Engine(Tier)
    assert engine.scheduler.tenuto_events is None
    assert engine.ours.heard is None
    said = [one.message for one in caplog.records if one.message.startswith("connector")]
    assert said == ["connector name=Tier told=0 hints=true frees_late=true"]


def test_the_connectors_in_a_multi_connector_are_told_too():
    each = {"kv_connector_module_path": ToldTier.__module__, "kv_role": "kv_both"}
    extra = {"connectors": [{"kv_connector": kind, **each} for kind in ("Tier", "ToldTier")]}
    engine = Engine(multi_connector.MultiConnector, extra=extra)
    engine.answer(some_tokens(100))
    assert [event.event for event in engine.tier.sub_connectors[1].told] == ["leased"]


def test_blocks_that_a_connector_still_sends_are_leased_once_they_are_sent():
    engine = Engine(ToldTier)
    engine.tier.holds = True
    context = engine.answer(some_tokens(200)).tokens
    assert not engine.words()
    # The session comes back while they are sent.
    context = engine.answer([*context, *some_tokens(20)]).tokens
    engine.tier.holds = False
    for name in engine.tier.held:
        assert engine.pool.get_num_free_blocks() < engine.pool.num_gpu_blocks - 1
        engine.sent = {name}
        engine.answer(some_tokens(20), session="")
    assert engine.pool.get_num_free_blocks() == engine.pool.num_gpu_blocks - 1
    assert not engine.scheduler.requests
    assert engine.words() == ["leased", "leased"]
    assert engine.ours.state()["leased"] == len(context) // 16
    assert engine.tier.told[-1].boundaries[-1].tokens == len(context) // 16 * 16


class Choosy(Tier):
    """As KVCR's tier, which raises where a request's hints have no `kv.fetch`."""

    def on_new_request(self, request):
        super().on_new_request(request)
        hints = request.kv_hints
        if hints is not None and "kv.fetch" not in [one.action_type for one in hints.actions]:
            raise ValueError("invalid router hint")


@pytest.mark.parametrize("retention", ["1", "0"])
def test_a_tier_that_takes_only_hints_of_its_own_is_shown_no_others(monkeypatch, retention):
    monkeypatch.setenv("TENUTO_RETENTION", retention)
    engine = Engine(Choosy, extra={"secondary_tiers": [{"type": "kvcr"}]})
    engine.answer(some_tokens(100))
    hint = pack(Hint(KEY))
    fetch = envelope((ACTION, {"hint": hint}), ("kv.fetch", {"source_control_endpoint": "tcp://a"}))
    engine.submit(some_tokens(100), 1, **fetch)
    assert [ask.kv_hints is None for ask in engine.tier.asked] == [True, False]
    if retention == "1":
        assert engine.ours.state()["leases"] == 1


class Bringing(Tier):
    """Has all of every prompt."""

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return (request.num_tokens - 1) // 16 * 16 - num_computed_tokens, False


class TrustingEngine(Engine):
    """What such a connector brings was written by no request."""

    def _verify(self, name, computed):
        pass


def test_tokens_that_a_connector_brought_are_none_that_a_lease_has_saved():
    engine = TrustingEngine(Bringing, blocks=100)
    context = engine.answer(some_tokens(600)).tokens
    engine.answer(some_tokens(1500, seed=1), session="")
    again = engine.answer([*context, *some_tokens(20)])
    assert again.cached == 624
    assert engine.ours.state()["counts"]["returned"] == 1
    assert engine.ours.state()["counts"]["saved_tokens"] == 0


class LinesTier(Lines, Tier):
    pass


def test_the_example_writes_a_line_for_each_event(tmp_path):
    file = tmp_path / "leases.jsonl"
    engine = Engine(LinesTier, extra={"lease_events": str(file)})
    engine.answer(some_tokens(100))
    engine.tell(ended=[KEY])
    leased, released = map(json.loads, file.read_text().splitlines())
    assert (leased["event"], leased["session"], leased["rank"]) == ("leased", SESSION, 0)
    assert [boundary["tokens"] for boundary in leased["boundaries"]] == [96, 112]
    assert (released["event"], released["boundaries"]) == ("released", [])
