"""Each dialect's markers are read from where its source says that they stand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.conformance.captured import Request
from tenuto.conformance.dialects import DIALECTS
from tenuto.conformance.reading import Said, detect, named, read, says_session
from tenuto.errors import ConfigError


def request(headers: dict[str, str] | None = None, body: Any = None) -> Request:
    raw = tuple((k.lower().encode(), v.encode()) for k, v in (headers or {}).items())
    return Request(1, "first", 1, 0.0, "POST", "/v1/chat/completions", "", raw, body)


def said(headers: dict[str, str] | None = None, body: Any = None) -> tuple[str, Said]:
    one = request(headers, body)
    dialects = detect([one])
    return " + ".join(dialect.name for dialect in dialects), read(one, dialects)


AGENTIC = {"program_id": "p", "parent_program_id": "q", "task_id": "t", "step_id": 3}
META = '{"thread_id":"t","request_kind":"compact"}'
CASES: list[tuple[str, dict[str, str], Any, dict[str, Any]]] = [
    (
        "vllm",
        {
            "X-Session-ID": "s",
            "X-Parent-Session-ID": "p",
            "X-Agent-Run-ID": "r",
            "X-Agent-Turn": "n=2, attempt=1, class=subagent, fork=inherit",
        },
        None,
        {"session": "s", "parent": "p", "run": "r", "n": 2, "attempt": 1, "fork": "inherit"},
    ),
    ("generic", {"X-Session-Id": "s", "x-session-affinity": "s"}, None, {"session": "s"}),
    ("claude-code", {"x-claude-code-session-id": "m"}, None, {"session": "m", "parent": None}),
    (
        "claude-code",
        {"x-claude-code-session-id": "m", "x-claude-code-agent-id": "a"},
        None,
        {"session": "a", "parent": "m", "run": "m"},
    ),
    (
        "claude-code",
        {
            "x-claude-code-session-id": "m",
            "x-claude-code-agent-id": "a",
            "x-claude-code-parent-agent-id": "b",
            "x-claude-code-request-class": "auxiliary",
        },
        None,
        {"session": "a", "parent": "b", "kind": "auxiliary"},
    ),
    (
        "codex",
        {"session-id": "s", "thread-id": "t", "x-codex-parent-thread-id": "p"},
        {"prompt_cache_key": "t"},
        {"session": "t", "parent": "p", "run": "s"},
    ),
    ("codex", {"x-codex-turn-metadata": META}, None, {"session": "t", "kind": "compact"}),
    (
        "dynamo",
        {"X-Dynamo-Session-ID": "s", "X-Dynamo-Parent-Session-ID": "p"},
        None,
        {"session": "s", "parent": "p"},
    ),
    ("dynamo + generic", {"X-Dynamo-Session-ID": "d", "X-Session-ID": "s"}, None, {"session": "d"}),
    (
        "litellm",
        {"x-litellm-session-id": "s", "x-pass-x-agent-run-id": "r", "x-pass-x-session-id": "s"},
        None,
        {"session": "s", "run": "r"},
    ),
    ("bifrost", {"x-bf-session-id": "s"}, None, {"session": "s"}),
    ("smg", {"X-SMG-Routing-Key": "s"}, None, {"session": "s"}),
    # What AIBrix calls x-session-id is a token, and no second dialect.
    (
        "aibrix",
        {"x-aibrix-session-key": "s", "x-session-id": "MTAuMC4wLjE6ODA="},
        None,
        {"session": "s"},
    ),
    (
        "llm-d",
        {"x-session-id": "s", "x-llm-d-inference-fairness-id": "r"},
        None,
        {"session": "s", "run": "r"},
    ),
    (
        "vllm-router",
        {},
        {"vllm_xargs": {"agentic_context": json.dumps(AGENTIC)}},
        {"session": "p", "parent": "q", "run": "t", "n": 3},
    ),
    ("vllm-router", {"x-session-id": "s"}, {"session_id": "s"}, {"session": "s"}),
    ("openrouter", {}, {"session_id": "s"}, {"session": "s"}),
    ("openai", {}, {"prompt_cache_key": "s"}, {"session": "s"}),
    ("fireworks", {"x-session-affinity": "s"}, None, {"session": "s"}),
    ("mistral", {"x-affinity": "s"}, None, {"session": "s"}),
    ("xai", {"x-grok-conv-id": "s"}, None, {"session": "s"}),
    ("opencode-go", {"x-opencode-session": "s"}, None, {"session": "s"}),
    ("baggage", {"baggage": "a=b;c, session.id=a%2Db"}, None, {"session": "a-b"}),
    ("", {"x-request-id": "1", "traceparent": "2"}, {"user": "u"}, {"session": None}),
]


@pytest.mark.parametrize(("name", "headers", "body", "expected"), CASES)
def test_a_request_is_read_in_its_own_dialect(
    name: str, headers: dict[str, str], body: Any, expected: dict[str, Any]
) -> None:
    found, markers = said(headers, body)
    assert found == name
    assert {key: getattr(markers, key) for key in expected} == expected
    assert says_session(request(headers, body)) is (markers.session is not None)


def test_a_dialect_that_nothing_tells_is_read_when_it_is_named() -> None:
    one = request({"x-user-id": "u"})
    assert detect([one]) == ()
    assert read(one, named(["production-stack"])).session == "u"


def test_an_unknown_dialect_is_a_mistake_that_names_the_known() -> None:
    with pytest.raises(ConfigError, match=r"'esperanto' is not known; choose of aibrix, .*xai"):
        named(["esperanto"])


HEADERS = sorted({c.name.partition("#")[0] for d in DIALECTS for c in d.carriers})


@given(
    st.dictionaries(st.sampled_from(HEADERS), st.binary(max_size=40), max_size=6),
    st.recursive(
        st.none() | st.text(max_size=5) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["vllm_xargs", "agentic_context", "a"]), inner)
        ),
        max_leaves=6,
    ),
)
def test_no_header_and_no_body_stops_the_reading(headers: dict[str, bytes], body: Any) -> None:
    raw = tuple((name.encode(), value) for name, value in headers.items())
    one = Request(1, "first", 1, 0.0, "POST", "/", "", raw, body)
    assert isinstance(read(one, detect([one])), Said)
    assert isinstance(read(one, DIALECTS), Said)
