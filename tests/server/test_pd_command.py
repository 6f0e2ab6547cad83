"""`tenuto-vllm pd`: what it is told, how it starts, what it says and how it ends."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tenuto_vllm import cli
from tenuto_vllm.config import ConfigError
from tenuto_vllm.pd.command import _options, add
from tenuto_vllm.pd.measured import read_costs
from tenuto_vllm.placement.split import Costs
from tests.loopback import DEFAULT_SIGNALS, eventually, serving
from tests.server.pd_fakes import CACHE, FakeServer

DECODE = "--decode http://a"
FITS = [[100, 0, 0.024], [100, 50_000, 0.03], [10_000, 0, 0.48]]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("", "name one with --decode URL"),
        ("--decode a:8000", "write http://HOST:PORT"),
        ("--decode http://", "write http://HOST:PORT"),
        ("--decode http://a:b", "write http://HOST:PORT"),
        ("--decode http://a:8000/v1", "leave out /v1"),
        ("--decode ftp://a", "no server"),
        ("--decode http://u:p@a", "credentials"),
        (f"{DECODE} --prefill http://a/", "twice"),
        (f"{DECODE} --lease 0", "the lease is 0.0 s; it is above 0"),
        (f"{DECODE} --lease nan", "the lease is nan s"),
        (f"{DECODE} --slo-ttft -1", "first token is -1.0 s"),
        (f"{DECODE} --slo-itl 0", "between tokens is 0.0 s"),
        (f"{DECODE} --stage-most 1", "not below the least"),
        (f"{DECODE} --block-size 0", "--block-size"),
        (f"{DECODE} --port 99999", "--port"),
        (f"{DECODE} --host 192.0.2.1 --port 0", "cannot listen on 192.0.2.1:0"),
        (f"{DECODE} --costs /nowhere.json", "cannot be read: FileNotFoundError"),
    ],
)
def test_a_mistake_ends_the_command_with_a_sentence(line, word, capsys):
    assert cli.main(["pd", *line.split()]) == 2
    said = capsys.readouterr().err
    assert word in said
    assert "u:p" not in said


@pytest.mark.parametrize(
    ("told", "word"),
    [
        ([], "no JSON object"),
        ({"speed": 1}, "is none of"),
        ({"is_bidirectional": True}, "is none of"),
        ({"hop_s": -1}, "hop_s .* too small"),
        ({"hop_s": "1"}, "hop_s .* no number"),
        ({"hop_s": True}, "hop_s .* no number"),
        ({"transfer_bytes_per_s": 0}, "transfer_bytes_per_s .* too small"),
        ({"chunk_tokens": 1.5}, "chunk_tokens .* whole"),
        ({"points": 1}, "points in"),
        ({"points": [[1, 2]]}, "points in"),
        ({"points": [[1, 2, "3"]]}, "points in"),
        ({"points": FITS[:2]}, "three points"),
        ({"points": FITS, "prefill_s": 1}, "both points and prefill_s"),
    ],
)
def test_what_is_no_cost_is_said_to_be_none(told, word, tmp_path):
    file = tmp_path / "costs.json"
    file.write_text(json.dumps(told))
    with pytest.raises(ConfigError, match=word):
        read_costs(file, is_bidirectional=False)


def test_costs_are_told_as_they_are_or_as_they_were_measured(tmp_path):
    file = tmp_path / "costs.json"
    true = Costs(hop_s=0.5)
    points = [(new, cached, true.prefill(new, cached)) for new, cached, _ in FITS]
    file.write_text(json.dumps({"points": points, "hop_s": 0.5}))
    found = read_costs(file, is_bidirectional=True)
    assert found[:3] == pytest.approx(true[:3])
    assert (found.hop_s, found.is_bidirectional) == (0.5, True)
    assert read_costs(None, is_bidirectional=False) == Costs()


def test_a_key_that_no_header_holds_is_refused_before_it_is_used(monkeypatch, capsys):
    monkeypatch.setenv("TENUTO_PD_KEY", "schl\u00fcssel-0001")
    assert cli.main(["pd", *DECODE.split()]) == 2
    said = capsys.readouterr().err
    assert "printable ASCII" in said
    assert "0001" not in said


def test_a_key_is_read_without_what_is_around_it(monkeypatch):
    monkeypatch.setenv("TENUTO_PD_KEY", " key-0001\n")
    parser = argparse.ArgumentParser()
    add(parser.add_subparsers())
    assert _options(parser.parse_args(["pd", *DECODE.split()])).key == "key-0001"


@contextmanager
def command(*given: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    line = [*DEFAULT_SIGNALS, sys.executable, "-m", "tenuto_vllm.cli", "pd", "--port", "0", *given]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("listening on http://127.0.0.1:"), process.stderr.read()
            yield said.split()[-1], process
        finally:
            process.kill()


def is_ready(url):
    with httpx.Client(trust_env=False) as client:
        told = client.get(url + "/health").json()
    return told["ready"] and not any(one["state"] != "ready" for one in told["servers"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_is_being_answered_is_answered_to_the_end(number):
    prefill, decode = FakeServer("prefill"), FakeServer("decode")
    decode.pause = threading.Event()
    body = {"model": "tiny", "prompt": [1] * 40, "stream": True}
    with (
        serving(prefill) as source,
        serving(decode) as target,
        command("--prefill", source, "--decode", target) as (url, process),
        httpx.Client(trust_env=False, timeout=20) as client,
    ):
        assert eventually(lambda: is_ready(url), 20)
        with client.stream("POST", url + "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            process.send_signal(number)
            assert eventually(lambda: is_closed(url), 10)
            decode.pause.set()
            assert [line for line in lines if line][-1] == "data: [DONE]"
        said = process.communicate(timeout=20)[1]
    assert process.returncode == 0
    assert "Traceback" not in said


def is_closed(url):
    try:
        httpx.get(url + "/health", trust_env=False)
    except httpx.ConnectError:
        return True
    return False


def test_it_says_who_is_ready_who_is_missing_and_what_differs():
    prefill = FakeServer("prefill", metrics=CACHE.replace("32", "16"))
    with (
        serving(prefill) as source,
        serving(FakeServer("decode")) as target,
        command("--prefill", source, "--decode", target, "http://127.0.0.1:9") as (url, process),
    ):
        with httpx.Client(trust_env=False) as client:

            def problem():
                return client.get(url + "/health").json()["servers"][0].get("problem", "")

            assert eventually(lambda: problem().startswith("differs"), 20)
        process.send_signal(signal.SIGTERM)
        lines = [json.loads(line) for line in process.communicate(timeout=20)[1].splitlines()]
    events = {(line["event"], line.get("url")): line for line in lines}
    assert events["server_ready", source]["role"] == "prefill"
    assert events["server_ready", target]["role"] == "decode"
    assert events["server_missing", "http://127.0.0.1:9"]["kind"] == "ConnectionRefusedError"
    refused = events["no_hand_off", source]
    assert (refused["to"], refused["why"]) == (target, "differs in block_size")
