"""What vLLM's processes load of the extension before any model, and what it says there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LOADS = """
import sys, json
before = set(sys.modules)
from tenuto_vllm.plugin import check
check()
print(json.dumps(sorted(set(sys.modules) - before)))
"""
CHILD = """
import multiprocessing
from tenuto_vllm.plugin import check
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=check)
    process.start()
    process.join()
    raise SystemExit(process.exitcode)
"""
SERVE = ("serve", "MODEL", "--middleware", "tenuto_vllm.TurnMiddleware")
SCHEDULER = ("serve", "MODEL", "--scheduler-cls=tenuto_vllm.TurnScheduler")


def run(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *(("-c", code) if "\n" in code else (code,)), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **variables},
    )


def test_it_says_nothing_and_loads_nothing_but_the_standard_library() -> None:
    done = run(LOADS, *SERVE)
    assert (done.returncode, done.stderr) == (0, "")
    outside = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert outside - set(sys.stdlib_module_names) <= {"tenuto_vllm", "__mp_main__"}


@pytest.mark.parametrize("value", ["1", "2"])
def test_the_rust_front_end_is_warned_of_once_with_the_way_out(value: str) -> None:
    done = run(LOADS, VLLM_USE_RUST_FRONTEND=value)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "VLLM_USE_RUST_FRONTEND is set" in done.stderr
    assert "Unset it, or let a router in front hash on X-Session-ID." in done.stderr


@pytest.mark.parametrize("value", ["", "0"])
def test_without_the_rust_front_end_it_says_nothing(value: str) -> None:
    assert run(LOADS, VLLM_USE_RUST_FRONTEND=value).stderr == ""


@pytest.mark.parametrize("given", [SERVE, SCHEDULER])
def test_a_bad_setting_ends_a_server_with_the_extension_by_a_sentence_alone(
    given: tuple[str, ...],
) -> None:
    done = run(LOADS, *given, TENUTO_SESSIONS="many")
    assert done.returncode == 1
    assert done.stderr.startswith("tenuto: TENUTO_SESSIONS is 'many'; it must be ")
    assert done.stderr.count("\n") == 1


def test_a_bad_setting_is_nothing_to_a_server_without_the_extension() -> None:
    done = run(LOADS, "serve", "MODEL", TENUTO_SESSIONS="many")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_processes_that_a_server_starts_say_nothing_again(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    done = run(str(script), *SERVE, TENUTO_SESSIONS="many", VLLM_USE_RUST_FRONTEND="1")
    assert (done.returncode, done.stderr) == (0, "")
