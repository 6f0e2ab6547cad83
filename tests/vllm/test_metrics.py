"""Our counters on a real vLLM's `/metrics`, summed over its API processes."""

from __future__ import annotations

import re
from collections import Counter

import httpx

from examples.demo.engines import vllm_server


def counted(root_url: str, name: str) -> dict[str, float]:
    text = httpx.get(f"{root_url}/metrics/", timeout=120, trust_env=False).text
    found: Counter[str] = Counter()
    for label, value in re.findall(rf'^{name}\{{[^}}"]*"([^"]+)"\}} (\S+)$', text, re.MULTILINE):
        found[label] += float(value)
    return dict(found)


def test_placed_requests_and_ignored_markers_are_counted_over_two_api_processes():
    with vllm_server(
        ranks=2, api_processes=2, middleware=("tenuto_vllm.TurnMiddleware",), num_blocks=1024
    ) as server:
        sent = Counter()
        for n in range(12):
            # A new connection each time, so that both API processes get some.
            headers = {"X-Session-ID": f"session-{n:08}", "X-Agent-Turn": "n=0, attempt=x"}
            body = {"model": "tiny", "prompt": f"{n:02}" * 160, "max_tokens": 2}
            answer = httpx.post(
                f"{server.root_url}/v1/completions",
                json=body,
                headers=headers,
                timeout=120,
                trust_env=False,
            )
            sent[re.search(r"rank=(\d)", answer.headers["X-Agent-Served"])[1]] += 1
        assert counted(server.root_url, "tenuto_placed_requests_total") == {"first": 12}
        assert counted(server.root_url, "tenuto_rank_requests_total") == dict(sent)
        tokens = counted(server.root_url, "tenuto_rank_uncached_tokens_total")
        assert tokens == {rank: 320 * count for rank, count in sent.items()}
        assert counted(server.root_url, "tenuto_ignored_markers_total") == {"turn.attempt": 12}
