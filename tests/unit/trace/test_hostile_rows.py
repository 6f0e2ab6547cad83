"""One row that cannot be must cost no more than itself, in every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.trace import Trace, digest, read, stats, write
from tests.unit.trace.events import call, read_all

Rows = list[Any]


def span(number: int, **attributes: Any) -> dict[str, Any]:
    said = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "r"}
    return {
        "trace_id": "t",
        "span_id": f"s{number}",
        "start_time": f"2026-01-01T00:00:{10 + number}Z",
        "end_time": f"2026-01-01T00:00:{10 + number}Z",
        "attributes": {**said, "gen_ai.usage.input_tokens": 9, **attributes},
    }


def message(kind: str, uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"role": kind, "content": content, **more.pop("message", {})}
    if kind == "assistant":
        said = {"id": f"m{uuid}", "model": "m", "usage": {"input_tokens": 9}, **said}
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "r",
        "timestamp": "2026-01-01T00:00:01Z",
        "message": said,
        **more,
    }


def request(t: float, blocks: int = 1, **more: Any) -> dict[str, Any]:
    ids = list(range(blocks))
    return {"t": t, "type": "n", "in": 64 * blocks, "out": 1, "hash_ids": ids, **more}


def weka(label: str, *requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": label, "block_size": 64, "requests": list(requests), **more}


def turn(label: str, at_ms: float, **more: Any) -> dict[str, Any]:
    row = {"session_id": label, "timestamp": at_ms, "input_length": 600, "hash_ids": [1, 2]}
    return {**row, "output_length": 1, **more}


DEEP = "[" * 100_000 + "]" * 100_000
NINES = "9" * 5000
LATE = span(5)
TYPED = [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}]

OTEL: Rows = [
    {**LATE, "status": "OK"},
    {**LATE, "status": [1]},
    {**LATE, "attributes": None},
    {**LATE, "attributes": [None, "x", 1]},
    span(5, **{"gen_ai.operation.name": ["chat"]}),
    span(5, **{"gen_ai.operation.name": {}}),
    {**LATE, "attributes": [*TYPED, {"key": "x", "value": {"arrayValue": [1]}}]},
    {**LATE, "attributes": [*TYPED, {"key": "x", "value": {"arrayValue": {"values": None}}}]},
    {"resource": None, "spans": [LATE]},
    {"resource": [1], "spans": [LATE]},
    {"resource": "x", "spans": [LATE]},
    {"spans": None},
    span(5, **{"gen_ai.usage.input_tokens": float("inf")}),
    span(5, **{"gen_ai.usage.input_tokens": float("nan")}),
    span(5, **{"gen_ai.usage.input_tokens": NINES}),
    span(5, **{"gen_ai.usage.output_tokens": 10**30}),
    json.dumps(span(5, **{"gen_ai.usage.input_tokens": 7})).replace(": 7", f": {NINES}"),
    {**LATE, "start_time": "9" * 400},
    {**LATE, "start_time": 10**400},
    {**LATE, "end_time": "0001-01-01T00:00:00+23:00"},
    {**LATE, "start_time": True},
    span(5, **{"gen_ai.input.messages": DEEP}),
    span(5, **{"gen_ai.input.messages": json.dumps("\ud800")}),
    span(5, **{"gen_ai.request.model": "\ud800", "gen_ai.conversation.id": "r"}),
    span(5, **{"gen_ai.conversation.id": "\ud800"}),
    {"spans": [span(5, **{"gen_ai.tool.name": ["x"], "gen_ai.operation.name": "execute_tool"})]},
    DEEP,
    '{"spans":' * 5000 + "1" + "}" * 5000,
    "null",
]

USE = {"type": "tool_use", "id": "t", "name": "Task", "input": "no object"}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
AGENT = {"toolUseResult": {"agentId": "ag"}}
CLAUDE: Rows = [
    message("assistant", "x", "2", [USE]),
    message("user", "x", "2", [{**RESULT, "tool_use_id": ["t"]}], **AGENT),
    message("user", "x", "2", [{**RESULT, "content": None}], toolUseResult={"agentId": ["ag"]}),
    message("assistant", "x", "2", "", message={"usage": {"input_tokens": -5}}),
    message("assistant", "x", "2", "", message={"usage": {"input_tokens": 10**30}}),
    message(
        "assistant",
        "x",
        "2",
        "",
        message={
            "usage": {"input_tokens": 2**31}
            | dict.fromkeys(("cache_creation_input_tokens", "cache_read_input_tokens"), 2**31)
        },
    ),
    message("user", "x", "2", None),
    message("assistant", "x", "2", "half a character: \ud800"),
    *(
        {**message("assistant", "x", "2", ""), "timestamp": at}
        for at in (
            "9" * 400,
            NINES,
            "0001-01-01T00:00:00+23:00",
            "9999-12-31T23:59:59-23:00",
            "²",
            "",
            5,
        )
    ),
    message("user", "x", "2", DEEP.replace("[", '{"a":')),
    DEEP,
]

WEKA: Rows = [
    weka("x", request(1e308, api_time=1.7e308)),
    weka("x", request(10**400)),
    weka("x", request(float("nan"))),
    weka("x", request(1, hash_ids=None, hk=0, hr=[[1, 10**18]])),
    weka("x", request(1, hash_ids=[10**400])),
    weka("x", {**request(1), "in": 10**30}),
    weka("x", request(1), block_size=10**400),
    weka("x", request(1), extra=float("inf")),
    weka("\ud800", request(1), extra="\ud800"),
    json.dumps(weka("x", request(1), other=7)).replace(": 7", f": {NINES}"),
    json.dumps(weka("x", request(1), other=7)).replace(": 7", f": {DEEP}"),
    DEEP,
    None,
    [1],
]

MOONCAKE: Rows = [
    turn("a", 0, input_length=10**30),
    turn("a", 0, hash_ids=[10**400]),
    turn("a", 1e308),
    turn("a", 0, timestamp=None, delay=1.7e308),
    turn("a", float("inf")),
    turn("\ud800", 0),
    DEEP,
]

OWN: Rows = [
    {**call("a", 9, 90.0, 91.0), "input_tokens": 10**30},
    {**call("a", 9, 90.0, 91.0), "blocks": [[1, 10**18]]},
    {**call("a", 9, 90.0, 91.0), "blocks": [[10**40, 1]]},
    {**call("a", 9, 90.0, 91.0), "blocks": [[1, 2**24]] * 200, "block_size": 4},
    call("a", 9, 1e308, -1e308),
    call("\ud800", 9, 90.0, 91.0, extra={"a": "\ud800"}),
    DEEP,
]

GOOD: dict[str, Rows] = {
    "otel": [span(0), span(1)],
    "claude-code": [message("user", "1", None, "a"), message("assistant", "2", "1", "b")],
    "weka": [weka("r", request(0), request(9, 2))],
    "mooncake": [turn("r", 0), turn("r", 5000)],
    "tenuto": [call("r", 0, 0.0, 1.0), call("r", 1, 2.0, 3.0)],
}
HOSTILE = {"otel": OTEL, "claude-code": CLAUDE, "weka": WEKA, "mooncake": MOONCAKE, "tenuto": OWN}


def text_of(row: Any) -> str:
    return row if isinstance(row, str) else json.dumps(row)


def turns_in(traces: list[Trace]) -> int:
    return sum(
        len(session.turns) for trace in traces for session in trace.sessions if trace.id != "x"
    )


@pytest.mark.parametrize(
    ("name", "row"),
    [
        pytest.param(name, text_of(row), id=f"{name}-{number}")
        for name, rows in HOSTILE.items()
        for number, row in enumerate(rows)
    ],
)
def test_a_row_that_cannot_be_costs_no_more_than_itself(
    tmp_path: Path, name: str, row: str
) -> None:
    file = tmp_path / "r.jsonl"
    good = [text_of(one) for one in GOOD[name]]
    file.write_text("\n".join([*good, row, *map(text_of, after(name))]) + "\n")
    (tmp_path / "good.jsonl").write_text("\n".join([*good, *map(text_of, after(name))]) + "\n")
    expected = turns_in(list(read(tmp_path / "good.jsonl")))
    traces, problems = read_all(file)
    assert turns_in(traces) >= expected
    assert {problem.line for problem in problems} <= {len(good) + 1}
    stats(traces)
    write(tmp_path / "own.jsonl", traces)
    assert [digest(one) for one in read(tmp_path / "own.jsonl")] == [digest(one) for one in traces]


def after(name: str) -> Rows:
    """Return rows that stand behind the hostile one."""
    made: dict[str, Callable[[], Rows]] = {
        "otel": lambda: [span(8)],
        "claude-code": lambda: [
            message("user", "8", "2", [RESULT], **AGENT),
            message("assistant", "9", "8", "c"),
            message("assistant", "s", "9", "d", isSidechain=True, agentId="ag"),
        ],
        "weka": lambda: [weka("s", request(0))],
        "mooncake": lambda: [turn("r", 9000)],
        "tenuto": lambda: [call("r", 2, 4.0, 5.0)],
    }
    return made[name]()


@pytest.mark.parametrize(
    ("name", "row", "what"),
    [
        ("otel", {**LATE, "start_time": 10**400}, "has no start that can be read"),
        ("otel", DEEP, "nested too deep"),
        *(
            ("otel", row, "input_tokens is no count; taken as not said")
            for row in (*OTEL[12:15], OTEL[16])
        ),
        ("weka", WEKA[0], "less than or equal to"),
        ("weka", DEEP, "nested too deep"),
        ("mooncake", MOONCAKE[0], "input_length: Input should be less than or equal to"),
        ("claude-code", CLAUDE[3], "input_tokens"),
        ("tenuto", OWN[1], "blocks.0.1: Input should be less than or equal to"),
    ],
)
def test_what_is_left_out_of_a_row_is_said_with_its_line(
    tmp_path: Path, name: str, row: Any, what: str
) -> None:
    rows = [*GOOD[name], row, *after(name)]
    (tmp_path / "r.jsonl").write_text("\n".join(map(text_of, rows)) + "\n")
    (problem,) = read_all(tmp_path / "r.jsonl")[1]
    assert (problem.line, problem.is_note) == (len(GOOD[name]) + 1, False)
    assert what in problem.what


@pytest.mark.parametrize("name", HOSTILE)
def test_a_torn_last_line_is_a_note_in_every_format(tmp_path: Path, name: str) -> None:
    rows = "\n".join(map(text_of, [*GOOD[name], *after(name)]))
    (tmp_path / "r.jsonl").write_text(rows[:-9])
    problems = read_all(tmp_path / "r.jsonl")[1]
    assert [problem.is_note for problem in problems] == [True]
    assert "the last line is torn" in problems[0].what


@pytest.mark.parametrize("name", HOSTILE)
def test_a_byte_order_mark_costs_no_line(tmp_path: Path, name: str) -> None:
    rows = "\n".join(map(text_of, GOOD[name])) + "\n"
    (tmp_path / "r.jsonl").write_text(rows)
    expected = list(read(tmp_path / "r.jsonl"))
    (tmp_path / "r.jsonl").write_text(rows, encoding="utf-8-sig")
    assert list(read(tmp_path / "r.jsonl")) == expected
