"""`tenuto` as a command: our own agent passes whole, and every ending has its exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tenuto
from tests.loopback import eventually

ROOT = Path(__file__).parents[2]
AGENT = f"{sys.executable} {ROOT / 'examples/conformance_agent.py'}"


def cli(
    *arguments: str, code: str = "", timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    start = ["-c", code] if code else ["-W", "error", "-m", "tenuto.cli"]
    return subprocess.run(
        [sys.executable, *start, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
    )


def by_hand(name: str) -> str:
    return f"{sys.executable} -m tests.unit.sdk.conformance.agents {name}"


def script(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return f"{sys.executable} {path}"


def test_our_own_agent_passes_whole_and_the_report_is_written(tmp_path: Path) -> None:
    file, kept = tmp_path / "report.json", tmp_path / "requests.jsonl"
    done = cli(
        *("conformance", "--strict", "--command", AGENT),
        *("--json", str(file), "--keep", str(kept)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(file.read_text("utf-8"))
    statuses = {one["status"] for one in said["results"]}
    assert statuses == {"pass", "server", "hidden"}, done.stdout
    assert said["dialects"] == ["vllm"]
    assert [run["exit_status"] for run in said["runs"]] == [0, 0]
    assert "dialect: vllm" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr.count("serving at http://127.0.0.1:") == 2
    requests = [json.loads(line) for line in kept.read_text("utf-8").splitlines()]
    assert {one["origin"] for one in requests} == {"first", "second"}
    values = {name: value for one in requests for name, value in one["headers"]}
    assert values["authorization"] == "…"
    assert "tenuto-conformance" not in kept.read_text("utf-8")


def test_a_failure_is_exit_status_1_with_both_requests_in_the_table() -> None:
    done = cli("conformance", "--once", "--only", "id-turn", "--command", by_hand("TurnPerTry"))
    assert done.returncode == 1, done.stderr
    assert re.search(r"#1 x-agent-turn n: (\d+) · #2 x-agent-turn n: (?!\1\b)\d+", done.stdout)


def test_a_program_that_dies_of_malformed_markers_fails_open_not() -> None:
    done = cli("conformance", "--only", "fail-open", "--command", by_hand("DiesOfABadAnswer"))
    assert done.returncode == 1, done.stdout
    assert "the program fails after an answer with malformed markers" in done.stdout
    assert "--- the agent's output (exit 1)\nwhat was that?" in done.stderr


def test_what_was_not_seen_fails_only_a_strict_run() -> None:
    command = ("conformance", "--once", "--only", "id-derived", "--command", by_hand("Honest"))
    assert cli(*command).returncode == 0
    assert cli(*command, "--strict").returncode == 1


def test_a_program_that_tries_nothing_again_is_run_without_what_it_dies_of(tmp_path: Path) -> None:
    command = script(
        tmp_path / "agent.py",
        "import os, httpx\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
        "for text in ('{name}', 'two'):\n"
        "    body = {'messages': [{'role': 'user', 'content': text}]}\n"
        "    httpx.post(url, json=body, headers={'X-Session-ID': text * 4}).raise_for_status()\n",
    )
    done = cli("conformance", "--once", "--command", command, "--only", "id-shape")
    assert done.returncode == 1
    assert "not tried again: 500; running it without" in done.stderr
    assert "not tried again: 429; running it without" in done.stderr
    assert "exit 0, without 429, 500" in done.stdout


def test_what_the_agent_printed_is_shown_when_it_ends_badly() -> None:
    done = cli("conformance", "--command", f"{sys.executable} -c \"raise SystemExit('no key')\"")
    assert done.returncode == 2
    assert "--- the agent's output (exit 1)\nno key\n---" in done.stderr
    assert "the command called no model" in done.stderr


def test_a_program_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = script(
        tmp_path / "agent.py",
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(60)\n",
    )
    done = cli("conformance", "--timeout", "1.5", "--command", command, timeout_s=30)
    assert done.returncode == 2
    assert "ended at the time limit" in done.stderr

    def is_gone(pid: int) -> bool:
        # Whoever adopts a process in a container may not reap it: a zombie has ended too.
        try:
            return Path(f"/proc/{pid}/stat").read_text("utf-8").split()[2] == "Z"
        except OSError:
            return True

    assert eventually(lambda: all(is_gone(int(pid)) for pid in pids.read_text().split()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["conformance"], "give the agent to run"),
        (["conformance", "--command", "no-such-program"], "cannot be started"),
        (["conformance", "--command", "'"], "cannot be split"),
        (["conformance", "--command", ""], "the command is empty"),
        (["conformance", "--command", "x", "--only", "id-none"], "'id-none' is not known"),
        (["conformance", "--command", "x", "--dialect", "none"], "'none' is not known"),
        (["conformance", "--command", "x", "--without", "none"], "'none' is not known"),
        (["conformance", "--command", "x", "--env", "none"], "--env takes KEY=VALUE"),
        (["conformance", "--no-such-option"], "unrecognized arguments"),
        (["no-such-command"], "no command 'no-such-command'"),
        ([], "usage: tenuto COMMAND"),
    ],
)
def test_a_mistake_is_exit_status_2_with_a_message(arguments: list[str], message: str) -> None:
    done = cli(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_agent_gets_what_env_says_over_what_the_kit_says(tmp_path: Path) -> None:
    out = tmp_path / "env.json"
    command = script(
        tmp_path / "agent.py",
        f"import json, os, sys\njson.dump([sys.argv, dict(os.environ)], open({str(out)!r}, 'w'))\n",
    )
    cli(
        *("conformance", "--command", f"{command} {{name}}", "--name", "mine"),
        *("--env", "OPENAI_API_KEY=a=b", "--env", "MORE=1"),
    )
    argv, env = json.loads(out.read_text("utf-8"))
    assert argv[1] == "mine"
    assert (env["OPENAI_API_KEY"], env["MORE"]) == ("a=b", "1")
    assert env["TENUTO_CONFORMANCE_NAME"] == "mine"
    assert env["OPENAI_BASE_URL"] == f"{env['TENUTO_CONFORMANCE_URL']}/v1"
    assert env["TENUTO_KEY"] == os.environ["TENUTO_KEY"]
    assert env["NO_PROXY"].endswith("127.0.0.1,localhost")


def test_without_the_tools_extra_the_message_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from tenuto.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    done = cli("conformance", "--command", "x", code=code)
    assert done.returncode == 2
    assert "pip install 'tenuto[tools]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert cli("--help", code=code).returncode == 0


def test_help_and_version_load_no_subcommand() -> None:
    code = (
        "import sys\nfrom tenuto.cli import main\nstatus = main(sys.argv[1:])\n"
        "print([name for name in sys.modules if name.startswith(('uvicorn', 'tenuto.conf'))])\n"
        "sys.exit(status)"
    )
    done = cli("--help", code=code)
    assert done.returncode == 0
    assert "conformance" in done.stdout
    assert "trace" in done.stdout
    assert done.stdout.endswith("[]\n")
    assert cli("--version").stdout == f"tenuto {tenuto.__version__}\n"


@pytest.mark.parametrize("name", ["conformance", "trace", "replay", "simulate", "fit", "compare"])
def test_every_command_says_how_it_is_used(name: str) -> None:
    done = cli(name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: tenuto {name}")
    assert f"  {name} " in cli("--help").stdout
