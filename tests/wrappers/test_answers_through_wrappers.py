"""What is learned of answers does not depend on who else has wrapped the client."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

import tenuto
from tests.calls import make
from tests.frameworks.scripted import Model
from tests.loopback import CHAT, Recorder, serving
from tests.wrappers.theirs import THEIRS

USER = {"role": "user", "content": "hi"}
either_order = pytest.mark.parametrize("ours_first", [True, False], ids=["ours first", "last"])


@contextlib.contextmanager
def wrapped(theirs: str, ours_first: bool, url: str, **more: Any) -> Iterator[Any]:
    """Give a client that both are on."""
    with make(openai.OpenAI, url) as client, contextlib.ExitStack() as stack:
        if ours_first:
            tenuto.wrap(client, **more)
        stack.enter_context(THEIRS[theirs](client))
        yield client if ours_first else tenuto.wrap(client, **more)


def streamed(client: Any, messages: Any) -> None:
    with client.chat.completions.stream(model="m", messages=messages) as stream:
        stream.get_final_completion()


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "create": lambda c, m: c.chat.completions.create(model="m", messages=m),
    "stream=True": lambda c, m: list(c.chat.completions.create(model="m", messages=m, stream=True)),
    "stream()": streamed,
    "raw": lambda c, m: c.chat.completions.with_raw_response.create(model="m", messages=m).parse(),
}


@either_order
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("theirs", THEIRS)
def test_the_tokens_of_an_answer_are_known_to_the_next_turn(
    theirs: str, way: str, ours_first: bool
) -> None:
    model = Model()
    with serving(model) as model.url:
        with wrapped(theirs, ours_first, model.url) as client, tenuto.run():
            WAYS[way](client, [USER])
            WAYS[way](client, [USER, USER])
    # One token each of prompt and answer.
    assert [asked.turn.get("prefix") for asked in model.arrived] == [None, "2"]


class Refusing(Recorder):
    """A server that refuses a body field of ours."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await super().__call__(scope, receive, self.refusing(send))

    def refusing(self, send: Any) -> Any:
        async def sending(message: dict[str, Any]) -> None:
            if "prompt_cache_key" in self.arrived[-1].body:
                if message["type"] == "http.response.start":
                    message["status"] = 400
                else:
                    said = "Unrecognized request argument supplied: prompt_cache_key"
                    message["body"] = json.dumps({"error": {"message": said}}).encode()
            await send(message)

        return sending


@either_order
@pytest.mark.parametrize("theirs", THEIRS)
def test_a_body_field_of_ours_that_a_server_refuses_costs_no_call(
    theirs: str, ours_first: bool
) -> None:
    recorder = Refusing()
    with serving(recorder) as url:
        with wrapped(theirs, ours_first, url, dialect="openai") as client, tenuto.run():
            answer = client.chat.completions.create(model="m", messages=[USER])
    assert answer.choices[0].message.content == CHAT["choices"][0]["message"]["content"]
    assert ["prompt_cache_key" in one.body for one in recorder.arrived] == [True, False]
