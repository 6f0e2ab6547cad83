"""Turn boundaries of hybrid models on a real vLLM, and what `tenuto-vllm flags` says of it."""

from __future__ import annotations

import json
import subprocess

import pytest

from benchmarks.retention_hybrid import asking, hybrid_server, scenario
from examples.demo.engines import vllm_python
from tenuto_vllm.flags import advise

from .tiny_models import BLOCKS, CONFIGS

FIRST_TIME = {
    "turn after a long answer",
    "child of the last answer",
    "child of the named task",
    "compaction",
    "history edited back to a named message",
}


@pytest.fixture(scope="module", params=list(CONFIGS))
def cases(request):
    """The scenario without markers, as stock vLLM serves it, and with them."""
    with hybrid_server(request.param) as client:
        unmarked = scenario(asking(client, marked=False))
        yield BLOCKS[request.param], unmarked, scenario(asking(client, marked=True))


def test_each_boundary_is_hit_the_first_time_and_without_markers_it_is_missed(cases):
    block, unmarked, marked = cases
    for stock, ours in zip(unmarked, marked, strict=True):
        # The last token of what is shared was sampled, or ends a message, and is in no state.
        reached = max(0, ours.boundary - 1) // block * block
        assert (ours.name, ours.cached) == (stock.name, reached)
        if ours.name in FIRST_TIME:
            assert stock.cached < reached
        assert stock.cached <= reached


def test_what_is_answered_at_temperature_0_is_the_same(cases):
    _, unmarked, marked = cases
    assert [case.answer for case in marked] == [case.answer for case in unmarked]
    # A model that says one thing always would hide a wrong state.
    assert all(len(set(case.answer)) > 4 for case in marked)


# The middleware is a flag of the API server's, and every server of these tests is given it.
PARSE = """\
import json, sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

for words in json.loads(sys.argv[1]):
    told = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(words)
    interval, events = told.prefix_cache_retention_interval, told.kv_events_config
    print(told.scheduler_cls, interval, events.publisher)
"""


def test_vllm_takes_the_flags_that_are_advised():
    lines = [
        [
            word
            for flag in advise(config).flags
            for word in (flag.name, flag.value)
            if word and flag.name != "--middleware"
        ]
        for config in (*CONFIGS.values(), {"model_type": "llama"})
    ]
    command = [vllm_python(), "-c", PARSE, json.dumps(lines)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert told.splitlines()[-3:] == ["tenuto_vllm.TurnScheduler 0 zmq"] * 3
