"""The embedded engine counts as vLLM does: the same recorded session, turn by turn."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from examples.demo.engines import vllm_server
from tenuto.replay import prompt_text
from tenuto.trace import read_weka
from tenuto_vllm.embedded import EngineSettings, serve

TRACE = Path(__file__).parents[2] / "examples/traces/weka_trace_0277_f8.jsonl.gz"
BLOCK = 32
# The longest prompt takes 362 blocks, so a pool of 520 evicts and one of 4000 does not.
POOLS = [4000, 520]


def turns():
    """Return (prompt, output tokens) of every turn of every agent, in recorded order."""
    (trace,) = read_weka(TRACE)
    every = [turn for session in trace.sessions for turn in session.turns]
    return [
        (prompt_text(turn.block_ids, turn.input_tokens, trace.block_size), 8)
        for turn in sorted(every, key=lambda turn: turn.start_s)
    ]


def counted(root_url):
    """Replay one call after another; return (prompt, cached, output) tokens of each."""
    rows = []
    with httpx.Client(base_url=root_url, timeout=120, trust_env=False) as http:
        for prompt, output_tokens in turns():
            body = {"model": "tiny", "prompt": prompt, "max_tokens": output_tokens}
            answer = http.post("/v1/completions", json={**body, "ignore_eos": True})
            usage = answer.raise_for_status().json()["usage"]
            cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
            rows.append((usage["prompt_tokens"], cached, usage["completion_tokens"]))
    return rows


@pytest.mark.parametrize("blocks", POOLS)
def test_each_turn_of_a_recorded_session_finds_the_same_tokens_cached_on_both(blocks):
    size = EngineSettings(
        ranks=1,
        blocks=blocks,
        block_size=BLOCK,
        prefill_tokens_per_s=float("inf"),
        decode_tokens_per_s=float("inf"),
    )
    with serve(size) as url:
        embedded = counted(url)
    with vllm_server(ranks=1, block_size=BLOCK, num_blocks=blocks) as server:
        real = counted(server.root_url)
    assert embedded == real
    assert sum(cached for _, cached, _ in real) > 0
