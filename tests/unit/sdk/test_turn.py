"""When a turn advances, and what opened it."""

from __future__ import annotations

import gc
import json
import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenuto.sessions import SessionState, SessionStore
from tenuto.turn import fingerprint, is_turn, phase_of

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values, st.text(max_size=8), st.text(max_size=8))
def test_another_model_has_the_same_fingerprint(prompt: Any, one: str, two: str) -> None:
    def sent(model: str) -> bytes:
        body = {"model": model, "messages": prompt}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    assert fingerprint(sent(one), one) == fingerprint(sent(two), two)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_other_bodies_have_other_fingerprints(one: bytes, two: bytes) -> None:
    assert (fingerprint(one, None) == fingerprint(two, None)) == (one == two)


@given(values)
def test_any_body_is_looked_at_without_an_error(body: Any) -> None:
    phase_of(body, 1)
    phase_of({"messages": body}, 1)
    phase_of({"input": body}, 1)


def test_the_phase_is_read_from_the_last_message_or_item() -> None:
    tool = {"role": "tool", "tool_call_id": "1", "content": "x"}
    output = {"type": "function_call_output", "call_id": "1", "output": "x"}
    user = {"role": "user", "content": "x"}
    assert phase_of({"messages": [user]}, 0) == "start"
    assert phase_of({"messages": [user, tool]}, 1) == "tool"
    assert phase_of({"messages": [tool, user]}, 2) == "user"
    assert phase_of({"input": [user, output]}, 1) == "tool"
    assert phase_of({"input": "x"}, 1) == "user"
    assert phase_of({"messages": [{"role": "assistant", "content": "x"}]}, 1) is None
    assert phase_of({"prompt": "x"}, 1) is None


def test_only_model_calls_open_turns() -> None:
    assert is_turn("POST", "/chat/completions")
    assert is_turn("post", "/responses?x=1")
    assert is_turn("POST", "https://host/v1/completions")
    assert not is_turn("GET", "/responses/resp_1")
    assert not is_turn("POST", "/responses/resp_1/cancel")
    assert not is_turn("POST", "/embeddings")


@given(st.lists(st.integers(0, 15)))
def test_turns_count_new_prompts_and_attempts_count_tries(prompts: list[int]) -> None:
    state = SessionState()
    window: dict[int, list[int]] = {}
    opened = 0
    for prompt in prompts:
        if prompt not in window:
            window[prompt], opened = [opened, 0], opened + 1
            window = dict(list(window.items())[-8:])
        assert list(state.next_attempt(prompt)) == window[prompt]
        window[prompt][1] += 1


def test_prompts_that_cannot_be_told_apart_open_a_turn_each() -> None:
    state = SessionState()
    assert [state.next_attempt(None) for _ in range(3)] == [(0, 0), (1, 0), (2, 0)]


def test_threads_of_one_session_never_share_a_turn_or_an_attempt() -> None:
    state, seen = SessionState(), []

    def work(start: int) -> None:
        for i in range(500):
            seen.append(state.next_attempt(1))
            seen.append(state.next_attempt(start + i))

    threads = [threading.Thread(target=work, args=(1000 * (i + 1),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 4000


def test_the_store_forgets_the_session_used_longest_ago_and_never_grows_past_its_limit() -> None:
    store = SessionStore(limit=3)
    first = store.get("a")
    for name in ("b", "c", "a", "d"):
        store.get(name)
    assert len(store) == 3
    assert store.get("a") is first
    gc.collect()
    forgotten = store.get("b")
    assert forgotten.next_attempt(1) == (0, 0)


def test_a_session_that_a_scope_holds_is_not_forgotten() -> None:
    store = SessionStore(limit=3)
    held = store.get("held")
    for i in range(50):
        store.get(f"other-{i}")
    assert store.get("held") is held
    assert len(store) == 3


def test_tokens_are_kept_by_origin_and_only_the_latest_few() -> None:
    state = SessionState()
    origins = [("http", b"host-%d" % i) for i in range(20)]
    for i, origin in enumerate(origins):
        state.keep_token(origin, f"token-{i}")
    assert state.token(origins[-1]) == "token-19"
    assert state.token(origins[0]) is None
    assert state.token(("https", b"host-19")) is None
