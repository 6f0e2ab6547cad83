"""When a turn advances, and what opened it."""

from __future__ import annotations

import copy
import gc
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
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "tool"]), "content": values}),
    min_size=1,
    max_size=5,
)


@given(messages, values)
def test_an_equal_prompt_in_another_object_has_the_same_fingerprint(
    prompt: Any, other: Any
) -> None:
    body = {"messages": prompt, "model": "a", "temperature": other}
    again = {"model": "b", "messages": copy.deepcopy(prompt)}
    assert fingerprint(body) == fingerprint(again)


@given(messages, values)
def test_a_prompt_with_one_more_message_has_another(prompt: Any, content: Any) -> None:
    longer = [*prompt, {"role": "user", "content": content}]
    assert fingerprint({"messages": prompt}) != fingerprint({"messages": longer})


@given(values)
def test_any_body_is_looked_at_without_an_error(body: Any) -> None:
    fingerprint(body)
    phase_of(body, 1)
    fingerprint({"messages": body})
    phase_of({"messages": body}, 1)
    phase_of({"input": body}, 1)


def test_objects_that_are_not_json_still_tell_prompts_apart() -> None:
    one, two = {"input": [{"data": {1, 2}}]}, {"input": [{"data": {3}}]}
    assert fingerprint(one) == fingerprint({"input": [{"data": {1, 2}}]})
    assert fingerprint(one) != fingerprint(two)


def test_raw_bytes_are_told_apart_and_long_lists_of_token_ids_too() -> None:
    assert fingerprint(b"one") == fingerprint(b"one") != fingerprint(b"two")
    ids = list(range(100_000))
    assert fingerprint({"prompt": ids}) == fingerprint({"prompt": list(ids)})
    assert fingerprint({"prompt": ids}) != fingerprint({"prompt": [*ids, 1]})


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


@given(st.lists(st.integers(0, 9)))
def test_turns_count_new_prompts_and_attempts_count_tries(prompts: list[int]) -> None:
    state = SessionState()
    recent: list[int] = []
    tries: dict[int, int] = {}
    opened = 0
    for prompt in prompts:
        turn = state.open_turn(prompt)
        if prompt in recent:
            assert turn.next_attempt() == tries[prompt]
        else:
            assert (turn.n, turn.next_attempt()) == (opened, 0)
            opened, tries[prompt] = opened + 1, 0
            recent = [*recent, prompt][-4:]
        tries[prompt] += 1


def test_prompts_that_cannot_be_told_apart_open_a_turn_each() -> None:
    state = SessionState()
    assert [state.open_turn(None).n for _ in range(3)] == [0, 1, 2]


def test_threads_of_one_session_never_share_a_turn_or_an_attempt() -> None:
    state, seen = SessionState(), []
    turn = state.open_turn(1)

    def work(start: int) -> None:
        seen.extend(turn.next_attempt() for _ in range(500))
        seen.extend(-state.open_turn(start + i).n for i in range(500))

    threads = [threading.Thread(target=work, args=(1000 * (i + 1),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [-n for n in range(2000, 0, -1)] + list(range(2000))


def test_the_store_forgets_the_session_used_longest_ago_and_never_grows_past_its_limit() -> None:
    store = SessionStore(limit=3)
    first = store.get("a")
    for name in ("b", "c", "a", "d"):
        store.get(name)
    assert len(store) == 3
    assert store.get("a") is first
    gc.collect()
    forgotten = store.get("b")
    assert forgotten.open_turn(1).n == 0


def test_a_session_whose_scope_is_held_is_not_forgotten_and_a_used_one_is_kept_longest() -> None:
    store = SessionStore(limit=3)
    held, used = store.get("held"), store.get("used")
    used_id = id(used)
    for i in range(50):
        store.used("used", used)
        store.get(f"other-{i}")
    del used
    assert store.get("held") is held
    assert id(store.get("used")) == used_id
    assert len(store) == 3


def test_tokens_are_kept_by_origin_and_only_the_latest_few() -> None:
    state = SessionState()
    origins = [("http", f"host-{i}", 80) for i in range(20)]
    for origin in origins:
        state.keep_token(origin, f"token-{origin[1]}")
    assert state.token(origins[-1]) == "token-host-19"
    assert state.token(origins[0]) is None
    assert state.token(("https", "host-19", 80)) is None
