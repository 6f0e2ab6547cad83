"""The server calls an agent's tools, and none that could do harm."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.conformance.answers import Said, whole
from tenuto.conformance.samples import sample
from tenuto.conformance.tools import calls


def body(*names: str, **more: Any) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]
    return {"tools": tools, **more}


def asked(rounds: int, given: dict[str, Any], *, may_start_agents: bool = True) -> list[str]:
    made = calls(
        "chat", given, rounds=rounds, may_start_agents=may_start_agents, answer="0123abcdn0"
    )
    return [call.name for call in made]


def test_subagents_come_first_and_twice_then_a_look_then_words() -> None:
    given = body("write_file", "task", "read_file")
    assert [asked(rounds, given) for rounds in range(3)] == [["task", "task"], ["read_file"], []]
    assert asked(0, given, may_start_agents=False) == ["read_file"]


def test_one_call_at_a_time_where_the_request_says_so() -> None:
    assert asked(0, body("task", parallel_tool_calls=False)) == ["task"]


@pytest.mark.parametrize(
    "name",
    [
        *("bash", "write_file", "delete_record", "rm", "send_email", "execute_sql", "deploy"),
        *("create_order", "kubectl_apply", "git_push", "run_command", "Edit", "cancel_booking"),
    ],
)
def test_a_tool_that_changes_something_is_never_called_by_choice(name: str) -> None:
    assert asked(0, body(name)) == []
    assert asked(0, body(name, tool_choice="required")) == []
    assert asked(0, body(name, "lookup")) == ["lookup"]


def test_what_the_request_forces_is_called() -> None:
    forced = {"type": "function", "function": {"name": "write_file"}}
    assert asked(0, body("read_file", "write_file", tool_choice=forced)) == ["write_file"]
    assert asked(0, body("read_file", tool_choice="none")) == []


def test_where_a_call_is_required_the_agent_is_let_finish() -> None:
    given = body("final_result", "lookup", tool_choice="required")
    assert [asked(rounds, given) for rounds in range(3)] == [
        ["lookup"],
        ["final_result"],
        ["final_result"],
    ]
    assert asked(6, given) == []


def test_a_subagents_kind_is_one_that_the_tool_speaks_of() -> None:
    schema = {
        "type": "object",
        "properties": {"prompt": {"type": "string"}, "subagent_type": {"type": "string"}},
        "required": ["prompt", "subagent_type"],
    }
    about = "Kinds: general-purpose, reviewer."
    tool = {"name": "Task", "description": about, "input_schema": schema}
    made = calls(
        "messages", {"tools": [tool]}, rounds=0, may_start_agents=True, answer="0123abcdn0"
    )
    assert made[0].arguments == {"prompt": "tnto0123abcdn0x0", "subagent_type": "general-purpose"}
    assert made[1].arguments["prompt"] == "tnto0123abcdn0x1"


def test_a_tool_in_a_namespace_is_called_with_it_and_minds_no_agent_that_is_there() -> None:
    # As Codex offers its subagents over Responses.
    inner = [
        {"type": "function", "name": name, "parameters": {"properties": {"message": {}}}}
        for name in ("close_agent", "resume_agent", "wait_agent", "spawn_agent")
    ]
    tools = [{"type": "namespace", "name": "multi_agent", "tools": inner}]
    (call, _) = calls(
        "responses", {"tools": tools}, rounds=0, may_start_agents=True, answer="0123abcdn0"
    )
    assert (call.name, call.namespace) == ("spawn_agent", "multi_agent")
    assert call.arguments == {"message": "tnto0123abcdn0x0"}
    item = whole("responses", Said("0123abcdn0", "m", "", (call,), 1))["output"][0]
    assert item["namespace"] == "multi_agent"


LEAVES: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": ["integer", "null"], "minimum": 3},
    {"type": "number", "exclusiveMinimum": 0},
    {"type": "boolean"},
    {"enum": ["a", "b"]},
    {"const": 7},
    {"$ref": "#/$defs/word"},
    {"$ref": "#/$defs/itself"},
]


def nested(inner: Any) -> Any:
    properties = {"b": {"type": "string"}}
    return st.one_of(
        inner.map(lambda one: {"type": "array", "items": one, "minItems": 2}),
        inner.map(lambda one: {"anyOf": [{"type": "null"}, one]}),
        inner.map(
            lambda one: {
                "type": "object",
                "properties": {"a": one, **properties},
                "required": ["a"],
            }
        ),
    )


SCHEMAS = st.sampled_from(LEAVES)
for _ in range(4):
    SCHEMAS = SCHEMAS | nested(SCHEMAS)
DEFS = {"word": {"type": "string"}, "itself": {"$ref": "#/$defs/itself"}}


def fits(value: Any, schema: dict[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")])
    kind = schema.get("type", "string")
    if kind == "object":
        return "a" in value and fits(value["a"], schema["properties"]["a"])
    if kind == "array":
        return len(value) >= 2 and all(fits(one, schema["items"]) for one in value)
    if kind == "null":
        return value is None
    if kind == "string":
        return isinstance(value, str)
    return isinstance(value, bool) if kind == "boolean" else value >= schema.get("minimum", 0.1)


@given(SCHEMAS)
def test_a_sample_fits_its_schema(schema: dict[str, Any]) -> None:
    value = sample({**schema, "$defs": DEFS}, "word")
    assert fits(value, schema)


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=8) | st.integers(),
        lambda one: (
            st.lists(one, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "properties", "required", "items", "anyOf", "$ref", "enum"]
                ),
                one,
            )
        ),
    )
)
def test_no_schema_stops_a_sample(schema: Any) -> None:
    sample(schema, "word")
