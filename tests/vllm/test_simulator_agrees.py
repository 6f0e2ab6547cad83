"""The simulator and the embedded engine count as vLLM does: three recorded sessions, call by call.

The sessions are interleaved, one call after another, in the order in which the simulator makes
them. What could differ and does not show here: a batch of several requests frees their blocks
in the order in which they end, which is a matter of time.
"""

from __future__ import annotations

import functools
from pathlib import Path

import httpx
import pytest

from examples.demo.engines import vllm_server
from tenuto.replay import prompt_text
from tenuto.simulate import Setup, simulate
from tenuto.trace import read
from tenuto_vllm.embedded import EngineSettings, serve

TRACES = Path(__file__).parents[2] / "examples/traces"
NAMES = ["0277", "0403", "0121"]
BLOCK = 32
# The longest prompt takes 362 blocks, so a pool of 520 evicts and one of 4000 does not.
POOLS = [4000, 520]
MOST_OUTPUT = 16


@functools.cache
def traces():
    paths = [TRACES / f"weka_trace_{name}_f8.jsonl.gz" for name in NAMES]
    return [trace for path in paths for trace in read(path)]


def simulated(blocks):
    setup = Setup(
        ranks=1,
        tokens_per_rank=(blocks - 1) * BLOCK,
        block_size=BLOCK,
        mode="asap",
        concurrency=1,
        max_output_tokens=MOST_OUTPUT,
    )
    return sorted(simulate(traces(), setup).turns, key=lambda turn: turn.start_s)


def counted(root_url, order):
    """Make the calls one after another; return (prompt, cached, output) tokens of each."""
    rows = []
    of = {(trace.id, session.label): session for trace in traces() for session in trace.sessions}
    with httpx.Client(base_url=root_url, timeout=120, trust_env=False) as http:
        for number, call in enumerate(order):
            turn = of[call.trace, call.session].turns[call.turn]
            prompt = prompt_text(
                turn.blocks, turn.input_tokens, traces()[0].block_size, salt=call.trace, call=number
            )
            body = {"model": "tiny", "prompt": prompt, "max_tokens": call.output_tokens}
            answer = http.post("/v1/completions", json={**body, "ignore_eos": True})
            usage = answer.raise_for_status().json()["usage"]
            cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
            rows.append((usage["prompt_tokens"], cached, usage["completion_tokens"]))
    return rows


@pytest.mark.parametrize("blocks", POOLS)
def test_each_call_of_three_recorded_sessions_finds_the_same_tokens_cached_on_all_three(blocks):
    order = simulated(blocks)
    told = [(call.prompt_tokens, call.cached_tokens, call.output_tokens) for call in order]
    size = EngineSettings(
        ranks=1,
        blocks=blocks,
        block_size=BLOCK,
        prefill_tokens_per_s=float("inf"),
        decode_tokens_per_s=float("inf"),
    )
    with serve(size) as url:
        assert counted(url, order) == told
    with vllm_server(ranks=1, block_size=BLOCK, num_blocks=blocks) as server:
        assert counted(server.root_url, order) == told
    lost = sum((call.reachable_tokens or 0) - call.cached_tokens for call in order)
    assert (lost > 0) == (blocks == 520)
    assert len(order) == sum(trace.requests for trace in traces()) == 110
