"""What of vLLM the retention builds on, looked up in the source of each release.

The releases are read out of their wheels, so that one can be checked that does not run here.
"""

from __future__ import annotations

import ast

import pytest

from tenuto_vllm.engine.compatibility import QUEUE, SCHEDULER
from tenuto_vllm.engine.spans import HOOKS

from .wheels import source

WITHOUT_HINTS = ["0.30.0"]
WITH_HINTS = ["0.31.0", "0.32.0", "0.33.0"]
each_release = pytest.mark.parametrize("version", WITHOUT_HINTS + WITH_HINTS)

CORE = "v1/core"
BLOCKS, POOL = f"{CORE}/kv_cache_utils.py", f"{CORE}/block_pool.py"
GROUPS, SCHED = f"{CORE}/single_type_kv_cache_manager.py", f"{CORE}/sched/scheduler.py"


@each_release
@pytest.mark.parametrize("name", QUEUE)
def test_the_queue_has_the_methods_that_ours_stands_for(version, name):
    assert source(version, BLOCKS).parameters("FreeKVCacheBlockQueue", name) == QUEUE[name]


@each_release
def test_the_queue_has_no_method_that_ours_does_not_know(version):
    methods = source(version, BLOCKS).methods("FreeKVCacheBlockQueue")
    assert set(methods) == {"__init__", *QUEUE}


@each_release
def test_the_queue_is_a_list_with_two_ends_linked_through_its_blocks(version):
    blocks = source(version, BLOCKS)
    ends = {"fake_free_list_head", "fake_free_list_tail", "num_free_blocks"}
    assert blocks.attributes("FreeKVCacheBlockQueue") == ends
    links = {"block_id", "ref_cnt", "prev_free_block", "next_free_block", "is_null"}
    assert links <= set(blocks.fields("KVCacheBlock"))


@each_release
@pytest.mark.parametrize("path", [POOL, "v1/simple_kv_offload/manager.py"])
def test_users_of_the_queue_call_only_what_ours_answers(version, path):
    used = source(version, path).attributes_of("free_block_queue", "free_queue")
    assert used
    assert used <= {*QUEUE, "num_free_blocks"}


@each_release
def test_the_pool_has_what_the_keeper_of_leases_looks_at(version):
    pool = source(version, POOL)
    needed = {"blocks", "enable_caching", "free_block_queue", "hash_block_size"}
    assert needed <= pool.attributes("BlockPool")
    written = ("request", "blocks", "num_cached_blocks", "num_full_blocks", "block_size")
    assert {*written, "kv_cache_group_id"} <= set(pool.parameters("BlockPool", "cache_full_blocks"))


@each_release
@pytest.mark.parametrize("name", SCHEDULER)
def test_the_scheduler_has_the_methods_that_ours_stands_in_front_of(version, name):
    assert source(version, SCHED).parameters("Scheduler", name) == SCHEDULER[name]


@each_release
def test_a_request_that_ends_is_freed_in_one_place(version):
    body = ast.unparse(source(version, SCHED).methods("Scheduler")["_free_blocks"].body)
    assert body == (
        "assert request.is_finished()\n"
        "self._free_request_blocks(request)\n"
        "del self.requests[request.request_id]"
    )


@each_release
def test_a_chunk_of_a_prompt_can_be_cut_shorter(version):
    assert source(version, SCHED).parameters("Scheduler", "_mamba_block_aligned_split") == (
        "request",
        "num_new_tokens",
        "num_new_local_computed_tokens",
        "num_external_computed_tokens",
    )


@each_release
@pytest.mark.parametrize("kind", ["SingleTypeKVCacheManager", "MambaManager"])
def test_a_group_keeps_the_states_that_it_is_asked_for(version, kind):
    groups = source(version, GROUPS)
    assert groups.parameters(kind, "cache_blocks") == (
        "request",
        "num_tokens",
        "retention_interval",
        "replay_boundaries",
    )
    assert {"req_to_blocks", "num_cached_block"} <= groups.attributes("SingleTypeKVCacheManager")
    assert "sliding_window" in groups.attributes("SlidingWindowManager")
    assert "mamba_cache_mode" in groups.attributes("MambaManager")


@each_release
def test_a_request_has_its_span_made_and_its_trace_headers_sent_back_as_is_known(version):
    outputs = source(version, "v1/engine/output_processor.py")
    for name, parameters in HOOKS.items():
        assert outputs.parameters("OutputProcessor", name) == parameters
    assert {"request_states", "tracing_enabled"} <= outputs.attributes("OutputProcessor")
    assert {"num_cached_tokens", "prompt_len"} <= outputs.attributes("RequestState")
    assert "__slots__" not in outputs.text
    assert "trace_headers" in source(version, "v1/engine/__init__.py").fields("EngineCoreOutput")
    scheduler = source(version, SCHED)
    assert "observability_config" in scheduler.attributes("Scheduler")
    text = scheduler.text
    # What is decided of a request's blocks is known before its last output is made.
    assert 0 < text.index("self._free_request(request)") < text.index("=request.trace_headers")


@each_release
def test_an_engine_finds_its_utilities_by_name(version):
    handler = source(version, "v1/engine/core.py").text
    assert "getattr(self, method_name)" in handler
    client = source(version, "v1/engine/core_client.py")
    assert "method" in client.parameters("AsyncMPClient", "_call_utility_async")


@each_release
def test_an_engine_chooses_between_two_schedulers(version):
    chooser = source(version, "config/scheduler.py").methods("SchedulerConfig")["get_scheduler_cls"]
    text = ast.unparse(chooser)
    assert "self.async_scheduling" in text
    assert "from vllm.v1.core.sched.async_scheduler import AsyncScheduler" in text
    assert "from vllm.v1.core.sched.scheduler import Scheduler" in text


@pytest.mark.parametrize("version", WITH_HINTS)
def test_a_request_carries_an_envelope_of_hints(version):
    protocol = source(version, "v1/kv_hints/protocol.py")
    assert protocol.fields("KvHintsEnvelope") == ["protocol_version", "message_id", "actions"]
    action = ["action_id", "action_type", "action_version", "payload"]
    assert protocol.fields("KvHintAction") == action
    inputs = source(version, "v1/engine/input_processor.py")
    assert "kv_hints" in inputs.parameters("InputProcessor", "process_inputs")
    assert "kv_hints" in source(version, "v1/request.py").attributes("Request")


@pytest.mark.parametrize("version", WITHOUT_HINTS)
def test_a_release_without_the_envelope_carries_a_session_id(version):
    request = source(version, "v1/request.py").attributes("Request")
    assert "session_id" in request
    assert "kv_hints" not in request
