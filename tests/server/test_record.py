"""A recorded program's calls are lines of its trace file, and nothing else changes."""

from __future__ import annotations

import contextlib
import gc
import gzip
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import tenuto
from tenuto import tries
from tenuto.recording import Recorder as TraceRecorder
from tenuto.trace import CallEvent, read, read_events, uncounted_note
from tests.loopback import Recorder, eventually, read_body, serving

USER: Any = [{"role": "user", "content": "look at it closely " * 40}]
CALLED: Any = [
    *USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
]
PIECES = (
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"index": 0, "delta": {"content": "hel"}}]},
    {"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"}]},
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 190,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 128},
        },
    },
)


class Streaming:
    """Streams `PIECES`, the first `count` of them, and breaks off where that is not all."""

    def __init__(
        self, count: int = len(PIECES), *, zipped: bool = False, usage: bool = True
    ) -> None:
        self.count, self.zipped = count, zipped
        self.pieces = PIECES if usage else PIECES[:-1]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await read_body(receive)
        lines = [f"data: {json.dumps(piece)}\n\n".encode() for piece in self.pieces[: self.count]]
        is_whole = self.count == len(PIECES)
        body = b"".join([*lines, b"data: [DONE]\n\n"] if is_whole else lines)
        headers = [(b"content-type", b"text/event-stream")]
        if self.zipped:
            headers.append((b"content-encoding", b"gzip"))
            body = gzip.compress(body)
        if not is_whole:
            headers.append((b"content-length", b"%d" % (len(body) + 10)))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for at in range(0, len(body), 50):
            await send(
                {"type": "http.response.body", "body": body[at : at + 50], "more_body": True}
            )
        if is_whole:
            await send({"type": "http.response.body", "body": b""})


@contextlib.contextmanager
def recording(tmp_path: Path, app: Any, **given: Any) -> Iterator[tuple[str, TraceRecorder]]:
    with serving(app) as url, tenuto.record(tmp_path / "run.jsonl", **given) as recorder:
        yield f"{url}/v1", recorder


def client_of(url: str, **given: Any) -> openai.OpenAI:
    return tenuto.wrap(openai.OpenAI(base_url=url, api_key="secret-key", **given))


def events_in(path: Path) -> list[CallEvent]:
    return [event for event in read_events(path) if isinstance(event, CallEvent)]


def test_a_call_is_recorded_with_its_session_its_size_its_times_and_its_end(tmp_path: Path) -> None:
    with recording(tmp_path, Recorder()) as (url, recorder), client_of(url) as client:
        with tenuto.run() as run, run.agent("planner", fork="inherit") as agent:
            client.chat.completions.create(model="m", messages=USER)
        assert recorder.flush()
        (event,) = events_in(recorder.path)
    assert (event.run_id, event.session_id) == (run.run_id, agent.session_id)
    assert event.parent_session_id == run.session_id
    assert (event.agent_name, event.turn, event.attempt) == ("planner", 0, 0)
    assert (event.phase, event.model_name, event.finish_reason) == ("start", "m", "stop")
    assert event.fork is not None
    assert (event.fork.session_id, event.fork.turn, event.fork.inherits) == (
        run.session_id,
        None,
        True,
    )
    assert event.block_bytes == 256
    assert event.input_bytes is not None
    assert sum(count for _, count in event.blocks) == event.input_bytes // 256 > 0
    assert event.end_s is not None
    assert 0 < event.end_s - event.start_s < 30
    assert event.error is None
    assert event.served is not None
    assert event.served.server == url.removeprefix("http://").removesuffix("/v1")


def test_no_text_and_no_credential_is_in_the_file(tmp_path: Path) -> None:
    with recording(tmp_path, Recorder()) as (url, recorder), client_of(url) as client:
        client.chat.completions.create(model="m", messages=USER)
        client.chat.completions.create(model="m", messages=USER, stream=True).close()
    written = recorder.path.read_text("utf-8")
    assert written.count("\n") == 2
    for secret in ("closely", "secret-key", '"word', "messages"):
        assert secret not in written


def test_text_that_is_asked_for_is_redacted_and_left_out_where_that_fails(tmp_path: Path) -> None:
    def redact(text: str) -> str:
        if "boom" in text:
            raise ValueError(text)
        return text.replace("closely", "###")

    with (
        recording(tmp_path, Recorder(), text=True, redact=redact) as (url, recorder),
        client_of(url) as client,
    ):
        client.chat.completions.create(model="m", messages=USER)
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "boom"}])
    said, unsaid = events_in(recorder.path)
    assert said.messages == [{"role": "user", "content": "look at it ### " * 40}]
    assert said.answer == '{"word":"hi"}'
    assert (unsaid.messages, unsaid.answer) == (None, None)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_stream_is_recorded_with_its_first_token_and_its_usage(
    tmp_path: Path, zipped: bool
) -> None:
    with (
        recording(tmp_path, Streaming(zipped=zipped), text=True) as (url, recorder),
        client_of(url) as client,
    ):
        chunks = list(client.chat.completions.create(model="m", messages=USER, stream=True))
    (event,) = events_in(recorder.path)
    assert len(chunks) == len(PIECES)
    assert (event.input_tokens, event.output_tokens, event.cached_tokens) == (190, 2, 128)
    assert (event.answer, event.finish_reason, event.error) == ("hello", "stop", None)
    assert event.first_token_s is not None
    assert event.end_s is not None
    assert event.start_s < event.first_token_s <= event.end_s


@pytest.mark.anyio
async def test_async_calls_are_recorded_whole_and_streamed(tmp_path: Path) -> None:
    with recording(tmp_path, Streaming()) as (url, recorder):
        async with tenuto.wrap(openai.AsyncOpenAI(base_url=url, api_key="k")) as client:
            for _ in range(3):
                stream = await client.chat.completions.create(model="m", messages=USER, stream=True)
                async for _ in stream:
                    pass
    events = events_in(recorder.path)
    assert [(event.finish_reason, event.error) for event in events] == [("stop", None)] * 3
    assert all(event.end_s is not None for event in events)


def test_a_stream_that_breaks_off_has_an_error_and_no_end(tmp_path: Path) -> None:
    with recording(tmp_path, Streaming(2)) as (url, recorder), client_of(url) as client:
        stream = client.chat.completions.create(model="m", messages=USER, stream=True)
        with pytest.raises(Exception, match=r"Connection error|incomplete|closed"):
            list(stream)
        stream.close()
    (event,) = events_in(recorder.path)
    assert event.error is not None
    assert event.error.endswith("Error")
    assert (event.end_s, event.finish_reason) == (None, None)


def test_a_stream_that_its_reader_drops_is_recorded_as_incomplete(tmp_path: Path) -> None:
    with recording(tmp_path, Streaming(2)) as (url, recorder), client_of(url) as client:
        stream = client.chat.completions.create(model="m", messages=USER, stream=True)
        next(iter(stream))
        del stream
        gc.collect()
        assert eventually(lambda: recorder.flush() and recorder.path.stat().st_size > 0)
    (event,) = events_in(recorder.path)
    assert (event.error, event.end_s) == ("Incomplete", None)


def test_responses_and_raw_answers_are_recorded(tmp_path: Path) -> None:
    with recording(tmp_path, Recorder(), text=True) as (url, recorder), client_of(url) as client:
        client.responses.create(model="m", input="hi", instructions="be short")
        list(client.responses.create(model="m", input="hi", stream=True))
        client.chat.completions.with_raw_response.create(model="m", messages=USER)
        with client.chat.completions.with_streaming_response.create(
            model="m", messages=USER
        ) as raw:
            raw.read()
    events = events_in(recorder.path)
    assert [event.answer for event in events] == ['{"word":"hi"}'] * 4
    assert [event.finish_reason for event in events] == ["completed"] * 2 + ["stop"] * 2
    assert [event.error for event in events] == [None] * 4
    assert events[0].messages == [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "hi"},
    ]


def test_every_try_is_a_line_and_reading_back_keeps_the_one_that_was_answered(
    tmp_path: Path,
) -> None:
    app = Recorder(script=[500, 429], answer_headers={"retry-after-ms": "100"})
    with recording(tmp_path, app) as (url, recorder), client_of(url) as client, tenuto.run():
        client.chat.completions.create(model="m", messages=USER)
    events = events_in(recorder.path)
    assert [(one.turn, one.attempt, one.error) for one in events] == [
        (0, 0, "500"),
        (0, 1, "429"),
        (0, 2, None),
    ]
    # The wait before a retry is no part of the try before it.
    for before, after in itertools.pairwise(events):
        assert before.end_s is not None
        assert after.start_s - before.end_s > 0.05
    (trace,) = read(recorder.path)
    ((turn,),) = [session.turns for session in trace.sessions]
    assert (turn.attempt, turn.finish_reason) == (2, "stop")


def test_a_call_that_fails_and_one_that_nobody_answers_are_recorded(tmp_path: Path) -> None:
    app = Recorder(script=[400])
    with recording(tmp_path, app) as (url, recorder):
        with client_of(url) as client, pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="m", messages=USER)
        with (
            client_of("http://127.0.0.1:9/v1", max_retries=0) as client,
            pytest.raises(openai.APIConnectionError),
        ):
            client.chat.completions.create(model="m", messages=USER)
    refused, unanswered = events_in(recorder.path)
    assert refused.error == "400"
    assert refused.end_s is not None
    assert (unanswered.error, unanswered.end_s) == ("APIConnectionError", None)


def test_a_tool_is_a_span_between_two_calls_of_its_session(tmp_path: Path) -> None:
    with (
        recording(tmp_path, Recorder()) as (url, recorder),
        client_of(url) as client,
        tenuto.run(),
    ):
        client.chat.completions.create(model="m", messages=USER)
        client.chat.completions.create(model="m", messages=CALLED)
        later: Any = [*CALLED, {"role": "assistant", "content": "ok"}, *USER]
        client.chat.completions.create(model="m", messages=later)
    first, second, third = events_in(recorder.path)
    assert first.tools == third.tools == ()
    (span,) = second.tools
    assert (span.name, span.tool_class, span.tool_call_id) == ("grep", "function", "c1")
    assert (span.start_s, span.end_s, span.output_bytes) == (first.end_s, second.start_s, 5)
    assert second.blocks[0] == first.blocks[0]


def test_a_run_that_is_entered_again_has_all_its_calls_in_one_session(tmp_path: Path) -> None:
    with recording(tmp_path, Recorder()) as (url, recorder), client_of(url) as client:
        for _ in range(2):
            with tenuto.run("ticket-4711") as run, run.agent("planner"):
                client.chat.completions.create(model="m", messages=USER)
                client.chat.completions.create(model="m", messages=CALLED)
    (trace,) = read(recorder.path)
    assert [len(session.turns) for session in trace.sessions] == [4]


def test_a_stream_without_usage_is_recorded_with_the_size_of_its_answer(tmp_path: Path) -> None:
    with recording(tmp_path, Streaming(usage=False)) as (url, recorder), client_of(url) as client:
        list(client.chat.completions.create(model="m", messages=USER, stream=True))
    (event,) = events_in(recorder.path)
    assert (event.input_tokens, event.output_tokens, event.output_bytes) == (None, None, 5)
    (trace,) = read(recorder.path)
    assert uncounted_note([trace]) is not None


def test_calls_outside_of_every_run_are_in_no_session(tmp_path: Path) -> None:
    with recording(tmp_path, Recorder()) as (url, recorder), client_of(url) as client:
        client.chat.completions.create(model="m", messages=USER)
        client.chat.completions.create(model="m", messages=CALLED)
        client.embeddings.create(model="m", input="no model call")
    events = events_in(recorder.path)
    assert [event.session_id for event in events] == [None, None]
    assert len({event.run_id for event in events}) == 1
    (trace,) = read(recorder.path)
    assert [len(session.turns) for session in trace.sessions] == [1, 1]


def test_two_recorders_see_the_same_calls_and_a_closed_one_sees_none(tmp_path: Path) -> None:
    with recording(tmp_path, Recorder()) as (url, one), client_of(url) as client:
        with tenuto.record(tmp_path / "other.jsonl") as other, tenuto.run():
            client.chat.completions.create(model="m", messages=USER)
        client.chat.completions.create(model="m", messages=USER)
        other.close()
    assert len(events_in(one.path)) == 2
    assert events_in(other.path) == events_in(one.path)[:1]
    assert tries.sinks == ()


def test_calls_of_many_threads_are_each_a_line(tmp_path: Path) -> None:
    def call(name: str) -> None:
        with tenuto.run(name):
            for n in range(5):
                messages: Any = [{"role": "user", "content": str(n)}]
                client.chat.completions.create(model="m", messages=messages)

    with recording(tmp_path, Recorder()) as (url, recorder), client_of(url) as client:
        threads = [threading.Thread(target=call, args=(f"t{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    traces = list(read(recorder.path))
    assert len(traces) == 8
    assert all(len(trace.sessions[0].turns) == 5 for trace in traces)


def test_a_full_file_is_put_aside_and_the_oldest_are_deleted(tmp_path: Path) -> None:
    with (
        recording(tmp_path, Recorder(), max_bytes=1, files=2) as (url, _),
        client_of(url) as client,
        tenuto.run(),
    ):
        for n in range(4):
            messages: Any = [{"role": "user", "content": str(n)}]
            client.chat.completions.create(model="m", messages=messages)
    names = ["run.full-000003.jsonl", "run.full-000004.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert [event.turn for event in events_in(tmp_path / names[1])] == [3]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"path": "no/such/folder/run.jsonl"}, "cannot be written"),
        ({"path": "run.jsonl", "redact": str.upper}, "text=True"),
        ({"path": "run.jsonl", "files": 0}, "files"),
    ],
)
def test_a_recorder_that_cannot_work_says_so_at_once(
    tmp_path: Path, given: dict[str, Any], match: str
) -> None:
    with pytest.raises(tenuto.ConfigError, match=match):
        tenuto.record(**{**given, "path": tmp_path / given["path"]})


def test_calls_go_on_while_the_file_cannot_be_written_and_the_next_line_counts_them(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    with recording(folder, Recorder()) as (url, recorder), client_of(url) as client:
        recorder.path.unlink()
        folder.rmdir()
        for _ in range(3):
            client.chat.completions.create(model="m", messages=USER)
        recorder.flush()
        folder.mkdir()
        client.chat.completions.create(model="m", messages=USER)
    (event,) = events_in(recorder.path)
    assert event.extra == {"dropped": 3}
