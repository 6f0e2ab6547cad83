"""The recording proxy as a command: how it starts, how it ends, and what it says."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenuto.cli.proxy import main
from tenuto.trace import read_events
from tests.loopback import Recorder, read_body, serving

PATH = "/v1/chat/completions"
USER: Any = [{"role": "user", "content": "look at it closely " * 40}]


@contextlib.contextmanager
def running(upstream: str, out: Path, *given: str) -> Generator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "tenuto.cli", "trace", "proxy", "--upstream", upstream]
    command += ["--out", str(out), "--port", "0", *given]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        try:
            assert program.stdout is not None
            said = program.stdout.readline()
            told = re.fullmatch(r"recording to .*: calls to (http://\S+) go on to (\S+)\n", said)
            assert told, said
            yield told[1], program
        finally:
            program.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_answered_is_in_the_file_when_it_is_ended(tmp_path: Path, number: int) -> None:
    out = tmp_path / "run.jsonl"
    # Prompts that take longer to write down than to pass on.
    messages = [{"role": "user", "content": str(n)} for n in range(5000)]
    content = json.dumps({"messages": messages}).encode()
    with serving(Recorder()) as upstream, running(upstream, out) as (url, program):
        # What is told is so already: there is no waiting for the port.
        with httpx.Client() as client:
            for _ in range(10):
                assert client.post(url + PATH, content=content, timeout=30).status_code == 200
        program.send_signal(number)
        assert program.communicate(timeout=60)[1] == ""
    assert program.returncode == 0
    assert len(list(read_events(out))) == 10


class Endless:
    """Streams a piece and never ends."""

    def __init__(self) -> None:
        self.left = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await read_body(receive)
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
        await receive()
        self.left.set()


def test_an_open_stream_delays_the_end_by_seconds_and_is_recorded(tmp_path: Path) -> None:
    out, app = tmp_path / "run.jsonl", Endless()
    with (
        serving(app) as upstream,
        running(upstream, out) as (url, program),
        httpx.stream("POST", url + PATH, json={"messages": USER}, timeout=30) as answer,
    ):
        # Held, as one that is let go closes the connection.
        pieces = answer.iter_raw()
        next(pieces)
        began = time.monotonic()
        program.send_signal(signal.SIGINT)
        _, told = program.communicate(timeout=60)
        assert time.monotonic() - began < 20
        assert app.left.wait(10)
    assert told.splitlines() == ["ERROR:    answers that were still open are broken off"]
    assert program.returncode == 0
    (event,) = read_events(out)
    assert event.kind == "call"
    assert event.error == "CancelledError"


def test_credentials_in_the_upstream_are_not_printed(tmp_path: Path) -> None:
    with serving(Recorder()) as upstream:
        target = upstream.replace("http://", "http://user:pass-secret@")
        with running(target, tmp_path / "run.jsonl") as (url, program):
            httpx.post(url + PATH, json={"messages": USER})
            program.send_signal(signal.SIGTERM)
            said = program.communicate(timeout=60)
    assert "secret" not in "".join(said)
    assert "secret" not in (tmp_path / "run.jsonl").read_text("utf-8")


@pytest.mark.parametrize(
    "argv",
    [
        ["--upstream", "localhost:1"],
        ["--upstream", "http://h:99999"],
        ["--upstream", "http://[::1"],
        ["--upstream", "http://h", "--port", "99999"],
        ["--upstream", "http://h", "--host", "no such host"],
        ["--upstream", "http://h", "--port", "0", "--out", "/no/such/f"],
    ],
)
def test_a_command_that_cannot_work_says_so_in_one_line(
    argv: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    said = capsys.readouterr()
    assert re.fullmatch(r"tenuto trace proxy: .*\n", said.err)
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_told_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = ["--upstream", "http://h", "--port", port, "--out", str(tmp_path / "run.jsonl")]
        assert main(given) == 2
    said = capsys.readouterr()
    assert f"port {port}: Address already in use" in said.err
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []
