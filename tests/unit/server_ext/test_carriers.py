"""Every carrier of a session, alone and against the others, and any bytes in any of them."""

from __future__ import annotations

import json
import string
import urllib.parse
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto_vllm import _wire
from tenuto_vllm._wire import Markers, Turn
from tenuto_vllm.carriers import Said, foreign_id, in_body, in_headers, is_json
from tenuto_vllm.carriers.aliases import FAMILIES

A, B, C = "session-a", "session-b", "session-c"
ALIASES = sorted({name for family in FAMILIES for name in family.session})


def said_by(headers: dict[str, str] | None = None, body: Any = None) -> Said:
    """Return what the middleware would take a request to say."""
    pairs = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    said = in_headers(pairs)
    raw = b"" if body is None else json.dumps(body).encode()
    return said if said.markers is not None else in_body(raw, pairs)


def context(value: Any) -> dict[str, Any]:
    return {"vllm_xargs": {"agentic_context": json.dumps(value)}}


SPOKEN: dict[str, tuple[dict[str, str], Any, Markers]] = {
    "Claude Code, the root agent": (
        {"x-claude-code-session-id": A, "x-claude-code-request-class": "main"},
        None,
        Markers(A, turn=Turn(kind="main")),
    ),
    "Claude Code, an agent of the root": (
        {"x-claude-code-session-id": A, "x-claude-code-agent-id": B},
        None,
        Markers(B, parent=A),
    ),
    "Claude Code, an agent of an agent": (
        {
            "x-claude-code-session-id": A,
            "x-claude-code-agent-id": C,
            "x-claude-code-parent-agent-id": B,
            "x-claude-code-request-class": "subagent",
        },
        None,
        Markers(C, parent=B, turn=Turn(kind="subagent")),
    ),
    "Codex, whose session is shared by all threads": (
        {"session-id": A, "thread-id": B, "x-codex-parent-thread-id": A},
        None,
        Markers(B, parent=A),
    ),
    "Codex before 0.131": ({"session_id": A, "conversation_id": B}, None, Markers(B)),
    "Codex, compacting": (
        {"thread-id": A, "x-openai-subagent": "compact"},
        None,
        Markers(A, turn=Turn(kind="compaction")),
    ),
    "OpenCode": (
        {"X-Session-Id": A, "x-session-affinity": A, "x-parent-session-id": B},
        None,
        Markers(A, parent=B),
    ),
    "OpenCode, its own provider": ({"x-opencode-session": A}, None, Markers(A)),
    "Dynamo": (
        {"X-Dynamo-Session-ID": A, "X-Dynamo-Parent-Session-ID": B},
        None,
        Markers(A, parent=B),
    ),
    "Dynamo, a session without a parent": (
        {"X-Dynamo-Session-ID": A, "X-Dynamo-Parent-Session-ID": A},
        None,
        Markers(A),
    ),
    "Dynamo, the last call": (
        {"X-Dynamo-Session-ID": A, "X-Dynamo-Session-Final": "True"},
        None,
        Markers(A, turn=Turn(next="end")),
    ),
    "DeepSeek's harness, compacting": (
        {
            "x-deepseek-harness-session-id": A,
            "x-deepseek-harness-parent-session-id": B,
            "x-deepseek-harness-compact": "1",
        },
        None,
        Markers(A, parent=B, turn=Turn(kind="compaction")),
    ),
    "goose": ({"agent-session-id": A}, None, Markers(A)),
    "NeMo": (
        {},
        {"agent_hint": {"session_id": A, "parent_session_id": B, "blocks_parent": True}},
        Markers(A, parent=B),
    ),
    "vLLM's own field": ({}, {"session_id": A}, Markers(A)),
    "vllm-router's hash field": ({}, {"session_params": {"session_id": A}}, Markers(A)),
    "our words in the body": (
        {},
        context(
            {
                "tenuto": {
                    "session": A,
                    "parent": B,
                    "run": C,
                    "turn": "n=4, attempt=1",
                    "affinity": "here.1",
                },
                "program_id": C,
            }
        ),
        Markers(A, B, C, Turn(n=4, attempt=1), "here.1"),
    ),
    "the router's words": (
        {},
        context(
            {
                "program_id": A,
                "session_id": C,
                "parent_id": B,
                "step_id": 7,
                "kv_retention_ttl_seconds": 5.9,
            }
        ),
        Markers(A, parent=B, turn=Turn(n=7, ttl=5)),
    ),
    "the router's words in an object": (
        {},
        {"vllm_xargs": {"agentic_context": {"session_id": A, "parent_program_id": B}}},
        Markers(A, parent=B),
    ),
    "the router's words for one agent of a task": (
        {},
        context({"task_id": "task-a", "agent_id": "researcher", "session_id": A}),
        Markers(foreign_id("task-a:researcher") or ""),
    ),
    "the router's words beside a bare session": (
        {},
        {"vllm_xargs": {"session_id": B, "agentic_context": '{"program_id": "session-a"}'}},
        Markers(A),
    ),
    "a session in vllm_xargs": ({}, {"vllm_xargs": {"session_id": A}}, Markers(A)),
    "baggage": (
        {
            "baggage": f"other=1,session.id={A};p=1 , tenuto.parent={B},tenuto.run={C},"
            f"tenuto.turn={urllib.parse.quote('n=4, attempt=1')},tenuto.affinity=here.1"
        },
        None,
        Markers(A, B, C, Turn(n=4, attempt=1), "here.1"),
    ),
}


@pytest.mark.parametrize("program", SPOKEN)
def test_what_each_program_says_of_itself_is_understood(program: str) -> None:
    headers, body, markers = SPOKEN[program]
    said = said_by(headers, body)
    assert (said.markers, said.dropped) == (markers, ())


@pytest.mark.parametrize("name", ALIASES)
def test_each_alias_alone_gives_a_session(name: bytes) -> None:
    said = in_headers([(name, b" session-a ")])
    assert said.markers is not None
    assert (said.markers.session, said.carrier) == (A, "alias")


NO_SESSION = [
    {"X-User-ID": A},
    {"X-Tenant-ID": A},
    {"X-Request-ID": A},
    {"X-Correlation-ID": A},
    {"X-Session-Token": A},
    {"X-Parent-Session-ID": A},
    {"X-Dynamo-Parent-Session-ID": A, "X-Dynamo-Session-Final": "true"},
    {"X-Dynamo-Session-ID": " "},
    {"baggage": "session.id=,tenuto.turn=n%3D1"},
    {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
]


@pytest.mark.parametrize("headers", NO_SESSION, ids=str)
def test_what_names_no_linear_history_is_no_session(headers: dict[str, str]) -> None:
    assert said_by(headers) == Said(None)


@pytest.mark.parametrize(
    "body",
    [
        {"conversation": A, "previous_response_id": B, "user": C, "prompt_cache_key": A},
        {"metadata": {"session_id": A}},
        {"messages": [{"role": "user", "content": '{"session_id": "session-a"}'}]},
        {"session_id": "", "vllm_xargs": None, "agent_hint": None, "session_params": []},
        [{"session_id": A}],
        "session_id",
    ],
    ids=str,
)
def test_other_fields_of_a_body_are_no_session(body: Any) -> None:
    assert said_by(body=body) == Said(None)


# In the order of precedence, each with a session of its own.
ORDER: list[tuple[str, dict[str, str], dict[str, Any], str]] = [
    ("headers", {"X-Session-ID": "of-headers", "X-Parent-Session-ID": A}, {}, "of-headers"),
    (
        "alias",
        {"x-dynamo-session-id": "of-alias-1", "thread-id": "of-alias-2"},
        {},
        "of-alias-1",
    ),
    ("body", {}, {"agent_hint": {"session_id": "of-body-1"}, "session_id": "no"}, "of-body-1"),
    ("vllm_xargs", {}, context({"tenuto": {"session": "of-xargs", "run": C}}), "of-xargs"),
    ("baggage", {"baggage": f"session.id=of-baggage,tenuto.parent={B}"}, {}, "of-baggage"),
]


@pytest.mark.parametrize("missing", range(32))
def test_the_first_carrier_that_gives_a_session_wins_whole(missing: int) -> None:
    there = [one for place, one in enumerate(ORDER) if not missing >> place & 1]
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    for _, more, fields, _ in there:
        headers |= more
        body |= fields
    said = said_by(headers, body)
    if not there:
        assert said.markers is None
        return
    carrier, alone_headers, alone_body, session = there[0]
    assert (said.carrier, said.markers and said.markers.session) == (carrier, session)
    assert said.markers == said_by(alone_headers, alone_body).markers


def test_the_bare_id_beside_our_words_for_the_same_session_does_not_hide_them() -> None:
    ours = context({"tenuto": {"session": A, "turn": "n=3", "affinity": "here.1"}})
    whole = Markers(A, turn=Turn(n=3), affinity="here.1")
    assert said_by(body={**ours, "session_id": A}).markers == whole
    assert said_by(body={**ours, "session_id": B}).markers == Markers(B)
    baggage = {"baggage": f"session.id={A},tenuto.turn=n%3D2"}
    assert said_by(baggage, {"session_id": A}).markers == Markers(A, turn=Turn(n=2))


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
    said = in_headers([(name.lower().encode(), value.encode()) for name, value in headers.items()])
    rest = said_by({k: v for k, v in headers.items() if k == "baggage"}, body)
    assert said.dropped + rest.dropped == kinds


def test_of_two_headers_or_members_of_one_name_the_first_counts() -> None:
    first = in_headers([(b"thread-id", A.encode()), (b"thread-id", B.encode())])
    assert first.markers == Markers(A)
    lines = [
        (b"baggage", f"session.id={A}".encode()),
        (b"baggage", b"session.id=b,tenuto.run=" + C.encode()),
    ]
    assert in_body(b"", lines).markers == Markers(A, run=C)


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


@settings(max_examples=3000)
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


@pytest.mark.parametrize(
    ("kind", "is_readable"),
    [
        (b"application/json", True),
        (b"Application/JSON ; charset=utf-8", True),
        (b"application/vnd.api+json", True),
        (b"multipart/form-data; boundary=json", False),
        (b"", False),
    ],
)
def test_only_a_body_that_calls_itself_json_is_read(kind: bytes, is_readable: bool) -> None:
    assert is_json([(b"accept", b"application/json"), (b"content-type", kind)]) is is_readable
    assert not is_json([(b"accept", b"application/json")])
