"""What is odd on the wire passes the recording proxy, or is refused in words."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import tenuto
from tenuto.recording import Recorder as TraceRecorder
from tenuto.recording.events import Rules
from tenuto.recording.placing import Placing
from tenuto.recording.proxy import Proxy, upstream_of
from tenuto.recording.recorder import opened
from tenuto.trace import CallEvent, read, read_events
from tests.loopback import Recorder, eventually, read_body, serving

PATH = "/v1/chat/completions"
USER: Any = [{"role": "user", "content": "look at it closely " * 40}]


@contextlib.contextmanager
def proxied(tmp_path: Path, upstream: str) -> Generator[tuple[str, TraceRecorder]]:
    rules = Rules("r", b"key")
    with opened(tmp_path / "run.jsonl", rules, 1 << 30, 8, Placing(b"key")) as recorder:
        with serving(Proxy(upstream, recorder)) as url:
            yield url, recorder


def events_in(recorder: TraceRecorder, count: int = 1) -> list[CallEvent]:
    assert eventually(lambda: recorder.flush() and recorder.path.read_bytes().count(b"\n") == count)
    return [event for event in read_events(recorder.path) if isinstance(event, CallEvent)]


def sent(url: str, target: str, method: str = "POST") -> bytes:
    """Return the answer to a request whose target is as given, byte for byte."""
    address = httpx.URL(url)
    body = json.dumps({"messages": USER}).encode()
    head = f"{method} {target} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n"
    with socket.create_connection((address.host, address.port or 0), 10) as connection:
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


class Compressing:
    """Answers in the first encoding that it is asked for."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await read_body(receive)
        asked = dict(scope["headers"]).get(b"accept-encoding", b"").split(b",")[0]
        choice = {"index": 0, "message": {"content": "ok"}, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 9}}).encode()
        headers = [(b"content-type", b"application/json"), (b"x-asked", asked)]
        if asked == b"gzip":
            body = gzip.compress(body)
        if asked not in {b"", b"identity"}:
            headers.append((b"content-encoding", asked))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize(
    ("asked", "passed"),
    [
        ("br, gzip;q=0.9, zstd", "gzip;q=0.9"),
        ("zstd,gzip", "gzip"),
        ("br", "identity"),
        ("", "identity"),
    ],
)
def test_an_answer_comes_in_an_encoding_that_can_be_recorded(
    tmp_path: Path, asked: str, passed: str
) -> None:
    with serving(Compressing()) as upstream, proxied(tmp_path, upstream) as (url, recorder):
        headers = {"accept-encoding": asked}
        with httpx.stream("POST", url + PATH, json={"messages": USER}, headers=headers) as answer:
            b"".join(answer.iter_raw())
        assert answer.headers["x-asked"] == passed
        if ";" not in passed:
            (event,) = events_in(recorder)
            assert (event.error, event.input_tokens) == (None, 9)


def test_encodings_of_what_is_not_recorded_pass_as_they_are(tmp_path: Path) -> None:
    with serving(Compressing()) as upstream, proxied(tmp_path, upstream) as (url, _):
        headers = {"accept-encoding": "br"}
        with httpx.stream("GET", url + "/v1/models", headers=headers) as answer:
            assert answer.headers["x-asked"] == "br"


def test_a_compressed_request_is_read(tmp_path: Path) -> None:
    body = gzip.compress(json.dumps({"model": "m", "messages": USER}).encode())
    with serving(Compressing()) as upstream, proxied(tmp_path, upstream) as (url, recorder):
        httpx.post(url + PATH, content=body, headers={"content-encoding": "gzip"})
        (event,) = events_in(recorder)
    assert event.model_name == "m"
    assert (event.input_bytes or 0) > 700


def test_credentials_of_the_upstream_stand_in_where_the_caller_has_none(tmp_path: Path) -> None:
    app = Recorder()
    with serving(app) as upstream:
        target = upstream.replace("http://", "http://user:pass-secret@")
        with proxied(tmp_path, target) as (url, _):
            httpx.post(url + PATH, json={"messages": USER}, headers={"authorization": "Bearer k"})
            httpx.post(url + PATH, json={"messages": USER})
    said = [one.headers["authorization"] for one in app.arrived]
    assert said == ["Bearer k", httpx.BasicAuth("user", "pass-secret")._auth_header]


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("OPTIONS", "*", b" 400 "),
        ("POST", "v1", b" 400 "),
        ("POST", f"http://other{PATH}", b" 200 "),
    ],
)
def test_a_target_that_is_no_path_passes_as_its_path_or_is_refused(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    method: str,
    target: str,
    status: bytes,
) -> None:
    with serving(Recorder()) as upstream, proxied(tmp_path, f"{upstream}/base") as (url, _):
        assert status in sent(url, target, method).partition(b"\r\n")[0]
    assert [one for one in caplog.records if one.exc_info] == []


class Broken:
    """Says that more is to come, and breaks off."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await read_body(receive)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"99")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


def test_an_answer_that_breaks_off_is_broken_off_and_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(Broken()) as upstream, proxied(tmp_path, upstream) as (url, recorder):
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(url + PATH, json={"messages": USER})
        (event,) = events_in(recorder)
    assert (event.error, event.end_s) == ("RemoteProtocolError", None)
    told = [one for one in caplog.records if one.name.startswith("tenuto")]
    assert [(one.levelno, one.exc_info) for one in told] == [(logging.WARNING, None)]
    assert "broke off" in told[0].getMessage()


def test_our_own_program_is_recorded_alike_beside_it_and_in_it(tmp_path: Path) -> None:
    with (
        serving(Recorder()) as upstream,
        proxied(tmp_path, upstream) as (url, recorder),
        tenuto.record(tmp_path / "inside.jsonl") as inside,
        tenuto.wrap(openai.OpenAI(base_url=f"{url}/v1", api_key="k"), dialect="vllm") as client,
        tenuto.run() as run,
    ):
        with run.agent("boss"):
            client.chat.completions.create(model="m", messages=USER)
            with run.agent("worker", fork="inherit"):
                client.chat.completions.create(model="m", messages=USER)
            client.chat.completions.create(model="m", messages=[*USER, *USER])
        inside.flush()
        events_in(recorder, 3)
        seen, known = (next(read(one.path)) for one in (recorder, inside))
    # Reading either tells no problem, else it had raised.
    for ours, theirs in zip(seen.sessions, known.sessions, strict=True):
        assert (ours.label, ours.parent, ours.fork) == (theirs.label, theirs.parent, theirs.fork)
        assert ours.spawned_after == theirs.spawned_after
        phases = [[turn.phase for turn in session.turns] for session in (ours, theirs)]
        assert phases[0] == phases[1]
        assert all(phases[0])


@pytest.mark.parametrize(
    "url",
    ["localhost:1", "ftp://h", "http://h:99999", "http://h:x", "http://[::1", "http://h/?k=1"],
)
def test_an_upstream_that_is_no_server_is_told_without_its_credentials(url: str) -> None:
    given = url.replace("://", "://user:pass-secret@")
    with pytest.raises(tenuto.ConfigError) as told:
        upstream_of(given)
    assert "secret" not in str(told.value)
