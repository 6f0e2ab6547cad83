"""When a turn advances, what opened it, and what is known of its tokens."""

from __future__ import annotations

import gc
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.estimate import kept_of, phase, tokens
from tenuto.prompt import Outline, Prompt, read_prompt
from tenuto.sessions import Opened, SessionState, SessionStore, Usage, Wait
from tenuto.turn import is_turn

SYSTEM = {"role": "system", "content": "You are a careful engineer." * 4}
USER = {"role": "user", "content": "Why do the tests fail?"}
SAID = {"role": "assistant", "content": "Because of a missing import."}
TOOL = {"role": "tool", "tool_call_id": "1", "content": "a.txt"}
SUMMARY = {"role": "user", "content": "So far: an import is missing."}


def calling(name: str, call_id: str = "1") -> dict[str, Any]:
    function = {"name": name, "arguments": "{}"}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def item_calling(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "1", "name": name, "arguments": "{}"}


def output(call_id: str = "1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "x"}


def phase_in(prompt: Prompt | None, opened: Opened, body: Any, *, resumable: bool = False) -> Any:
    return phase(prompt, opened, kept_of(prompt, opened), body, is_resumable=resumable)


def phases(*bodies: dict[str, Any], resumable: bool = False, n: int = 0) -> list[str | None]:
    """Return the phase of each body, sent one after the other in one session."""
    state = SessionState()
    state.resume_at(n)
    found = []
    for body in bodies:
        prompt = read_prompt(body)
        opened = state.open_turn(prompt, None)
        state.thin()
        found.append(phase_in(prompt, opened, body, resumable=resumable))
    return found


def chat(*messages: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages)}


def items(*given: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(given), **more}


CASES: dict[str, tuple[list[dict[str, Any]], list[str | None]]] = {
    "a tool's result, then words": (
        [
            chat(SYSTEM, USER),
            chat(SYSTEM, USER, calling("ls"), TOOL),
            chat(SYSTEM, USER, SAID, USER),
        ],
        ["start", "tool", "user"],
    ),
    "a function's result in the old form": (
        [chat(USER), chat(USER, SAID, {"role": "function", "name": "ls", "content": "x"})],
        ["start", "tool"],
    ),
    "responses: a function's output": (
        [items(USER), items(USER, item_calling("ls"), output())],
        ["start", "tool"],
    ),
    "responses: other tools' outputs": (
        [items(USER), items(USER, {"type": "computer_call_output", "call_id": "1", "output": {}})],
        ["start", "tool"],
    ),
    "responses: continued on the server": (
        [
            {"input": "hi"},
            {"input": [output()], "previous_response_id": "resp_1"},
            {"input": "and now?", "previous_response_id": "resp_2"},
            {"input": "more", "conversation": "conv_1"},
        ],
        ["start", "tool", "user", "user"],
    ),
    "a handed-over conversation": (
        [items(USER, item_calling("transfer_to_verifier"), output()), items(USER, SAID, USER)],
        ["handoff", "user"],
    ),
    "a chat's handed-over conversation": (
        [chat(USER), chat(USER, calling("transfer_to_verifier"), TOOL)],
        ["start", "handoff"],
    ),
    "a compaction to a summary": (
        [
            chat(SYSTEM, USER, calling("ls"), TOOL, SAID, USER, SAID, USER),
            chat(SYSTEM, SUMMARY, USER),
        ],
        ["start", "compact"],
    ),
    "a compaction that keeps the last messages": (
        [
            chat(SYSTEM, USER, calling("ls"), TOOL, SAID, USER, calling("cat", "2"), TOOL),
            chat(SYSTEM, SUMMARY, calling("cat", "2"), TOOL),
        ],
        ["start", "compact"],
    ),
    "responses: instructions, then a compaction": (
        [
            items(USER, SAID, USER, SAID, USER, instructions="Be careful."),
            items(SUMMARY, USER, instructions="Be careful."),
        ],
        ["start", "compact"],
    ),
    "responses: a compaction item": (
        [items(USER), items(USER, SAID, {"type": "compaction", "encrypted_content": "x"})],
        ["start", "compact"],
    ),
    "going back to an earlier message is no compaction": (
        [chat(SYSTEM, USER, SAID, USER, SAID, USER), chat(SYSTEM, USER, SAID, SUMMARY)],
        ["start", "user"],
    ),
    "a text prompt": ([{"prompt": "one"}, {"prompt": "one two"}], ["start", "user"]),
    "an assistant's own words last": ([chat(USER), chat(USER, SAID)], ["start", None]),
    "Anthropic's form of a tool's result": (
        [chat(USER), chat(USER, SAID, {"role": "user", "content": [{"type": "tool_result"}]})],
        ["start", "tool"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_phase_is_read_from_the_messages_or_items(case: str) -> None:
    bodies, expected = CASES[case]
    assert phases(*bodies) == expected


def test_a_named_run_that_another_process_began_resumes_and_a_nameless_one_starts() -> None:
    begun = chat(SYSTEM, USER, calling("ls"), TOOL)
    assert phases(begun, resumable=True) == ["resume"]
    assert phases(begun) == ["start"]
    assert phases(chat(SYSTEM, USER), resumable=True) == ["start"]
    assert phases({"input": "x", "previous_response_id": "resp_1"}, resumable=True) == ["resume"]


def test_the_first_turn_after_those_of_another_process_resumes() -> None:
    assert phases(chat(USER, SAID, USER), chat(USER, SAID, USER, SAID, USER), n=4) == [
        "resume",
        "user",
    ]


def test_a_tools_result_after_a_childs_call_is_a_childs() -> None:
    state = SessionState()
    state.open_turn(read_prompt(chat(USER)), None)
    state.child_ran = True
    body = chat(USER, calling("search"), TOOL)
    prompt = read_prompt(body)
    assert phase_in(prompt, state.open_turn(prompt, None), body) == "child"
    body = chat(USER, calling("search"), TOOL, calling("ls"), TOOL)
    prompt = read_prompt(body)
    assert phase_in(prompt, state.open_turn(prompt, None), body) == "tool"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values, st.integers(0, 2), st.booleans())
def test_any_body_has_a_phase_or_none(body: Any, n: int, resumable: bool) -> None:
    for whole in (body, {"messages": body}, {"input": [body]}, {"messages": [body, TOOL]}):
        opened = Opened(n, 0, before=Outline(9, 1, [1] * 9), child_ran=True)
        phase_in(read_prompt(whole), opened, whole, resumable=resumable)


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
    next_turn = 0
    for prompt in prompts:
        if prompt not in window:
            window[prompt], next_turn = [next_turn, 0], next_turn + 1
            window = dict(list(window.items())[-8:])
        opened = state.open_turn(None, prompt)
        assert [opened.n, opened.attempt] == window[prompt]
        window[prompt][1] += 1


def test_a_prompt_without_a_fingerprint_is_always_new() -> None:
    state = SessionState()
    assert [state.open_turn(None, None)[:2] for _ in range(3)] == [(0, 0), (1, 0), (2, 0)]


def test_threads_never_share_a_turn_and_an_attempt() -> None:
    state, seen = SessionState(), []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for prompt in range(200):
            seen.append(state.open_turn(None, prompt % 4)[:2])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == len(set(seen)) == 1600


def opened_after(*bodies: dict[str, Any], usage: tuple[int, int]) -> Any:
    """Return the tokens said of the last body, the one before it answered with `usage`."""
    state = SessionState()
    for body in bodies:
        prompt, size = read_prompt(body), len(json.dumps(body))
        opened = state.open_turn(prompt, None)
        if body is not bodies[-1]:
            state.answered(opened.n, Usage(*usage, size), None)
    return tokens(prompt, opened, kept_of(prompt, opened), size)


@given(st.integers(1000, 100_000), st.integers(0, 5_000), st.integers(0, 50_000))
def test_what_is_appended_is_what_the_answers_output_leaves_of_the_growth(
    start: int, said: int, result: int
) -> None:
    first = chat({"role": "user", "content": "x" * 4 * start})
    more = ({"role": "assistant", "content": "y" * 4 * said}, {**TOOL, "content": "z" * 4 * result})
    append, prefix, keep = opened_after(first, chat(*first["messages"], *more), usage=(start, said))
    assert append == pytest.approx(result, rel=0.05, abs=80)
    assert prefix == start + said
    assert keep is None


def test_after_a_compaction_the_kept_tokens_are_those_of_the_common_start() -> None:
    system = {"role": "system", "content": "s" * 4000}
    before = chat(system, *({"role": "user", "content": f"{i}" * 2000} for i in range(8)))
    append, prefix, keep = opened_after(before, chat(system, SUMMARY), usage=(5000, 100))
    assert keep == pytest.approx(1000, rel=0.05)
    assert append == pytest.approx(len(SUMMARY["content"]) / 4, abs=20)
    assert prefix == 5100


def test_a_prompt_held_by_the_server_adds_what_is_sent() -> None:
    append, prefix, keep = opened_after(
        {"input": "x" * 40}, {"input": "y" * 400, "previous_response_id": "r"}, usage=(900, 50)
    )
    assert append == pytest.approx(110, abs=10)
    assert (prefix, keep) == (950, None)


def test_a_late_answer_of_an_earlier_turn_changes_nothing() -> None:
    state = SessionState()
    for prompt in (1, 2):
        state.open_turn(None, prompt)
    state.answered(1, Usage(20, 2, 10), Wait("tool", ("ls",), 5.0))
    state.answered(0, Usage(10, 1, 5), Wait("user", (), 9.0))
    opened = state.open_turn(None, 3)
    assert opened.usage == Usage(20, 2, 10)
    assert opened.waited == Wait("tool", ("ls",), 5.0)


def test_the_store_forgets_the_session_entered_longest_ago() -> None:
    store = SessionStore(limit=3)
    for name in "abcd":
        store.get(name).open_turn(None, None)
    assert len(store) == 3
    gc.collect()
    assert store.get("a").open_turn(None, None).n == 0
    assert store.get("d").open_turn(None, None).n == 1


def test_the_store_keeps_what_a_scope_still_holds() -> None:
    store = SessionStore(limit=3)
    held = store.get("a")
    for name in "bcdef":
        store.get(name)
    assert store.get("a") is held


def test_a_session_keeps_the_tokens_of_its_last_few_origins() -> None:
    state = SessionState()
    for i in range(20):
        state.keep_token(("http", b"host%d" % i), f"t.{i}")
    assert state.token(("http", b"host19")) == "t.19"
    assert state.token(("http", b"host0")) is None
    assert len(state.origins()) == 8


def test_a_session_resumed_from_elsewhere_never_goes_back() -> None:
    state = SessionState()
    state.resume_at(5)
    assert state.open_turn(None, 1).n == 5
    state.resume_at(3)
    assert state.open_turn(None, 2).n == 6
