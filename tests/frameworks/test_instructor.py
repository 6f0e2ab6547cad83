"""instructor, which needs openai 2: its retries after a bad answer are turns, not attempts."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pydantic
import pytest

import tenuto
from tests.frameworks.scripted import Call, Model

instructor = pytest.importorskip("instructor")


class Word(pydantic.BaseModel):
    word: str


def ask(client: Any) -> Any:
    words = [{"role": "user", "content": "hi"}]
    return client.create(model="m", messages=words, response_model=Word, max_retries=2)


@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_patched_client_is_marked_in_either_order(
    asynchronous: bool, ours_first: bool, model: Model
) -> None:
    model.script = lambda asked: (
        [Call("Word", {"word": "hi"} if len(model.arrived) > 3 else {"wrong": 1})]
    )
    model.failures = [500, 500]
    kind = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    client = kind(base_url=model.base_url, api_key="k")
    if ours_first:
        tenuto.wrap(client)
    patched = instructor.from_openai(client)
    if not ours_first:
        tenuto.wrap(client)
    with tenuto.run() as run:
        answer = asyncio.run(ask(patched)) if asynchronous else ask(patched)
    assert answer.word == "hi"
    assert [asked.headers["x-session-id"] for asked in model.arrived] == [run.session_id] * 4
    tried = [(asked.turn["n"], asked.turn["attempt"]) for asked in model.arrived]
    assert tried == [("0", "0"), ("0", "1"), ("0", "2"), ("1", "0")]
    if not asynchronous:
        client.close()
