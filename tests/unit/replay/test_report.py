"""What `tenuto replay` says at its end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tenuto.cli.replay_report import report
from tenuto.replay.series import Side
from tenuto.results import Header, TurnResult
from tests.unit.replay.programs import FORKS

TURN = TurnResult("forks", "main", "main", 0, 0, 100, 16, 3, 0, 0, 0.5, 1, reachable_tokens=16)


def side(*turns: TurnResult, repeats: int = 1) -> Side:
    header = Header(name="A", traces={"forks": "0"}, target="http://a", repeats=repeats)
    return Side(header, "http://a", Path("a.jsonl"), 8, done=list(turns))


def told(
    one: Side, capsys: pytest.CaptureFixture[str], *, as_json: bool = False
) -> tuple[str, str]:
    report([one], [FORKS], as_json=as_json, route="completions")
    shown = capsys.readouterr()
    return shown.out, shown.err


def test_ranks_that_nobody_told_are_unknown_and_the_way_to_them_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, err = told(side(replace(TURN, rank=None)), capsys)
    assert out.splitlines()[2].split()[3:5] == ["unknown", "unknown"]
    assert err.count("--middleware tenuto_vllm.asgi.observer.RankObserver") == 1
    out, err = told(side(TURN, replace(TURN, turn=1, rank=None)), capsys)
    assert "0 of 1" in out
    assert err == ""


@pytest.mark.parametrize(("cached", "is_warm"), [(16, False), (24, False), (32, True)])
def test_more_than_a_block_beyond_what_was_sent_is_a_warm_cache(
    cached: int, is_warm: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = told(side(replace(TURN, cached_tokens=cached)), capsys)
    assert ("1 calls found more in the cache" in err) == is_warm
    _, err = told(side(replace(TURN, cached_tokens=cached, reachable_tokens=None)), capsys)
    assert "found more" not in err


def test_calls_that_failed_may_have_left_what_others_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = replace(TURN, turn=1, error="APITimeoutError")
    _, err = told(side(replace(TURN, cached_tokens=64), failed), capsys)
    assert "or from calls that failed" in err


def test_the_json_of_a_side_has_what_the_benchmarks_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, _ = told(side(TURN), capsys, as_json=True)
    (said,) = json.loads(out)
    keys = ("sessions", "sessions_on_one_rank", "requests_per_rank", "prompt_tokens")
    assert [said[key] for key in keys] == [1, 1, [1], 100]
