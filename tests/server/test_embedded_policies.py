"""The engine's policies act on what the headers say, on the wire."""

from __future__ import annotations

import httpx

from tenuto_vllm.embedded import EngineSettings, serve


def ask(
    url: str, prompt: str, session: str, turn: str, parent: str | None = None
) -> httpx.Response:
    headers = {"X-Session-ID": session, "X-Agent-Turn": turn}
    if parent is not None:
        headers["X-Parent-Session-ID"] = parent
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1}
    answer = httpx.post(f"{url}/v1/completions", json=body, headers=headers, trust_env=False)
    return answer.raise_for_status()


def cached(answer: httpx.Response) -> int:
    tokens: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


def test_blocks_of_a_session_that_said_it_is_over_go_first() -> None:
    # Twelve blocks: two sessions of five fit, and a third needs room.
    size = EngineSettings(ranks=1, blocks=13, block_size=16, retention="drop-final")
    with serve(size) as url:
        ask(url, "a" * 80, "session-a", "n=0, next=tool")
        ask(url, "b" * 80, "session-b", "n=0, next=end")
        ask(url, "c" * 80, "session-c", "n=0, next=tool")
        assert cached(ask(url, "a" * 80 + "more", "session-a", "n=1")) == 80


def test_a_child_that_inherits_goes_where_its_parent_is() -> None:
    with serve(EngineSettings(ranks=4, placement="tenuto")) as url:
        parents = [ask(url, f"{n}" * 64, f"session-{n}", "n=0") for n in range(4)]
        for n, parent in enumerate(parents):
            child = ask(
                url, f"{n}" * 64 + "on", f"child-of-{n}", "n=0, fork=inherit", f"session-{n}"
            )
            assert child.headers["X-Engine-Rank"] == parent.headers["X-Engine-Rank"]
            assert cached(child) == 64
