from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.trace import Session, Trace, TraceError, Turn, digest, write
from tenuto.trace import read as read_file
from tenuto.trace.formats.weka import trace_from_weka
from tenuto.trace.formats.weka_rows import published
from tenuto.trace.formats.weka_write import weka_from_trace
from tenuto.trace.runs import Runs, ids_of, merged, runs_of

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "traces" / "weka_trace_0277_f8.jsonl.gz"
CORPUS = ROOT.parent / "shared" / "traces" / "weka_open.jsonl.gz"


def call(t: float, *, api_time: float = 1.0, blocks: int = 1) -> dict[str, Any]:
    return {
        "type": "n",
        "t": t,
        "in": blocks * 64,
        "out": 10,
        "api_time": api_time,
        "hash_ids": list(range(blocks)),
        "stop": "tool_use",
    }


def subagent(t: float, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    row = {"type": "subagent", "t": t, "agent_id": "agent_001", "subagent_type": "Explore"}
    return {**row, "status": "completed", "requests": list(calls), **more}


def read(*requests: dict[str, Any]) -> Trace:
    row = {"id": "t", "block_size": 64, "requests": list(requests)}
    return trace_from_weka(row)


def test_times_from_the_spawn_are_moved_to_an_entry_that_stands_at_the_end() -> None:
    # kv-cache-tester's corpus: 100 s is where the subagent ended, 60 s after its spawn.
    child = read(
        call(10.0, api_time=29.0),
        subagent(100.0, call(0.0), call(50.0), duration_ms=60000),
        call(105.0),
    ).sessions[1]
    assert child.clock == "since-spawn-from-end"
    assert [turn.start_s for turn in child.turns] == [40.0, 90.0]
    assert (child.spawned_after, child.joined_before) == (0, 1)


def test_times_from_the_spawn_are_moved_to_an_entry_that_stands_at_the_spawn() -> None:
    # Going back by the duration would land before the turn that spawned it.
    child = read(
        call(10.0), subagent(12.0, call(0.0), call(50.0), duration_ms=60000), call(105.0)
    ).sessions[1]
    assert child.clock == "since-spawn"
    assert [turn.start_s for turn in child.turns] == [12.0, 62.0]


def test_absolute_times_stay() -> None:
    child = read(
        call(10.0), subagent(12.0, call(12.0), call(50.0), duration_ms=60000), call(105.0)
    ).sessions[1]
    assert child.clock == "absolute"
    assert [turn.start_s for turn in child.turns] == [12.0, 50.0]


def test_the_parent_waits_for_a_subagent_with_its_first_turn_after_the_end() -> None:
    trace = read(
        call(0.0),
        call(5.0),
        subagent(6.0, call(6.0), call(20.0)),
        call(10.0),
        call(30.0),
        call(40.0),
    )
    assert (trace.sessions[1].spawned_after, trace.sessions[1].joined_before) == (1, 3)


def test_the_parent_does_not_wait_for_a_subagent_that_was_launched_in_the_background() -> None:
    child = read(
        call(0.0), subagent(6.0, call(0.0), status="async_launched", duration_ms=None), call(30.0)
    ).sessions[1]
    assert (child.clock, child.joined_before) == ("since-spawn", None)


def test_a_call_without_a_recorded_duration_ends_when_it_starts() -> None:
    row = call(3.0)
    del row["api_time"]
    assert read(row).sessions[0].turns[0].end_s == 3.0


def test_packed_and_published_rows_give_the_same_trace() -> None:
    packed = {"type": "n", "t": 1.0, "in": 200, "out": 1, "hk": 1, "hr": [[7, 2]]}
    published = {"type": "n", "t": 1.0, "in": 200, "out": 1, "hash_ids": [0, 7, 8]}
    assert read(call(0.0, blocks=2), packed) == read(call(0.0, blocks=2), published)


@pytest.mark.parametrize("name", ["one.json", "one.jsonl", "one.json.gz", "one.jsonl.gz"])
def test_each_kind_of_file_is_read(tmp_path: Path, name: str) -> None:
    row = {"id": "t", "block_size": 64, "requests": [call(0.0)]}
    text = json.dumps(row, indent=None if "jsonl" in name else 1).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert list(read_file(tmp_path / name)) == [read(call(0.0))]


def test_a_broken_line_is_named_with_its_file(tmp_path: Path) -> None:
    good = json.dumps({"id": "t", "block_size": 64, "requests": []})
    (tmp_path / "two.jsonl").write_text(f'{good}\n{{"id": "u"}}\n')
    found = read_file(tmp_path / "two.jsonl")
    assert next(found).id == "t"
    with pytest.raises(TraceError, match=r"two\.jsonl:2: not a Weka trace: block_size"):
        next(found)


def test_a_request_without_block_ids_is_refused() -> None:
    row = call(2.0)
    del row["hash_ids"]
    with pytest.raises(ValueError, match="neither hash_ids nor hk and hr"):
        read(row)


@st.composite
def turns(draw: st.DrawFn, begin: float) -> tuple[Turn, ...]:
    at, made = begin, []
    for blocks in draw(st.lists(st.lists(st.integers(0, 9), max_size=6).map(tuple), max_size=5)):
        end = at + draw(st.integers(0, 40))
        made.append(Turn(runs_of(blocks), len(blocks) * 8 + 3, draw(st.integers(0, 50)), at, end))
        at = end + draw(st.integers(2, 40))
    return tuple(made)


@st.composite
def forking_traces(draw: st.DrawFn) -> Trace:
    root = Session("main", "main", draw(turns(0.0)))
    children = []
    for index, turn in enumerate(root.turns[:-1]):
        child = draw(turns(turn.end_s + 0.25))
        after = (
            [
                k
                for k, other in enumerate(root.turns)
                if k > index and other.start_s + 1 >= child[-1].end_s
            ]
            if child
            else []
        )
        # Without a turn of its own a child's place is lost in the format.
        if after and draw(st.booleans()) and child[0].start_s < root.turns[index + 1].start_s:
            children.append(Session(f"a{index}", "Explore", child, "main", index, after[0]))
    return Trace("t", 8, (root, *children), source="weka")


@given(forking_traces(), st.booleans())
def test_what_is_written_is_read_back_the_same(trace: Trace, packed: bool) -> None:
    back = trace_from_weka(weka_from_trace(trace, packed=packed))
    assert back == trace
    assert digest(back) == digest(trace)


def test_the_same_trace_is_written_as_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write(tmp_path / name, [read(call(0.0))], format="weka")
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_a_trace_that_the_format_cannot_say_is_not_written() -> None:
    nested = Trace(
        "t", 8, (Session("a", "x", ()), Session("b", "x", (), "a"), Session("c", "x", (), "b"))
    )
    with pytest.raises(TraceError, match="not one root with direct children"):
        weka_from_trace(nested)


def test_the_example_is_the_recorded_session_with_its_four_subagents() -> None:
    (trace,) = read_file(EXAMPLE)
    shape = [
        (s.label, s.agent, len(s.turns), s.spawned_after, s.joined_before) for s in trace.sessions
    ]
    assert trace.block_size == 8
    assert shape == [
        ("main", "main", 9, None, None),
        ("agent_001", "Explore", 4, 0, 1),
        ("agent_002", "Explore", 12, 0, 1),
        ("agent_003", "Explore", 17, 0, 1),
        ("agent_004", "Plan", 11, 6, 7),
    ]
    assert max(turn.input_tokens for s in trace.sessions for turn in s.turns) == 92614 // 8


ODD_ROWS = [
    {**call(0.0), "think_time": 0.0, "input_types": ["text"], "new_word": {"a": [1]}},
    {"type": "s", "t": 7.123456789, "in": 64, "out": 0, "stop": "", "hash_ids": [5]},
    {**call(9.0), "api_time": 0.1234567, "ttft": 0.05, "model": "m"},
    {**call(11.0), "api_time": 2.0, "ttft": 3.5, "type": "n"},
    {**call(12.0), "api_time": 0.0, "ttft": None},
    {**call(13.0), "api_time": -1.0},
    subagent(3.5, call(0.0), call(1.1), duration_ms=None, models=["m"], total_tokens=3),
    call(14.0),
    subagent(80.5, call(0.25), duration_ms=61000, status="async_launched", odd=None),
    {**subagent(81.0), "agent_id": "agent_001"},
]


def test_every_field_of_a_row_comes_back_through_the_own_format(tmp_path: Path) -> None:
    row = {"id": "t", "block_size": 64, "hash_id_scope": "local", "requests": ODD_ROWS, "new": 1}
    write(tmp_path / "own.jsonl", [trace_from_weka(row)])
    (back,) = read_file(tmp_path / "own.jsonl")
    assert back == trace_from_weka(row)
    assert weka_from_trace(back, packed=False) == row


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not beside the repository")
def test_all_open_sessions_come_back_equal_through_the_own_format(tmp_path: Path) -> None:
    own, back = tmp_path / "own.jsonl", tmp_path / "back.jsonl"
    write(own, read_file(CORPUS))
    write(back, read_file(own), format="weka")
    count = 0
    with gzip.open(CORPUS) as before, back.open("rb") as after:
        for left, right in zip(before, after, strict=True):
            assert written_out(json.loads(right)) == written_out(json.loads(left))
            count += 1
    assert count == 415


def written_out(row: dict[str, Any]) -> dict[str, Any]:
    """Replace `hk` and `hr` by the runs of the ids that they stand for."""
    main: list[dict[str, Any]] = [one for one in row["requests"] if one["type"] != "subagent"]
    agents = [one["requests"] for one in row["requests"] if one["type"] == "subagent"]
    for calls in (main, *agents):
        ids: list[int] = []
        for one in calls:
            ids = ids[: one.pop("hk")] + ids_of(one.pop("hr"))
            one["hash_ids"] = runs_of(ids)
    return row


run_lists = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=6).map(merged)


@given(st.lists(run_lists, max_size=5))
def test_published_ids_are_those_of_the_runs(prompts: list[Runs]) -> None:
    rows = [
        {**call(float(at), blocks=len(ids)), "hash_ids": ids}
        for at, ids in enumerate(published(prompts))
    ]
    assert [turn.blocks for turn in read(*rows).sessions[0].turns] == prompts


def test_a_subagent_of_another_format_stands_behind_the_turn_that_spawned_it() -> None:
    turns = tuple(Turn(((at, 1),), 64, 1, at * 9.0, at * 9.0 + 1) for at in range(3))
    child = Session("b", "Explore", (Turn(((7, 1),), 64, 1, 10.5, 11.0),), "a", 1, 2)
    row = weka_from_trace(Trace("t", 64, (Session("a", "main", turns), child)))
    assert [entry["type"] for entry in row["requests"]] == ["n", "n", "subagent", "n"]
