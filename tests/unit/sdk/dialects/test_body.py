"""Body fields: set if absent, never in place, and as one JSON text where vLLM needs that."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import NOT_GIVEN, Omit

from tenuto import _wire, dialects
from tenuto.dialects.agentic import agentic_context
from tenuto.dialects.body import body_patch, merge, route_of

SESSION, PARENT, RUN, ROOT = "s" * 32, "p" * 32, "r" * 32, "o" * 32
PATCH = {"session_id": SESSION, "vllm_xargs": {"agentic_context": "{}"}}
KEYS = st.sampled_from(["session_id", "vllm_xargs", "prompt_cache_key", "model", "agentic_context"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
BODIES = st.none() | st.dictionaries(KEYS, VALUES, max_size=4)


def sent(json_data: Any, extra_json: Any) -> Any:
    """Return the body that openai makes of the two: `_build_request` of its base client."""
    if extra_json is None:
        return json_data
    if json_data is None:
        return extra_json
    merged = {**json_data, **extra_json}
    return {key: value for key, value in merged.items() if not isinstance(value, Omit)}


@given(st.dictionaries(KEYS, VALUES, max_size=3), BODIES, BODIES)
def test_what_the_caller_said_stays_as_it_was(patch: Any, json_data: Any, extra: Any) -> None:
    before = copy.deepcopy((patch, json_data, extra))
    theirs = sent(json_data, extra)
    joined = merge(patch, json_data, extra)
    assert (patch, json_data, extra) == before
    ours = sent(json_data, extra if joined is None else joined)
    if theirs is None:
        assert joined is None
        return
    assert {key: value for key, value in ours.items() if key not in patch} == {
        key: value for key, value in theirs.items() if key not in patch
    }
    for key, value in patch.items():
        if key not in theirs:
            assert ours[key] == value
        elif isinstance(theirs[key], dict) and isinstance(value, dict):
            assert ours[key] == {**value, **theirs[key]}
        else:
            assert ours[key] == theirs[key]


@given(st.dictionaries(KEYS, VALUES, max_size=3), BODIES, BODIES)
def test_merging_twice_changes_nothing_more(patch: Any, json_data: Any, extra: Any) -> None:
    joined = merge(patch, json_data, extra)
    if joined is not None:
        assert merge(patch, json_data, joined) is None


@pytest.mark.parametrize("value", [Omit(), None, "", "mine", 0])
def test_whatever_the_caller_gives_for_a_field_is_the_callers_decision(value: Any) -> None:
    body = {"model": "m"}
    joined = merge({"prompt_cache_key": SESSION}, body, {"prompt_cache_key": value})
    assert joined is None
    assert merge({"session_id": SESSION}, {**body, "session_id": value}, None) is None


def test_an_object_of_the_callers_is_extended_and_not_replaced() -> None:
    theirs = {"temperature_scale": 2, "agentic_context": "mine"}
    assert merge(PATCH, {"model": "m"}, {"vllm_xargs": theirs}) == {
        "session_id": SESSION,
        "vllm_xargs": theirs,
    }
    other = {"temperature_scale": 2}
    assert merge(PATCH, {"model": "m", "vllm_xargs": other}, None) == {
        "session_id": SESSION,
        "vllm_xargs": {"agentic_context": "{}", "temperature_scale": 2},
    }
    assert other == {"temperature_scale": 2}
    both = {"vllm_xargs": {"session_id": SESSION, "agentic_context": "{}"}}
    assert merge(both, {"model": "m"}, {"vllm_xargs": {"agentic_context": "mine"}}) == {
        "vllm_xargs": {"session_id": SESSION, "agentic_context": "mine"}
    }


@pytest.mark.parametrize("body", [None, b"raw", [1], "text", 3, NOT_GIVEN])
def test_a_body_that_is_no_object_is_left_alone(body: Any) -> None:
    assert merge(PATCH, body, None) is None
    if body is not None:
        assert merge(PATCH, {"model": "m"}, body) is None


@pytest.mark.parametrize(
    ("url", "route"),
    [
        ("/chat/completions", "chat"),
        ("/completions", "completions"),
        ("/deployments/gpt/chat/completions", "chat"),
        ("http://h/v1/responses?x=1", "responses"),
        ("/v1/messages", "messages"),
        ("/embeddings", "embeddings"),
        ("/responses/resp_1", None),
        ("/models", None),
        ("", None),
    ],
)
def test_a_route_is_known_by_the_end_of_its_path(url: str, route: str | None) -> None:
    assert route_of(url) == route


def test_a_refused_field_is_left_out_and_the_others_stay() -> None:
    row = dialects.named("vllm-router-pd")
    said = _wire.Markers(SESSION)
    patch = body_patch(row, said, "n=0", "chat", without=frozenset({"vllm_xargs.agentic_context"}))
    assert patch == {"session_id": SESSION}
    assert body_patch(row, said, "n=0", "chat", without=frozenset({"session_id"})).keys() == {
        "vllm_xargs"
    }


TURNS = st.builds(
    _wire.Turn,
    n=st.none() | st.integers(0, 999_999_999),
    ttl=st.none() | st.integers(0, 99_999_999),
    drop=st.lists(st.just("d" * 32), max_size=3).map(tuple),
)


@given(
    st.none() | st.just(PARENT),
    st.none() | st.just(RUN),
    st.none() | st.just(ROOT),
    TURNS,
    st.none() | st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1),
)
def test_the_context_is_one_json_text_that_gives_all_markers_back(
    parent: str | None, run: str | None, root: str | None, turn: _wire.Turn, affinity: str | None
) -> None:
    text = _wire.encode_turn(turn)
    said = _wire.Markers(SESSION, parent, run, turn, affinity)
    raw = agentic_context(said, text, root)
    assert len(raw.encode()) <= 16 * 1024
    context = json.loads(raw)
    ours = context["tenuto"]
    assert _wire.Markers(
        ours["session"],
        ours.get("parent"),
        ours.get("run"),
        _wire.decode_turn(ours.get("turn", "").encode(), []),
        ours.get("affinity"),
    ) == said._replace(turn=_wire.decode_turn(text.encode(), []))
    assert context["program_id"] == context["session_id"] == SESSION
    assert context.get("step_id") == turn.n
    assert context.get("kv_retention_ttl_seconds") == turn.ttl
    # vllm-router answers 400 to blocks_parent without parent_program_id.
    assert ("blocks_parent" in context) == ("parent_program_id" in context) == (parent is not None)
    assert context.get("root_program_id") == (root if parent is not None else SESSION)


def test_vllm_xargs_hold_no_object_on_any_dialect() -> None:
    # vLLM 0.32 takes strings, numbers and flat lists there and answers 400 to an object.
    said = _wire.Markers(SESSION, PARENT, RUN, _wire.Turn(n=1), "i.0")
    for row in dialects.DIALECTS.values():
        for route in ("chat", "completions", "responses", "messages"):
            xargs = body_patch(row, said, "n=1", route).get("vllm_xargs", {})
            assert all(isinstance(value, str) for value in xargs.values())
