"""The recording proxy changes nothing on its way, and writes down whose calls passed."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
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
from tenuto.recording.proxy import Proxy
from tenuto.recording.recorder import opened
from tenuto.trace import CallEvent, read, read_events
from tests.loopback import Recorder, eventually, read_body, serving

PATH = "/v1/chat/completions"
USER: Any = [{"role": "user", "content": "look at it closely " * 40}]
SAID: Any = [*USER, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "on"}]


@contextlib.contextmanager
def proxied(tmp_path: Path, upstream: str, **rules: Any) -> Generator[tuple[str, TraceRecorder]]:
    given = Rules("r", b"key", **rules)
    with opened(tmp_path / "run.jsonl", given, 1 << 30, 8, Placing(b"key")) as recorder:
        app = Proxy(upstream, recorder)
        with serving(app) as url:
            yield url, recorder


def events_in(recorder: TraceRecorder, count: int = 1) -> list[CallEvent]:
    # A call is recorded when its answer has been given.
    assert eventually(lambda: recorder.flush() and recorder.path.read_bytes().count(b"\n") == count)
    return [event for event in read_events(recorder.path) if isinstance(event, CallEvent)]


class Echo:
    """Answers with what arrived, byte by byte the same each time."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = await read_body(receive)
        said = [scope["method"], scope["raw_path"].decode(), scope["query_string"].decode()]
        names = [(k.decode(), v.decode()) for k, v in scope["headers"] if k != b"connection"]
        payload = json.dumps([said, sorted(names), body.decode("latin-1")]).encode()
        headers = [
            (b"content-type", b"application/x-mine"),
            (b"content-length", b"%d" % len(payload)),
            (b"set-cookie", b"a=1"),
            (b"set-cookie", b"b=2"),
        ]
        await send({"type": "http.response.start", "status": 418, "headers": headers})
        await send({"type": "http.response.body", "body": payload})


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("GET", "/v1/models?a=1&b=%20", b""),
        ("POST", "/v1/chat/completions", b'{"messages": [  ]}'),
        ("POST", "/v1/a%2Fb", b"\xff\x00 no json"),
        ("DELETE", "/v1/responses/r1", b""),
    ],
)
def test_requests_and_answers_pass_untouched(
    tmp_path: Path, method: str, path: str, content: bytes
) -> None:
    headers = [("x-one", "1"), ("x-one", "2"), ("authorization", "Bearer k"), ("x-empty", "")]
    with serving(Echo()) as upstream, proxied(tmp_path, upstream) as (url, _):
        direct, through = (
            httpx.request(method, root + path, headers=headers, content=content)
            for root in (upstream, url)
        )
    assert through.status_code == direct.status_code == 418
    assert through.content == direct.content
    hidden = {"date", "server"}
    given = [pair for pair in direct.headers.multi_items() if pair[0] not in hidden]
    assert [pair for pair in through.headers.multi_items() if pair[0] not in hidden] == given


class Slow:
    """Streams an event, and the rest when it is let; notes when its caller has gone."""

    def __init__(self) -> None:
        self.go, self.left = threading.Event(), threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await read_body(receive)
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        first = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
        await send({"type": "http.response.body", "body": first, "more_body": True})
        if not self.go.is_set():
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


def test_a_stream_passes_as_it_comes_and_a_caller_that_leaves_ends_it_upstream(
    tmp_path: Path,
) -> None:
    app = Slow()
    with serving(app) as upstream, proxied(tmp_path, upstream) as (url, recorder):
        with httpx.stream("POST", url + PATH, json={"messages": USER}) as response:
            # The upstream has not ended: what is here has come through by itself.
            # Held: an iterator that is collected closes its connection.
            pieces = response.iter_raw()
            assert b'"a"' in next(pieces)
            assert not app.left.is_set()
        assert app.left.wait(10)
        (event,) = events_in(recorder)
    assert (event.error, event.end_s, event.finish_reason) == ("CancelledError", None, None)
    assert event.first_token_s is not None


def test_a_whole_stream_is_recorded_with_its_times(tmp_path: Path) -> None:
    app = Slow()
    app.go.set()
    with serving(app) as upstream, proxied(tmp_path, upstream) as (url, recorder):
        httpx.post(url + PATH, json={"messages": USER, "model": "m"})
        (event,) = events_in(recorder)
    assert (event.error, event.model_name) == (None, "m")
    assert event.first_token_s is not None
    assert event.end_s is not None
    assert event.start_s < event.first_token_s <= event.end_s


def test_an_upstream_that_is_down_is_told_and_recorded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        upstream = f"http://127.0.0.1:{free.getsockname()[1]}"
    with proxied(tmp_path, upstream) as (url, recorder):
        answer = httpx.post(url + PATH, json={"messages": USER})
        (event,) = events_in(recorder)
    assert answer.status_code == 502
    assert f"the upstream {upstream} did not answer" in answer.json()["error"]["message"]
    assert (event.error, event.end_s) == ("ConnectError", None)


def test_a_marked_program_is_recorded_in_its_own_sessions_and_turns(tmp_path: Path) -> None:
    app = Recorder(script=[500], answer_headers={"retry-after-ms": "1"})
    with serving(app) as upstream, proxied(tmp_path, upstream) as (url, recorder):
        with (
            tenuto.wrap(openai.OpenAI(base_url=f"{url}/v1", api_key="k"), dialect="vllm") as client,
            tenuto.run() as run,
        ):
            client.chat.completions.create(model="m", messages=USER)
            with run.agent("a") as agent:
                client.chat.completions.create(model="m", messages=SAID)
        events = events_in(recorder, 3)
    assert {event.run_id for event in events} == {run.run_id}
    assert [(e.session_id, e.turn, e.attempt, e.error) for e in events] == [
        (run.session_id, 0, 0, "500"),
        (run.session_id, 0, 1, None),
        (agent.session_id, 0, 0, None),
    ]
    assert events[2].parent_session_id == run.session_id
    (trace,) = read(recorder.path)
    assert [session.parent for session in trace.sessions] == [None, run.session_id]


def test_an_unmarked_program_is_recorded_in_sessions_of_prompts_that_go_on(
    tmp_path: Path,
) -> None:
    other: Any = [{"role": "user", "content": "something else"}]
    with serving(Recorder()) as upstream, proxied(tmp_path, upstream) as (url, recorder):
        for messages in (USER, other, SAID, SAID, [*SAID, *USER]):
            httpx.post(url + "/v1/messages", json={"system": "short", "messages": messages})
        last = {"system": "short", "messages": [*SAID, *USER]}
        httpx.post(url + "/v1/messages", json=last, headers={"x-api-key": "k2"})
        events = events_in(recorder, 6)
    first, second, third = dict.fromkeys(event.session_id for event in events)
    assert [(event.session_id, event.turn, event.attempt) for event in events] == [
        (first, 0, 0),
        (second, 0, 0),
        (first, 1, 0),
        (first, 2, 0),
        (first, 3, 0),
        (third, 0, 0),
    ]
    assert len({event.run_id for event in events}) == 3


def test_an_equal_prompt_after_a_failure_is_the_turn_tried_again(tmp_path: Path) -> None:
    with (
        serving(Recorder(script=[500])) as upstream,
        proxied(tmp_path, upstream) as (url, recorder),
    ):
        for _ in range(2):
            httpx.post(url + PATH, json={"messages": USER})
        events = events_in(recorder, 2)
    assert [(event.turn, event.attempt, event.error) for event in events] == [
        (0, 0, "500"),
        (0, 1, None),
    ]


def test_an_unmarked_program_behind_a_proxy_that_is_started_again_begins_a_session(
    tmp_path: Path,
) -> None:
    for count in (1, 2):
        with serving(Recorder()) as upstream, proxied(tmp_path, upstream) as (url, recorder):
            httpx.post(url + PATH, json={"messages": USER})
            events = events_in(recorder, count)
    assert len({event.session_id for event in events}) == 2
    assert [trace.requests for trace in read(tmp_path / "run.jsonl")] == [1, 1]


def test_only_so_many_sessions_are_remembered(tmp_path: Path) -> None:
    placing = Placing(b"key", limit=2)
    given = Rules("r", b"key")
    with (
        serving(Recorder()) as upstream,
        opened(tmp_path / "run.jsonl", given, 1 << 30, 8, placing) as recorder,
        serving(Proxy(upstream, recorder)) as url,
    ):
        starts = [[{"role": "user", "content": str(n)}] for n in range(3)]
        for messages in (*starts, [*starts[2], *SAID], [*starts[0], *SAID]):
            httpx.post(url + PATH, json={"messages": messages})
        events = events_in(recorder, 5)
    assert [event.turn for event in events] == [0, 0, 0, 1, 0]


def test_no_credential_and_no_text_is_in_the_file(tmp_path: Path) -> None:
    secrets = ("Bearer-secret", "key-secret", "cookie-secret", "query-secret", "closely")
    with serving(Recorder()) as upstream:
        target = upstream.replace("http://", "http://user:pass-secret@")
        with proxied(tmp_path, target) as (url, recorder):
            headers = {
                "authorization": secrets[0],
                "x-api-key": secrets[1],
                "cookie": secrets[2],
                "x-session-id": "my-session",
            }
            httpx.post(f"{url}{PATH}?key={secrets[3]}", headers=headers, json={"messages": USER})
            (event,) = events_in(recorder)
    assert event.session_id == "my-session"
    written = recorder.path.read_text("utf-8")
    for secret in (*secrets, "pass-secret"):
        assert secret not in written
