"""`tenuto replay` as a user runs it: result files, several targets, breaks, and errors."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tenuto import results
from tenuto.cli.compare import main as compare_main
from tenuto.cli.replay import main
from tenuto.errors import ConfigError
from tenuto.trace import Session, Trace, digest, write
from tenuto_vllm.embedded import EngineSettings, serve
from tests.loopback import DEFAULT_SIGNALS, Arrived, Recorder, eventually, serving
from tests.unit.replay.programs import FORKS, turn

COMMAND = [sys.executable, "-c", "import sys; from tenuto.cli.replay import main; sys.exit(main())"]
FAST = EngineSettings(
    ranks=2, blocks=500, block_size=8, prefill_tokens_per_s=1e6, decode_tokens_per_s=1e6
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path, FORKS)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(FAST) as made:
        yield made


def written(folder: Path, *traces: Trace) -> Path:
    path = folder / "traces.jsonl"
    write(path, traces)
    return path


def run(path: Path, *options: str) -> int:
    return main([str(path), "--quiet", "--mode", "asap", *options])


def test_each_call_is_a_line_behind_a_header_that_says_how_it_was_run(
    path: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.jsonl"
    assert (
        run(path, "--target", f"{url}/v1/", "--repeat", "2", "--seed", "7", "--out", str(out)) == 0
    )
    found = results.read(out)
    header = found.header
    assert (header.seed, header.repeats, header.mode, header.target) == (7, 2, "asap", url)
    assert (header.identity, header.model, header.clock) == ("vllm", "tiny", "real")
    assert header.traces == {"forks": digest(FORKS)}
    assert len(found.turns) == 2 * FORKS.requests
    assert not found.problems
    both = [
        [t.reachable_tokens for t in found.turns if t.repeat == n and t.session == "main"]
        for n in (0, 1)
    ]
    assert both[0] == both[1] == [0, 8, 16]
    assert "lag p99" in capsys.readouterr().out


def test_several_targets_take_turns_and_each_has_its_file(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    with serve(FAST) as one, serve(FAST) as other:
        targets = ["--target", one, "--target", other, "--name", "A", "--name", "B"]
        assert run(path, *targets, "--repeat", "2", "--out", str(out), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert [(side["name"], side["requests"], side["errors"]) for side in said] == [
        ("A", 18, 0),
        ("B", 18, 0),
    ]
    a, b = (results.read(out / f"{name}.jsonl") for name in "AB")
    begun = [
        min(turn.start_s for turn in side.turns if turn.repeat == repeat)
        for repeat in (0, 1)
        for side in (a, b)
    ]
    assert begun == sorted(begun)
    assert a.header.traces == b.header.traces


def test_an_embedded_engine_is_started_as_asked_for(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    engines = ["embedded:placement=session-sticky", "embedded:placement=round-robin,ranks=3"]
    targets = [part for engine in engines for part in ("--target", engine)]
    assert run(path, *targets, "--extension", "--out", str(out), "--name", "s", "--name", "r") == 0
    sticky, rotating = (results.read(out / f"{name}.jsonl") for name in "sr")
    assert sticky.header.engine["placement"] == "session-sticky"
    assert (sticky.header.ranks, rotating.header.gpus) == (2, 3.0)
    assert {turn.rank for turn in rotating.turns} == {0, 1, 2}


def test_an_embedded_engine_places_as_it_is_asked_to(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "sticky.jsonl"
    assert run(path, "--target", "embedded:placement=session-sticky", "--out", str(out)) == 0
    homes = {(turn.session, turn.rank) for turn in results.read(out).turns}
    assert len(homes) == len(FORKS.sessions)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_replay_that_was_stopped_is_taken_up(number: int, tmp_path: Path) -> None:
    traces = [replace(FORKS, id=f"t{n}") for n in range(4)]
    path, out = written(tmp_path, *traces), tmp_path / "a.jsonl"
    options = ["--mode", "asap", "--live-sessions", "1", "--out", str(out)]
    with serve(replace(FAST, decode_tokens_per_s=15)) as url:
        options += ["--target", url]
        with subprocess.Popen(
            [*DEFAULT_SIGNALS, *COMMAND, str(path), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert eventually(lambda: lines(out) > 12, timeout_s=30)
            process.send_signal(number)
            process.communicate(timeout=20)
        assert process.returncode == (-9 if number == signal.SIGKILL else 130)
        before = results.read(out)
        assert 12 <= len(before.turns) < 36
        assert run(path, *options, "--resume") == 0
    after = results.read(out)
    assert after.header.resumed == 1
    assert len({(turn.trace, turn.session, turn.turn) for turn in after.turns}) == 36
    assert len(after.turns) == 36
    # What was whole was not played again, and the rest on a cache that did not know it.
    first = [turn for turn in before.turns if turn.trace == "t0"]
    assert [turn for turn in after.turns if turn.trace == "t0"] == first
    begun_s = min(turn.start_s for turn in after.turns if turn not in before.turns)
    assert begun_s > max(turn.end_s for turn in before.turns)
    assert all(turn.cached_tokens <= turn.reachable_tokens for turn in after.turns)


def lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def test_a_run_of_another_kind_is_not_taken_up(
    path: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.jsonl"
    options = ["--target", url, "--out", str(out)]
    assert run(path, *options) == 0
    before = out.read_bytes()
    assert run(path, *options) == 1
    assert "a.jsonl is there: --resume takes it up, " in capsys.readouterr().err
    assert run(path, *options, "--resume", "--seed", "3") == 1
    assert "cannot be taken up: it differs in seed" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert run(path, *options, "--resume") == 0
    assert len(results.read(out).turns) == FORKS.requests


def test_calls_that_fail_are_lines_with_an_error_and_are_made_again(
    path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.jsonl"
    with serve(replace(FAST, max_model_len=20)) as url:
        options = ["--target", url, "--out", str(out)]
        assert run(path, *options) == 1
        port = int(url.rpartition(":")[2])
    failed = [turn.error for turn in results.read(out).turns if turn.error]
    assert failed == ["BadRequestError"]
    with serve(FAST, port=port):
        assert run(path, *options, "--resume") == 0
    assert [turn.error for turn in results.read(out).turns] == [None] * FORKS.requests


def test_fail_fast_stops_at_the_first_error(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.jsonl"
    with serve(replace(FAST, max_model_len=5)) as url:
        assert run(path, "--target", url, "--out", str(out), "--fail-fast") == 1
    assert "stopped by BadRequestError" in capsys.readouterr().err
    assert [turn.error for turn in results.read(out).turns] == ["BadRequestError"]


def test_calls_say_whose_they_are_in_the_words_of_the_dialect(path: Path, tmp_path: Path) -> None:
    heard: dict[str | None, list[Arrived]] = {}
    for dialect in ("vllm", "dynamo", None):
        recorder = Recorder()
        said = ["--unmarked"] if dialect is None else ["--dialect", dialect]
        with serving(recorder) as url:
            target = ["--target", url, "--model", "m", "--out", str(tmp_path / f"{dialect}.jsonl")]
            # It answers without usage, which the measurement needs.
            assert run(path, *target, *said) == 1
        heard[dialect] = [one for one in recorder.arrived if one.path == "/v1/completions"]
        assert len(heard[dialect]) == FORKS.requests
    assert not any(
        name.startswith(("x-session", "x-agent", "x-dynamo"))
        for one in heard[None]
        for name in one.headers
    )
    for dialect, name in {"vllm": "session-id", "dynamo": "dynamo-session-id"}.items():
        parent = name.replace("session", "parent-session")
        ids = [one.headers[f"x-{name}"] for one in heard[dialect]]
        # The root of the trace is an agent of the run; the others are its subagents.
        above = [one.headers[f"x-{parent}"] for one in heard[dialect]]
        assert len(set(ids)) == len(FORKS.sessions)
        assert above.count(ids[0]) == FORKS.requests - 3


def test_a_dialect_that_there_is_not_is_refused(path: Path, url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nonesuch"):
        run(path, "--target", url, "--dialect", "nonesuch", "--out", str(tmp_path / "a.jsonl"))
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--target", "nowhere"], "a target is a URL or embedded"),
        (["--target", "embedded:speed=2"], "no option 'speed=2'"),
        (["--target", "embedded:blocks=1"], "blocks is 1; the least is 2"),
        (["--target", "embedded", "--prompt-form", "tokens", "--vocab", "3"], "vocab is 3"),
        (["--target", "embedded:placement=nonesuch"], "the embedded engine did not start"),
        (["--target", "http://127.0.0.1:1"], "http://127.0.0.1:1/v1/models: APIConnectionError"),
        (["--target", "embedded", "--factor", "3"], "--factor 3: factor 3 does not divide"),
        (["--target", "embedded", "--resume", "--overwrite"], "give one"),
        (["--target", "embedded", "--id", "other"], "no trace"),
        (["--target", "embedded", "--name", "a", "--name", "b"], "2 names for 1 targets"),
    ],
)
def test_what_cannot_be_run_is_told_before_a_file_is_made(
    options: list[str],
    told: str,
    path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "a.jsonl"
    assert run(path, *options, "--out", str(out)) == 1
    assert told in capsys.readouterr().err
    assert not out.exists()


def test_a_factor_that_leaves_blocks_too_short_for_their_number_is_named(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    many = Session("s", "s", tuple(turn(*range(n, n + 9), at=n) for n in range(0, 90, 9)))
    path, out = written(tmp_path, Trace("many", 8, (many,))), tmp_path / "a.jsonl"
    options = ["--target", url, "--out", str(out), "--factor", "8"]
    assert run(path, *options) == 1
    told = capsys.readouterr().err
    assert "90 different blocks" in told
    assert "take a smaller --factor than 8" in told
    assert not out.exists()
    assert run(path, *options, "--prompt-form", "tokens", "--vocab", "1000") == 0


def test_what_is_no_result_file_is_never_written_over(
    path: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text("my notes\n", encoding="utf-8")
    for out, told in ((path, "is a trace"), (notes, "is there and no result file")):
        before = out.read_bytes()
        for options in ([], ["--resume"], ["--overwrite"]):
            assert run(path, "--target", url, "--out", str(out), *options) == 1
            assert f"{out.name} {told}; name another" in capsys.readouterr().err
        assert out.read_bytes() == before


def test_a_result_file_is_written_anew_where_that_is_asked_for(
    path: Path, url: str, tmp_path: Path
) -> None:
    options = ["--target", url, "--out", str(tmp_path / "a.jsonl"), "--seed"]
    assert run(path, *options, "21") == 0
    assert run(path, *options, "22", "--overwrite") == 0
    assert results.read(tmp_path / "a.jsonl").header.seed == 22


def test_the_first_error_of_each_target_is_told_with_its_status_and_message(
    path: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = ["--target", url, "--target", "http://127.0.0.1:1", "--name", "A", "--name", "B"]
    assert run(path, *targets, "--model", "nope", "--out", str(tmp_path / "runs")) == 1
    told = capsys.readouterr().err.splitlines()
    assert [line for line in told if " A: " in line] == [
        "tenuto replay: A: 9 of 9 calls failed, first NotFoundError 404: "
        "The model `nope` does not exist."
    ]
    assert len([line for line in told if "B: 9 of 9 calls failed, first APIConn" in line]) == 1


def test_a_server_that_had_the_prompts_before_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = Session("s", "s", tuple(turn(*range(n), at=10 * n) for n in (4, 8, 12)))
    path = written(tmp_path, Trace("long", 8, (long,)))
    told = {}
    with serve(FAST) as url:
        for name, options in {
            "cold": ["--repeat", "2"],
            "warm": [],
            "emptied": ["--reset"],
            "seeded": ["--seed", "5"],
        }.items():
            out = str(tmp_path / f"{name}.jsonl")
            assert run(path, "--target", url, "--out", out, "--block-size", "8", *options) == 0
            told[name] = "had these prompts before" in capsys.readouterr().err
    assert [name for name, is_told in told.items() if is_told] == ["warm"]
    both = [str(tmp_path / f"{name}.jsonl") for name in ("emptied", "warm")]
    assert compare_main(both) == 0
    assert "note: B was not cold: 3 calls found more" in capsys.readouterr().out


def test_a_server_that_cannot_be_emptied_is_told_with_the_way_out_before_a_file_is_made(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.jsonl"
    with serving(Recorder(script=[404])) as url:
        assert run(path, "--target", url, "--model", "m", "--reset", "--out", str(out)) == 1
    told = capsys.readouterr().err
    assert f"{url}/reset_prefix_cache answers 404" in told
    assert "VLLM_SERVER_DEV_MODE=1" in told
    assert not out.exists()


def test_a_table_of_several_repeats_says_that_it_sums_them(
    path: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for repeats in ("1", "2"):
        out = str(tmp_path / f"{repeats}.jsonl")
        run(path, "--target", url, "--repeat", repeats, "--seed", "31", "--out", out)
        assert ("sums of 2 repeats" in capsys.readouterr().out) == (repeats == "2")


def test_an_embedded_engine_behind_a_url_is_known_to_be_modelled(
    path: Path, url: str, tmp_path: Path
) -> None:
    out = tmp_path / "a.jsonl"
    assert run(path, "--target", url, "--seed", "41", "--out", str(out)) == 0
    assert results.read(out).header.engine == {"is_modelled": True}


def test_the_cache_is_emptied_before_each_repeat_where_it_is_asked_for(
    path: Path, url: str, tmp_path: Path
) -> None:
    found = {}
    for name, options in {"kept": [], "emptied": ["--reset"]}.items():
        out = tmp_path / f"{name}.jsonl"
        many = ["--repeat", "2", "--no-cache-bust", "--concurrency", "1", "--ranks", "2"]
        assert run(path, "--target", url, "--out", str(out), "--seed", "9", *many, *options) == 0
        turns = results.read(out).turns
        found[name] = sum(turn.cached_tokens for turn in turns if turn.repeat == 1)
    assert found["kept"] > found["emptied"]


def test_two_ways_to_one_server_do_not_find_each_others_prompts(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    with serve(replace(FAST, ranks=1)) as url:
        targets = ["--target", url, "--target", f"{url}/v1", "--name", "A", "--name", "B"]
        assert run(path, *targets, "--concurrency", "1", "--out", str(out)) == 0
    a, b = (results.read(out / f"{name}.jsonl").turns for name in "AB")
    assert [turn.cached_tokens for turn in a] == [turn.cached_tokens for turn in b]
    assert all(turn.cached_tokens == turn.reachable_tokens for turn in (*a, *b))


def test_each_call_may_have_a_connection_of_its_own(path: Path, tmp_path: Path) -> None:
    heard = []
    for options in ([], ["--new-connections"]):
        recorder = Recorder()
        with serving(recorder) as url:
            out = str(tmp_path / f"{len(options)}.jsonl")
            run(path, "--target", url, "--model", "m", "--out", out, *options)
        heard.append({one.headers["connection"] for one in recorder.arrived})
    assert heard == [{"keep-alive"}, {"close"}]
