"""Calls that are hard to record are lines too, and what they say stays true."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

import tenuto
from tenuto.trace import CallEvent, read, read_events
from tests.loopback import Recorder, openai_http, serving

USER: Any = [{"role": "user", "content": "look at it closely " * 40}]


def client_of(url: str) -> openai.OpenAI:
    return tenuto.wrap(openai.OpenAI(base_url=url, api_key="k", max_retries=0))


def answering(said: Any) -> openai.OpenAI:
    content = json.dumps(said).encode()
    headers = {"content-type": "application/json"}
    transport = openai_http.MockTransport(
        lambda _: openai_http.Response(200, content=content, headers=headers)
    )
    http = openai_http.Client(transport=transport)
    return tenuto.wrap(openai.OpenAI(base_url="http://h/v1", api_key="k", http_client=http))


def events_in(path: Path) -> list[CallEvent]:
    return [event for event in read_events(path) if isinstance(event, CallEvent)]


def test_answered_calls_with_one_prompt_are_turns_each(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with serving(Recorder()) as url, tenuto.record(path), client_of(f"{url}/v1") as client:
        with tenuto.run("vote"):
            for _ in range(10):
                client.chat.completions.create(model="m", messages=USER)
    (trace,) = read(path)
    assert [len(session.turns) for session in trace.sessions] == [10]


def test_half_a_character_in_an_answer_loses_no_call(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": "half \ud83d"}
    said = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    with tenuto.record(tmp_path / "run.jsonl", text=True) as recorder, answering(said) as client:
        client.chat.completions.create(model="m", messages=USER)
    (event,) = events_in(recorder.path)
    assert (event.answer, event.error) == ("half \ufffd", None)


def test_a_redaction_that_exits_ends_neither_the_recorder_nor_the_next_call(tmp_path: Path) -> None:
    def redact(text: str) -> str:
        if "boom" in text:
            sys.exit(3)
        return text

    path = tmp_path / "run.jsonl"
    with (
        serving(Recorder()) as url,
        tenuto.record(path, text=True, redact=redact),
        client_of(f"{url}/v1") as client,
    ):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "boom"}])
        client.chat.completions.create(model="m", messages=USER)
    unsaid, said = events_in(path)
    assert unsaid.messages is None
    assert said.messages == USER


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"max_bytes": "1"}, "max_bytes"),
        ({"max_bytes": None}, "max_bytes"),
        ({"max_bytes": True}, "max_bytes"),
        ({"files": 1.5}, "files"),
        ({"text": True, "redact": "secret"}, "redact is a function"),
    ],
)
def test_an_argument_of_another_kind_is_told_at_once(
    tmp_path: Path, given: dict[str, Any], match: str
) -> None:
    with pytest.raises(tenuto.ConfigError, match=match):
        tenuto.record(tmp_path / "run.jsonl", **given)


def test_calls_that_name_the_response_before_have_the_blocks_of_the_whole_prompt(
    tmp_path: Path,
) -> None:
    numbers = itertools.count(1)

    def answer(_: Any) -> Any:
        n = next(numbers)
        text = {"type": "output_text", "text": "ok", "annotations": []}
        message = {"type": "message", "id": "x", "role": "assistant", "content": [text]}
        usage = {"input_tokens": 1000 * n, "output_tokens": 5, "total_tokens": 1000 * n + 5}
        said = {"object": "response", "status": "completed", "output": [message], "usage": usage}
        return openai_http.Response(200, json={"id": f"resp_{n}", "model": "m", **said})

    http = openai_http.Client(transport=openai_http.MockTransport(answer))
    client = tenuto.wrap(openai.OpenAI(base_url="http://h/v1", api_key="k", http_client=http))
    with tenuto.record(tmp_path / "run.jsonl") as recorder, client, tenuto.run("chain"):
        before = "elsewhere"
        for n in range(4):
            given: Any = {"previous_response_id": before} if n != 1 else {}
            said = client.responses.create(model="m", input=f"{n}" * 4000, **given)
            before = said.id
    partial, *events = events_in(recorder.path)
    assert (partial.blocks, partial.input_bytes, partial.input_tokens) == ((), None, 1000)
    assert partial.extra == {"prompt": "partial"}
    for event, following in itertools.pairwise(events):
        assert following.blocks[: len(event.blocks)] == event.blocks
        assert (following.input_bytes or 0) > (event.input_bytes or 0) + 4000
    (trace,) = read(recorder.path)
    assert [turn.input_tokens for turn in trace.sessions[0].turns] == [1000, 2000, 3000, 4000]
