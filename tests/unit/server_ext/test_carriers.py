"""Every carrier of a session, alone and against the others."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import pytest

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


def test_of_two_headers_or_members_of_one_name_the_first_counts() -> None:
    first = in_headers([(b"thread-id", A.encode()), (b"thread-id", B.encode())])
    assert first.markers == Markers(A)
    lines = [
        (b"baggage", f"session.id={A}".encode()),
        (b"baggage", b"session.id=b,tenuto.run=" + C.encode()),
    ]
    assert in_body(b"", lines).markers == Markers(A, run=C)


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
