"""The dry run that changes nothing, and sessions told by their prompts alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import tenuto_vllm
from tenuto_vllm.config import Settings
from tenuto_vllm.embedded import EngineSettings, serve
from tests.loopback import eventually


@contextmanager
def engine(
    folder: Path, *, ranks: int = 2, blocks: int = 4_001, **how: Any
) -> Iterator[httpx.Client]:
    extension = partial(tenuto_vllm.TurnMiddleware, settings=Settings(state_dir=folder, **how))
    size = EngineSettings(
        ranks=ranks, blocks=blocks, prefill_tokens_per_s=1e9, decode_tokens_per_s=1e9
    )
    with (
        serve(size, middleware=[extension]) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=30) as http,
    ):
        yield http


def ask(http: httpx.Client, prompt: str, **headers: str) -> httpx.Response:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1}
    answer = http.post("/v1/completions", json=body, headers=headers)
    answer.raise_for_status()
    return answer


def state(http: httpx.Client) -> dict[str, Any]:
    return http.get("/tenuto/state").json()


def test_a_dry_run_leaves_requests_and_answers_as_they_are(tmp_path: Path) -> None:
    with engine(tmp_path, shadow=True) as http:
        for n in range(4):
            marked = {"X-Session-ID": "some-session", "X-Agent-Turn": f"n={n}"}
            answer = ask(http, "a" * 800, **marked)
            assert not {"x-agent-affinity", "x-agent-served"} & set(answer.headers)
            chosen = ask(http, "b" * 800, **{"X-data-parallel-rank": str(n % 2)}, **marked)
            assert chosen.headers["X-Engine-Rank"] == str(n % 2)


def test_a_dry_run_counts_what_each_choice_computes(tmp_path: Path) -> None:
    # Stock placement takes turns between idle ranks, so each second turn finds the one before
    # the last; at home it would find the last.
    with engine(tmp_path, shadow=True) as http:
        prompt = "s" * 1_600
        for n in range(6):
            ask(http, prompt, **{"X-Session-ID": "some-session", "X-Agent-Turn": f"n={n}"})
            prompt += "t" * 160
        told = state(http)["shadow"]
        assert told["requests"] == 6
        assert told["agree"] < 6
        ours = told["uncached_tokens"]
        # 1,600 at first and 160 a turn, against the first turn twice and 320 a turn.
        assert ours == 1_600 + 5 * 160
        assert told["stock_uncached_tokens"] >= ours + 1_600


SYSTEM = "You are one of a fleet of agents that share a long system prompt. " * 40


def conversation(name: str, turns: int) -> list[str]:
    prompt = SYSTEM + f"The task of this one is {name}. " * 20
    prompts = []
    for n in range(turns):
        prompts.append(prompt)
        prompt += f"{name} has seen the result of step {n}. " * 10
    return prompts


def test_sessions_told_by_content_stay_home_without_any_marker(tmp_path: Path) -> None:
    with engine(tmp_path, content=True) as http:
        for n in range(12):
            ask(http, conversation(f"warm-up {n}", 1)[0])
        ranks: Counter[str] = Counter()
        for n in range(12):
            turns = [ask(http, prompt) for prompt in conversation(f"agent number {n}", 5)]
            (home,) = {turn.headers["X-Engine-Rank"] for turn in turns}
            ranks[home] += 1
            cached = [
                turn.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for turn in turns[1:]
            ]
            before = [len(prompt) for prompt in conversation(f"agent number {n}", 5)]
            assert all(found >= size - 16 for found, size in zip(cached, before, strict=False))
        assert set(ranks) == {"0", "1"}
        assert state(http)["carriers"]["content"] >= 60
        assert eventually(lambda: state(http)["in_flight"] == state(http)["pending"] == [0, 0])


def test_content_is_read_only_where_nothing_else_names_a_session(tmp_path: Path) -> None:
    with engine(tmp_path, content=True) as http:
        answer = ask(http, SYSTEM, **{"X-Session-ID": "some-session", "X-Agent-Turn": "n=0"})
        assert answer.headers["X-Agent-Served"].endswith("why=first")
        answer = ask(http, SYSTEM)
        assert not {"x-agent-affinity", "x-agent-served"} & set(answer.headers)
        assert state(http)["carriers"] == {"headers": 1, "content": 1}


@pytest.mark.parametrize("content", [False, True])
def test_a_rank_that_is_asked_for_and_not_trusted_is_stripped_either_way(
    tmp_path: Path, content: bool
) -> None:
    with engine(tmp_path, content=content) as http:
        home = ask(http, SYSTEM).headers["X-Engine-Rank"]
        other = {"X-data-parallel-rank": str(1 - int(home))}
        seen = {ask(http, SYSTEM, **other).headers["X-Engine-Rank"] for _ in range(4)}
        assert seen == ({home} if content else {"0", "1"})
