"""What is known of an answer that is long, compressed or broken off."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest

from tenuto.recording.heard import heard_of
from tenuto.tried import Tried

USAGE = {"prompt_tokens": 11, "completion_tokens": 3}


def answered(*chunks: bytes, kind: str = "application/json", whole: bool = True) -> Tried:
    tried = Tried(None, None)
    tried.status, tried.response = 200, httpx.Response(200, headers={"content-type": kind})
    tried.is_streamed = True
    for chunk in chunks:
        tried.take(chunk)
    tried.is_whole = whole
    return tried


def in_pieces(content: bytes) -> list[bytes]:
    return [content[at : at + 65_536] for at in range(0, len(content), 65_536)]


def event(delta: Any, **given: Any) -> bytes:
    piece = {"choices": [{"index": 0, "delta": delta}], **given}
    return b"data: %s\n\n" % json.dumps(piece).encode()


def test_a_long_answer_that_came_whole_has_its_counts_and_no_error() -> None:
    text = 'z "usage": {"prompt_tokens": 5} "finish_reason": "length"' * 200_000
    said = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": USAGE}
    content = json.dumps(said).encode()
    assert len(content) > 9 << 20
    heard = heard_of(answered(*in_pieces(content)))
    assert (heard.error, heard.said.finish_reason) == (None, "stop")
    assert (heard.said.input_tokens, heard.said.output_tokens) == (11, 3)
    left = heard_of(answered(*in_pieces(content)[:-1], whole=False))
    assert left.error == "Incomplete"


def test_a_long_stream_has_the_time_of_its_first_token_and_its_counts_but_no_text() -> None:
    chunks = [event({"role": "assistant"}), event({"content": "first"})]
    chunks += [event({"content": "y" * 60_000})] * 200
    chunks += [event({}, usage=USAGE), b"data: [DONE]\n\n"]
    tried = answered(*chunks, kind="text/event-stream")
    assert tried.answer_bytes > 9 << 20
    assert sum(len(chunk) for _, chunk in tried.chunks) < 5 << 20
    heard = heard_of(tried)
    assert heard.first_token_s == tried.start_chunks[1][0] < tried.chunks[0][0]
    assert (heard.said.input_tokens, heard.said.text, heard.said.output_bytes) == (11, "", None)
    assert heard.error is None


@pytest.mark.parametrize("size", [100, 9 << 20])
def test_a_compressed_answer_is_read_as_far_as_it_is_kept(size: int) -> None:
    content = event({"content": "a"}) + event({"content": "b" * size}) + b"data: [DONE]\n\n"
    tried = answered(gzip.compress(content), kind="text/event-stream")
    tried.response.headers["content-encoding"] = "gzip"
    heard = heard_of(tried)
    assert (heard.error, len(heard.said.text)) == (None, 1 + size)


@pytest.mark.parametrize(
    "said",
    [
        {"choices": [{"index": [1], "message": {"tool_calls": [{"function": {"name": "f"}}]}}]},
        {"choices": [{"finish_reason": {"text": "secret"}, "message": {}}]},
    ],
)
def test_an_answer_of_another_shape_keeps_no_call_out_of_the_file(said: Any) -> None:
    heard = heard_of(answered(json.dumps(said).encode()))
    assert len(heard.said.finish_reason or "") <= 64
