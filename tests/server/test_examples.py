"""Each example runs and shows what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx

import tenuto_vllm
from tenuto_vllm.embedded import serve

EXAMPLES = Path(__file__).parents[2] / "examples"


def output_of(name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "", "TENUTO_KEY": "for the test"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_quickstart_shows_three_sessions_at_home_with_growing_caches() -> None:
    rows = re.findall(
        r"(\S+) +turn (\d)  rank=(\d), home=\d, why=(\w+) +(\d+) of \d+", output_of("quickstart.py")
    )
    assert len(rows) == 9
    for name in ("planner", "tool-caller", "verifier"):
        mine = [row for row in rows if row[0] == name]
        assert len({rank for _, _, rank, _, _ in mine}) == 1
        assert [why for _, _, _, why, _ in mine] == ["first", "home", "home"]
        cached = [int(tokens) for *_, tokens in mine]
        assert cached == sorted(cached)
        assert cached[-1] > cached[0]


def test_an_agents_prompt_is_still_cached_after_its_tool_only_with_leases() -> None:
    rows = re.findall(r"(\w+) +turn (\d): +(\d+) of (\d+)", output_of("waiting_for_tools.py"))
    found = {(name, int(turn)): int(cached) for name, turn, cached, _ in rows}
    assert all(found["lru", turn] == 0 for turn in range(3))
    assert found["hinted", 2] > found["hinted", 1] > 1000


def test_the_readmes_program_runs_as_it_stands_but_for_the_address_and_the_model(
    tmp_path: Path,
) -> None:
    readme = (EXAMPLES.parent / "README.md").read_text("utf-8")
    program, recording = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    program = program.replace("asyncio.run(main())\n", recording)
    with serve(middleware=[tenuto_vllm.TurnMiddleware]) as url:
        program = program.replace("http://localhost:8000", url).replace('"MODEL"', '"tiny"')
        (tmp_path / "program.py").write_text(program, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, tmp_path / "program.py"],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": "", "TENUTO_KEY": "for the test"},
        )
        assert (done.returncode, done.stderr) == (0, "")
        placed = httpx.get(f"{url}/tenuto/state").json()["placed"]
    assert placed == {"first": 2}
    assert len((tmp_path / "run.jsonl").read_text("utf-8").splitlines()) == 2


def test_every_way_to_call_works_on_a_wrapped_client() -> None:
    said = output_of("every_call.py")
    assert "planner/search 1:" in said
    assert "Verdict(passed=" in said
    assert "served rank=" in said
    assert "unmarked: " in said


def test_a_recorded_run_is_read_back() -> None:
    rows = re.findall(
        r"planner turn (\d): (\d+) tokens in, 8 out, length", output_of("recording.py")
    )
    assert [turn for turn, _ in rows] == ["0", "1", "2"]
    assert int(rows[0][1]) < int(rows[1][1]) < int(rows[2][1])
