"""Bad values in every carrier of a session, one by one and any bytes at all."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto_vllm import _wire
from tenuto_vllm.carriers import Said, foreign_id, in_body, in_headers, is_json
from tenuto_vllm.carriers.aliases import FAMILIES

A = "session-a"


def context(value: Any) -> dict[str, Any]:
    return {"vllm_xargs": {"agentic_context": json.dumps(value)}}


BAD: list[tuple[dict[str, str], Any, tuple[str, ...]]] = [
    ({"x-dynamo-session-id": "x" * 1025}, None, ("alias.session",)),
    ({"x-dynamo-session-id": "a\x7fb"}, None, ("alias.session",)),
    (
        {"thread-id": A, "x-codex-parent-thread-id": "\x01", "x-openai-subagent": "\x01"},
        None,
        ("alias.parent", "alias.class"),
    ),
    ({"X-Session-ID": "short", "x-dynamo-session-id": A}, None, ("session",)),
    ({}, {"session_id": 7}, ("body.session",)),
    ({}, {"agent_hint": {"session_id": A, "parent_session_id": []}}, ("body.parent",)),
    ({}, {"vllm_xargs": {"agentic_context": "no JSON"}}, ("vllm_xargs",)),
    ({}, {"vllm_xargs": {"agentic_context": '{"x": "' + "x" * 16384 + '"}'}}, ("vllm_xargs",)),
    (
        {},
        {"vllm_xargs": {"agentic_context": 7, "session_id": {}}},
        ("vllm_xargs", "vllm_xargs.session"),
    ),
    ({}, context({"tenuto": {"session": "no id"}}), ("vllm_xargs.session",)),
    (
        {},
        context({"tenuto": {"session": A, "parent": 1, "run": "-", "turn": "n=-1"}}),
        ("vllm_xargs.parent", "vllm_xargs.run", "vllm_xargs.turn.n"),
    ),
    (
        {},
        context({"program_id": A, "parent_id": 1, "step_id": "2", "kv_retention_ttl_seconds": -1}),
        ("vllm_xargs.parent", "vllm_xargs.turn.n", "vllm_xargs.turn.ttl"),
    ),
    ({"baggage": "session.id=" + "x" * 8192}, None, ("baggage",)),
    ({"baggage": ",".join(f"m{i}=1" for i in range(65))}, None, ("baggage",)),
    ({"baggage": "session.id=%FF"}, None, ("baggage.session",)),
    (
        {"baggage": f"session.id={A},tenuto.turn=%28%28,tenuto.run=%C3%A9,tenuto.affinity=a%20b"},
        None,
        ("baggage.run", "baggage.affinity", "baggage.turn"),
    ),
]


@pytest.mark.parametrize(
    ("headers", "body", "kinds"), BAD, ids=[" ".join(kinds) for _, _, kinds in BAD]
)
def test_each_bad_value_is_left_out_alone_and_named_by_kind(
    headers: dict[str, str], body: Any, kinds: tuple[str, ...]
) -> None:
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    raw = json.dumps(body).encode()
    assert in_headers(pairs).dropped + in_body(raw, pairs).dropped == kinds


@given(st.text(max_size=1100) | st.text(string.printable, max_size=1100))
def test_a_foreign_id_is_kept_or_derived_or_refused_and_never_cut(text: str) -> None:
    found = foreign_id(text)
    bare = text.strip(" \t")
    if _wire.is_id(bare):
        assert found == bare
    elif bare and bare.isprintable() and len(text) <= 1024 and len(bare.encode()) <= 1024:
        assert found is not None
        assert _wire.is_id(found)
        assert len(found) == 32
        assert found != foreign_id(bare + "x")
    else:
        assert found is None


@pytest.mark.parametrize(("text", "is_taken"), [("é" * 512, True), ("é" * 513, False)])
def test_one_kilobyte_is_counted_in_bytes(text: str, is_taken: bool) -> None:
    assert (foreign_id(text) is not None) is is_taken


@given(st.none() | st.integers() | st.floats() | st.lists(st.text()) | st.binary())
def test_what_is_no_text_is_no_id(value: object) -> None:
    assert foreign_id(value) is None


junk = st.binary(max_size=80) | st.sampled_from(
    [b"", b"true", b"session-a", b"session.id=session-a,tenuto.turn=n%3D1", b"\xff\xfe", b"a,b;=,"]
)
names = st.sampled_from(
    [
        *(name for family in FAMILIES for name in (*family.session, *family.parent)),
        *(name for family in FAMILIES for name in (family.kind, family.last)),
        *(b"baggage", b"x-session-id", b"x-session-affinity", b"x-agent-turn", b"content-type"),
    ]
)
words = st.sampled_from(
    [
        *("agent_hint", "session_id", "parent_session_id", "session_params", "vllm_xargs"),
        *("agentic_context", "tenuto", "session", "parent", "run", "turn", "affinity"),
        *("program_id", "task_id", "agent_id", "parent_id", "step_id", "kv_retention_ttl_seconds"),
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(A),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=30,
)
objects = st.dictionaries(words, values | values.map(json.dumps), max_size=8)
bodies = st.binary() | objects.map(lambda fields: json.dumps(fields).encode())


@settings(max_examples=1000)
@given(st.lists(st.tuples(names, junk), max_size=12), bodies)
def test_any_bytes_in_any_carrier_give_valid_markers_or_none(
    headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    is_json(headers)
    for said in (in_headers(headers), in_body(body, headers)):
        markers = said.markers
        if markers is not None:
            ids = [one for one in (markers.session, markers.parent, markers.run) if one is not None]
            assert all(map(_wire.is_id, ids))
            assert markers.affinity is None or _wire.is_opaque(markers.affinity)
            assert _wire.decode_turn(_wire.encode_turn(markers.turn).encode(), []) == markers.turn
        assert all(
            len(kind) < 32 and kind.replace(".", "").replace("_", "").isalpha()
            for kind in said.dropped
        )


@pytest.mark.parametrize("body", [b'{"session_id":' * 20_000, b"[" * 100_000 + b'"session_'])
def test_a_body_nested_too_deeply_to_read_says_nothing(body: bytes) -> None:
    assert in_body(body, []) == Said(None)
