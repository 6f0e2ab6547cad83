"""Text is written as `redact` returns it, and no text keeps a call out of the file."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenuto.recording.text import redacted, written
from tenuto.trace import CallEvent


def hidden(text: str) -> str:
    return text.replace("ana", "###").replace("555", "###")


def test_names_of_fields_and_numbers_are_redacted_as_strings_are() -> None:
    said = [{"role": "user", "ana@x.org": {"phone": 5551234, "count": 7}}, True, None, 1.5]
    assert redacted(said, hidden) == [
        {"role": "user", "###@x.org": {"phone": "###1234", "count": 7}},
        True,
        None,
        1.5,
    ]


def call(**given: Any) -> CallEvent:
    return CallEvent(run_id="r", session_id="s", start_s=1.0, input_tokens=3, **given)


def test_half_a_character_is_written_as_the_mark_of_one_that_is_missing() -> None:
    said = call(answer="half \ud83d", messages=[{"\ud83d": "\U0001f600"}], model_name="\udc00")
    line = json.loads(written(said))
    assert (line["answer"], line["model_name"]) == ("half \ufffd", "\ufffd")
    assert line["messages"] == [{"\ufffd": "\U0001f600"}]
    assert line["input_tokens"] == 3


def test_what_cannot_be_written_is_left_out_and_the_call_is_not() -> None:
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    line = json.loads(written(call(messages=deep, answer="ok")))
    assert "messages" not in line
    assert line["input_tokens"] == 3


@given(st.text(st.characters(codec=None), max_size=20))
def test_any_text_is_written(text: str) -> None:
    assert CallEvent.model_validate_json(written(call(answer=text))).answer is not None
