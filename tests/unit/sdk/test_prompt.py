"""Which prompts are the same, and where two part."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.prompt import (
    MAX_GROUPS,
    NO_OUTLINE,
    PIECE,
    Outline,
    Prompt,
    goes_on,
    kept_items,
    read_prompt,
    share,
    thinned,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
texts = st.fixed_dictionaries({"role": st.sampled_from(["user", "tool"]), "content": st.text()})
calls = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.none(), "tool_calls": st.lists(values, max_size=2)}
)
messages = st.lists(texts | calls, min_size=1, max_size=12).map(
    lambda items: json.loads(json.dumps(items, sort_keys=True))
)
FIELDS = ("messages", "input", "prompt")


def key(body: Any) -> int | None:
    prompt = read_prompt(body)
    return prompt.key if prompt is not None else None


@given(messages, st.sampled_from(FIELDS), values, values)
def test_model_and_sampling_take_no_part(items: Any, field: str, model: Any, more: Any) -> None:
    other = {"model": model, field: copy.deepcopy(items), "temperature": more, "stream": True}
    assert key({"model": "m", field: items}) == key(other) is not None


@given(messages, messages, st.sampled_from(FIELDS))
def test_other_messages_are_another_prompt(one: Any, two: Any, field: str) -> None:
    same = json.dumps(one) == json.dumps(two)
    assert (key({field: one}) == key({field: two})) == same


@given(messages)
def test_what_the_server_holds_tells_prompts_apart(items: Any) -> None:
    bodies = [
        {"input": items},
        {"input": items, "previous_response_id": "resp_1"},
        {"input": items, "previous_response_id": "resp_2"},
        {"input": items, "conversation": "conv_1"},
        {"input": items, "conversation": {"id": "conv_1"}},
        {"input": items, "instructions": "Be brief."},
    ]
    assert len({key(body) for body in bodies}) == len(bodies)


@given(values)
def test_any_body_is_read_without_an_error(body: Any) -> None:
    for field in FIELDS:
        for whole in (body, {field: body}, {field: [body]}, {field: body, "instructions": body}):
            prompt = read_prompt(whole)
            if prompt is not None:
                assert len(prompt.marks) == len(prompt.items)
                assert 0 <= share(prompt, 1) <= 1


def test_a_body_without_a_prompt_has_none() -> None:
    assert read_prompt({"file": "x"}) is None
    assert read_prompt(None) is None
    assert read_prompt([1]) is None


def test_objects_that_json_does_not_know_are_read_all_the_same() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "odd"

    assert key({"messages": [{"role": "user", "content": Odd()}]}) is not None


def prompt_of(items: list[Any]) -> Prompt:
    prompt = read_prompt({"messages": items})
    assert prompt is not None
    return prompt


def outlines(items: list[Any]) -> list[Outline]:
    """Return both forms of what is kept of a prompt."""
    marks = prompt_of(items).marks
    whole = Outline(len(marks), 1, marks)
    return [whole, thinned(whole), thinned(thinned(whole))]


@given(messages, messages)
def test_a_prompt_that_goes_on_keeps_all_of_the_last(one: Any, more: Any) -> None:
    for before in outlines(one):
        assert goes_on(before, prompt_of([*one, *more]))
        assert kept_items(before, prompt_of([*one, *more])) == len(one)
    assert goes_on(NO_OUTLINE, prompt_of(one))


@given(messages, messages, messages)
def test_what_is_kept_is_the_common_start_of_a_short_prompt(same: Any, one: Any, two: Any) -> None:
    shared = 0
    for left, right in zip([*same, *one], [*same, *two], strict=False):
        if json.dumps(left) != json.dumps(right):
            break
        shared += 1
    after = prompt_of([*same, *two])
    for before in outlines([*same, *one]):
        assert kept_items(before, after) == shared
        assert goes_on(before, after) == (shared == len(same) + len(one))


@given(st.integers(1, 2000), st.integers(0, 2000))
def test_of_a_long_prompt_little_is_kept_and_the_answer_is_never_too_high(
    count: int, changed: int
) -> None:
    items = [{"role": "user", "content": str(i)} for i in range(count)]
    edited = [*items[:changed], {"role": "user", "content": "edited"}, *items[changed + 1 :]]
    small = outlines(items)[-1]
    assert len(small.marks) <= MAX_GROUPS
    same = kept_items(small, prompt_of(edited))
    assert min(changed, count) - small.step < same <= min(changed, count)


texts_that_grow = st.tuples(st.text(min_size=1, max_size=40), st.integers(1, 200)).map(
    lambda given: given[0] * given[1]
)
ids_that_grow = st.tuples(st.lists(st.integers(0, 9), min_size=1), st.integers(1, 900)).map(
    lambda given: given[0] * given[1]
)


@given(st.one_of(st.tuples(*[texts_that_grow] * 2), st.tuples(*[ids_that_grow] * 2)))
def test_a_text_and_token_ids_that_go_on_are_seen_to(given_parts: tuple[Any, Any]) -> None:
    start, more = given_parts
    for body in ({"prompt": start}, {"input": start, "instructions": "Be brief." * 200}):
        before = read_prompt(body)
        assert before is not None
        longer = {**body, **{name: start + more for name in ("prompt", "input") if name in body}}
        other = {**body, **{name: more + start for name in ("prompt", "input") if name in body}}
        for outline in (before.outline, thinned(before.outline)):
            after, apart = read_prompt(longer), read_prompt(other)
            assert after is not None
            assert apart is not None
            assert goes_on(outline, after)
            assert goes_on(outline, apart) == ((more + start)[: len(start)] == start)


def test_a_text_is_cut_into_pieces() -> None:
    prompt = read_prompt({"prompt": "x" * (2 * PIECE + 1)})
    assert prompt is not None
    assert [len(item) for item in prompt.items] == [PIECE, PIECE, 1]


@pytest.mark.parametrize("field", ["messages", "input"])
@given(st.text(min_size=1), st.text(min_size=1), st.integers(0, 3), st.integers(0, 3))
def test_a_last_message_that_grows_goes_on_and_one_that_is_rewritten_does_not(
    field: str, said: str, more: str, before: int, after: int
) -> None:
    def read(last: str, *others: str) -> Prompt:
        first = [{"role": "user", "content": f"first {n}"} for n in range(before)]
        rest = [{"role": "user", "content": text} for text in others]
        prompt = read_prompt({field: [*first, {"role": "user", "content": last}, *rest]})
        assert prompt is not None
        return prompt

    outline = read(said).outline
    for each in (outline, thinned(outline)):
        grown = read(said + more, *["later"] * after)
        assert goes_on(each, grown)
        assert kept_items(each, grown) == before + 1
        rewritten = read(more + said)
        assert goes_on(each, rewritten) == (more + said).startswith(said)
