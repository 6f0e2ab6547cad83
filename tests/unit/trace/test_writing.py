"""Where traces are written to, and that what is written is read back."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.cli.trace import main
from tenuto.trace import Session, Trace, TraceError, Turn, read, stats, write
from tenuto.trace.runs import merged
from tests.unit.trace.events import read_all

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/traces/weka_trace_0277_f8.jsonl.gz"


def test_of_a_link_the_file_that_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "link.jsonl").symlink_to("to/file.jsonl")
    for _ in range(2):
        write(tmp_path / "link.jsonl", read(EXAMPLE))
        assert (tmp_path / "link.jsonl").is_symlink()
        assert [path.name for path in (tmp_path / "to").iterdir()] == ["file.jsonl"]
    assert sum(trace.requests for trace in read(tmp_path / "to" / "file.jsonl")) == 53


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert main(["convert", str(EXAMPLE), str(pipe)]) == 0
    reader.join(10)
    assert pipe.is_fifo()
    assert found[0].count(b"\n") == 54


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no files by their number here")
def test_an_open_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w+b") as out:
        write(f"/proc/self/fd/{out.fileno()}", read(EXAMPLE))
        assert out.read().count(b"\n") == 54


def test_two_traces_of_one_id_are_not_written_as_one_run(tmp_path: Path) -> None:
    (trace,) = read(EXAMPLE)
    with pytest.raises(TraceError, match="two traces are called"):
        write(tmp_path / "out.jsonl", [trace, trace])
    assert list(tmp_path.iterdir()) == []


prompts = st.lists(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), max_size=4).map(merged), min_size=1
)


@given(prompts, st.sampled_from([1, 7, 16, 64, 512, 1000]), st.integers(0, 2000))
def test_aiperf_rows_come_back_with_the_same_blocks(
    tmp_path_factory: pytest.TempPathFactory,
    prompts: list[tuple[tuple[int, int], ...]],
    size: int,
    more: int,
) -> None:
    turns = tuple(
        Turn(
            runs,
            sum(length for _, length in runs) * size + more % size,
            1,
            at * 9.0,
            at * 9.0,
        )
        for at, runs in enumerate(prompts)
    )
    trace = Trace("t", size, (Session("main", "main", turns),))
    file = tmp_path_factory.mktemp("rows") / "m.jsonl"
    write(file, [trace], format="mooncake")
    (back,), problems = read_all(file)
    assert (back.block_size, problems) == (size, [])
    counts = [[turn.block_count for turn in one.sessions[0].turns] for one in (trace, back)]
    assert counts[0] == counts[1]
    assert stats([back]).all == stats([trace]).all


def test_the_block_size_of_aiperf_rows_is_found_without_their_word(tmp_path: Path) -> None:
    write(tmp_path / "m.jsonl", read(EXAMPLE), format="mooncake")
    text = (tmp_path / "m.jsonl").read_text()
    (tmp_path / "n.jsonl").write_text(text.replace('"trace_block_size":8,', ""))
    assert "trace_block_size" not in (tmp_path / "n.jsonl").read_text()
    (named,), (found,) = read(tmp_path / "m.jsonl"), read(tmp_path / "n.jsonl")
    assert (found.block_size, found.sessions) == (8, named.sessions)


starts = st.integers(0, 40).map(float)


@given(st.lists(starts, min_size=1, max_size=6), st.data())
def test_weka_brings_back_where_a_session_was_spawned(
    tmp_path_factory: pytest.TempPathFactory, begun: list[float], data: st.DataObject
) -> None:
    def turns(times: list[float]) -> tuple[Turn, ...]:
        return tuple(Turn((), 9, 1, at, at + 1.0) for at in sorted(times))

    root = Session("main", "main", turns(begun))
    spawned = data.draw(st.integers(0, len(begun) - 1))
    least = root.turns[spawned].start_s
    times = data.draw(st.lists(starts.map(lambda at: at + least), min_size=1, max_size=3))
    child = Session("b", "Explore", turns(times), "main", spawned)
    file = tmp_path_factory.mktemp("rows") / "w.jsonl"
    write(file, [Trace("t", 64, (root, child))], format="weka")
    (back,) = read(file)
    assert (back.sessions[1].clock, back.sessions[1].spawned_after) == ("absolute", spawned)
