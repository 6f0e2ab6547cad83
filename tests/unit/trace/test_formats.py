from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tenuto.trace import FORMATS, Session, Trace, TraceError, Turn, digest, read, write
from tests.unit.trace.events import read_all

SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="no shared traces beside this")


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# Mooncake and AIPerf


def test_a_mooncake_request_is_a_session_with_its_full_blocks(tmp_path: Path) -> None:
    row = {"timestamp": 1500, "input_length": 1100, "output_length": 7, "hash_ids": [0, 1, 9]}
    (trace,) = read(lines(tmp_path / "m.jsonl", row, {**row, "timestamp": 2000}))
    assert (trace.id, trace.block_size, trace.block_scope) == ("m", 512, "global")
    assert [session.turns for session in trace.sessions] == [
        (Turn(((0, 2),), 1100, 7, 1.5, 1.5),),
        (Turn(((0, 2),), 1100, 7, 2.0, 2.0),),
    ]


def test_rows_with_a_session_are_its_turns_and_a_delay_is_a_gap(tmp_path: Path) -> None:
    row = {"input_length": 600, "output_length": 7, "hash_ids": [0, 1], "session_id": "s"}
    file = lines(tmp_path / "m.jsonl", {**row, "timestamp": 1000}, {**row, "delay": 250})
    (trace,) = read(file)
    assert [turn.start_s for turn in trace.sessions[0].turns] == [1.0, 1.25]


def test_aiperf_rows_have_an_id_for_each_begun_block_and_ms(tmp_path: Path) -> None:
    turns = (Turn(((5, 2),), 130, 9, 1.0, 2.0), Turn(((5, 3),), 192, 9, 4.5, 5.0))
    trace = Trace("t", 64, (Session("main", "main", turns),))
    write(tmp_path / "a.jsonl", [trace, trace], format="mooncake")
    rows = [json.loads(row) for row in (tmp_path / "a.jsonl").read_text().splitlines()]
    said = {
        "session_id": "t/main",
        "output_length": 9,
        "trace_block_size": 64,
        "context_mode": "message_array_with_responses",
    }
    assert rows[:2] == [
        {**said, "input_length": 130, "hash_ids": [0, 1, 2], "timestamp": 1000},
        {**said, "input_length": 192, "hash_ids": [0, 1, 3], "delay": 2500},
    ]
    # Ids of scope `run` must not meet in one file.
    assert [row["hash_ids"] for row in rows[2:]] == [[4, 5, 6], [4, 5, 7]]


def test_a_bad_mooncake_row_is_named_and_a_negative_time_put_right(tmp_path: Path) -> None:
    good = {"timestamp": -5, "input_length": 10, "output_length": 1, "hash_ids": []}
    bad = {"timestamp": 0, "input_length": -10}
    (trace,), problems = read_all(lines(tmp_path / "m.jsonl", good, bad))
    assert trace.sessions[0].turns[0].start_s == 0.0
    assert [problem.line for problem in problems] == [1, 2]


@needs_shared
def test_the_public_mooncake_trace_hits_as_its_statistics_say() -> None:
    with gzip.open(SHARED / "mooncake" / "synthetic_trace.jsonl.gz") as file:
        rows = [json.loads(row) for row in file]
    (trace,) = read(SHARED / "mooncake" / "synthetic_trace.jsonl.gz")
    assert trace.requests == len(rows) == 3993
    assert sum(s.turns[0].input_tokens for s in trace.sessions) == sum(
        row["input_length"] for row in rows
    )


# Claude Code


def entry(kind: str, uuid: str, parent: str | None, at_s: float, content: Any, **more: Any) -> Any:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "run-1",
        "isSidechain": False,
        "timestamp": f"2026-01-01T00:00:{at_s:06.3f}Z",
        "message": message,
        **more,
    }


def answer(uuid: str, parent: str, at_s: float, content: Any, api: str, **more: Any) -> Any:
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 200, "output_tokens": 40}
    said = {"id": api, "model": "m", "usage": {**usage, "cache_read_input_tokens": 1000}}
    stop = {"stop_reason": more.pop("stop", "tool_use")}
    return entry("assistant", uuid, parent, at_s, content, message={**said, **stop}, **more)


TASK = {"type": "tool_use", "id": "tu1", "name": "Task", "input": {"subagent_type": "Explore"}}
RESULT = {"type": "tool_result", "tool_use_id": "tu1", "content": "found", "is_error": False}
SIDE = {"isSidechain": True, "agentId": "ag1"}
LOG = [
    {"type": "mode", "sessionId": "run-1", "permissionMode": "x"},
    entry("user", "u1", None, 0.0, "please " * 100),
    answer("a1", "u1", 2.0, [{"type": "text", "text": "well"}], "m1"),
    answer("a2", "a1", 3.0, [TASK], "m1"),
    entry("user", "s1", None, 3.5, "look", **SIDE),
    answer("s2", "s1", 6.0, [{"type": "text", "text": "seen"}], "m2", stop="end_turn", **SIDE),
    entry("user", "u2", "a2", 8.0, [RESULT], toolUseResult={"agentId": "ag1"}),
    answer("a3", "u2", 10.0, [{"type": "text", "text": "done"}], "m3", stop="end_turn"),
]


def test_a_claude_code_log_is_a_run_with_its_subagent(tmp_path: Path) -> None:
    (trace,) = read(lines(tmp_path / "c.jsonl", *LOG))
    main, child = trace.sessions
    assert (trace.id, trace.source, main.label, child.label) == (
        "run-1",
        "claude-code",
        "main",
        "ag1",
    )
    assert (child.agent, child.parent, child.spawned_after) == ("Explore", "main", 0)
    assert child.joined_before == 1
    first, second = main.turns
    assert (first.start_s, first.end_s, second.start_s, second.end_s) == (0.0, 3.0, 8.0, 10.0)
    assert (first.input_tokens, first.cached_tokens, first.output_tokens) == (1210, 1000, 40)
    assert [turn.finish_reason for turn in main.turns] == ["tool_use", "end_turn"]
    (tool,) = second.tools
    assert (tool.name, tool.tool_call_id, tool.start_s, tool.end_s) == ("Task", "tu1", 3.0, 8.0)
    assert first.tools == ()


def test_a_claude_code_prompt_begins_with_the_blocks_of_the_one_before(tmp_path: Path) -> None:
    first, second = read_all(lines(tmp_path / "c.jsonl", *LOG))[0][0].sessions[0].turns
    assert first.block_count >= 2
    assert second.block_ids[: first.block_count] == first.block_ids


def test_no_text_of_a_claude_code_log_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "o.jsonl", read(lines(tmp_path / "c.jsonl", *LOG)))
    text = (tmp_path / "o.jsonl").read_text()
    assert not any(word in text for word in ("please", "look", "seen", "found", "done"))


@needs_shared
def test_a_real_claude_code_session_is_read(tmp_path: Path) -> None:
    # The published copy has a separator before each record.
    text = (SHARED / "tracelab" / "claude" / "trace.json").read_text()
    records = [json.loads(one) for one in re.split(r"===== record \d+ =====\n", text)[1:]]
    (trace,), problems = read_all(lines(tmp_path / "c.jsonl", *records))
    assert problems == []
    (session,) = trace.sessions
    assert len(session.turns) == 10
    assert session.turns[0].input_tokens == 2892 + 27217 + 2163
    assert [len(turn.tools) for turn in session.turns] == [0, 2, 1, 1, 1, 0, 1, 1, 1, 1]


@needs_shared
@pytest.mark.parametrize(
    "name", ["assistant_sidechain", "user_sidechain", "Task-tool_result", "Bash-tool_use"]
)
def test_each_shape_of_a_claude_code_line_is_read_without_a_problem(name: str) -> None:
    file = SHARED / "claude-code-messages" / f"{name}.jsonl"
    assert read_all(file)[1] == []


# OpenTelemetry


def span(name: str, start: int, end: int, said: list[str], **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text * 200} for text in said]
    return {
        "trace_id": "t1",
        "span_id": f"{name}-{start}",
        "start_time": f"2026-01-01T00:00:{start:02}",
        "end_time": f"2026-01-01T00:00:{end:02}",
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.agent.name": name,
            "gen_ai.input.messages": json.dumps(messages),
            "gen_ai.usage.input_tokens": 60 * len(said),
            "gen_ai.usage.output_tokens": 5,
            "gen_ai.response.finish_reasons": ["stop"],
            **more,
        },
    }


def test_spans_are_sessions_of_their_agents(tmp_path: Path) -> None:
    tool = span("lead", 6, 7, [], **{"gen_ai.operation.name": "execute_tool"})
    tool["attributes"]["gen_ai.tool.name"] = "search"
    spans = [
        span("lead", 8, 9, ["a", "b", "c"]),
        tool,
        span("lead", 0, 1, ["a"]),
        span("scout", 2, 4, ["x"]),
        span("scout", 3, 5, ["y"]),
    ]
    (tmp_path / "o.json").write_text(json.dumps({"spans": spans}))
    (trace,) = read(tmp_path / "o.json")
    shape = [(s.label, s.agent, s.parent, s.spawned_after, s.joined_before) for s in trace.sessions]
    assert shape == [
        ("lead", "lead", None, None, None),
        ("scout", "scout", "lead", 0, 1),
        ("scout#2", "scout", "lead", 0, 1),
    ]
    first, second = trace.sessions[0].turns
    assert second.block_ids[: first.block_count] == first.block_ids
    assert (second.start_s, second.finish_reason, second.output_tokens) == (8.0, "stop", 5)
    assert [one.name for one in second.tools] == ["search"]


def test_a_call_beside_a_busy_session_of_its_agent_inherits_from_the_root(tmp_path: Path) -> None:
    file = lines(
        tmp_path / "o.jsonl",
        span("a", 0, 1, ["p"]),
        span("a", 2, 9, ["p", "q"]),
        span("a", 3, 4, ["p", "q", "r"]),
    )
    (trace,) = read(file)
    assert [(s.label, s.fork, len(s.turns)) for s in trace.sessions] == [
        ("a", "fresh", 2),
        ("a#2", "inherit", 1),
    ]


def test_otlps_own_json_is_read_like_the_flat_one(tmp_path: Path) -> None:
    flat = span("a", 0, 1, ["p"])
    typed = [
        {
            "key": key,
            "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
        }
        for key, value in flat["attributes"].items()
        if not isinstance(value, list)
    ]
    start_ns = 1767225600 * 10**9
    otlp = {
        "traceId": "t1",
        "spanId": "s",
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(start_ns + 10**9),
        "attributes": typed,
    }
    whole = {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [otlp]}]}]}
    left = list(read(lines(tmp_path / "flat.jsonl", flat)))
    assert [digest(one) for one in read(lines(tmp_path / "otlp.jsonl", whole))] == [
        digest(one) for one in left
    ]


@needs_shared
@pytest.mark.parametrize(
    ("name", "calls", "sessions"),
    [
        ("simple_chain", 3, 1),
        ("parallel_requests", 5, 2),
        ("multi_agent_research", 12, 6),
        ("code_review_workflow", 15, 7),
    ],
)
def test_the_public_span_files_are_read(name: str, calls: int, sessions: int) -> None:
    (trace,), problems = read_all(SHARED / "otel" / f"{name}.json")
    assert (trace.requests, len(trace.sessions), problems) == (calls, sessions, [])


def test_a_span_without_a_time_is_told_with_its_line(tmp_path: Path) -> None:
    broken = {**span("a", 2, 3, ["p"]), "start_time": "yesterday"}
    (trace,), (problem,) = read_all(lines(tmp_path / "o.jsonl", span("a", 0, 1, ["p"]), broken))
    assert (trace.requests, problem.line) == (1, 2)


# The table


def test_a_format_that_is_only_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="otel is only read; formats to write: tenuto, weka, moon"):
        write(tmp_path / "x.jsonl", [], format="otel")
    assert [one.name for one in FORMATS] == ["tenuto", "weka", "mooncake", "claude-code", "otel"]


def test_what_cannot_be_written_leaves_no_file_and_the_old_one_whole(tmp_path: Path) -> None:
    nested = Trace(
        "t", 8, (Session("a", "x", ()), Session("b", "x", (), "a"), Session("c", "x", (), "b"))
    )
    (tmp_path / "w.jsonl").write_text("before")
    with pytest.raises(TraceError):
        write(tmp_path / "w.jsonl", [nested], format="weka")
    assert [path.name for path in tmp_path.iterdir()] == ["w.jsonl"]
    assert (tmp_path / "w.jsonl").read_text() == "before"
