"""Prompts are told apart and put into histories by what they repeat of answers."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.conformance import answers
from tenuto.conformance.captured import Place
from tenuto.conformance.histories import Histories
from tenuto.conformance.marks import Mark, marks_in, without_marks
from tenuto.conformance.prompts import Kind, Prompt, kind_of, read_prompt
from tenuto.conformance.speech import said

TOOL = {
    "name": "task",
    "parameters": {
        "type": "object",
        "properties": {"prompt": {"type": "string"}},
        "required": ["prompt"],
    },
}


def opening(kind: Kind, text: str) -> dict[str, Any]:
    user = {"role": "user", "content": text}
    if kind == "responses":
        return {"instructions": "You work.", "input": text, "tools": [{"type": "function", **TOOL}]}
    if kind == "messages":
        schema = {"name": "task", "input_schema": TOOL["parameters"]}
        return {"system": "You work.", "messages": [user], "tools": [schema]}
    system = {"role": "system", "content": "You work."}
    return {"messages": [system, user], "tools": [{"type": "function", "function": TOOL}]}


def grown(kind: Kind, body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return the prompt with an answer and the results of its tools."""
    if kind == "responses":
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        calls = [one for one in answer["output"] if one["type"] == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": one["call_id"], "output": "done"}
            for one in calls
        ]
        return {**body, "input": [*items, *answer["output"], *results]}
    if kind == "messages":
        results = [
            {"type": "tool_result", "tool_use_id": one["id"], "content": "done"}
            for one in answer["content"]
            if one["type"] == "tool_use"
        ]
        more = [{"role": "assistant", "content": answer["content"]}]
        more += [{"role": "user", "content": results}] if results else []
        return {**body, "messages": [*body["messages"], *more]}
    message = answer["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": one["id"], "content": "done"}
        for one in message.get("tool_calls", [])
    ]
    return {**body, "messages": [*body["messages"], message, *results]}


class Talk:
    """A server and its client in one."""

    def __init__(self) -> None:
        self.histories = Histories()
        self.number = 0

    def ask(self, kind: Kind, body: dict[str, Any]) -> tuple[Place, answers.Said, dict[str, Any]]:
        self.number += 1
        prompt = read_prompt(kind, body)
        place = self.histories.place(prompt)
        name = self.histories.answer(self.number, prompt, place)
        answer = said(prompt, place, body, name)
        return place, answer, answers.whole(kind, answer)


CHATS: tuple[Kind, ...] = ("chat", "responses", "messages")


@pytest.mark.parametrize("kind", CHATS)
def test_a_prompt_that_repeats_an_answer_goes_on_from_it(kind: Kind) -> None:
    talk = Talk()
    body = opening(kind, "Go.")
    places: list[Place] = []
    for _ in range(3):
        place, _, answer = talk.ask(kind, body)
        places.append(place)
        body = grown(kind, body, answer)
    assert [place.continues for place in places] == [None, 1, 2]
    assert [place.depth for place in places] == [0, 1, 2]
    assert [place.rounds for place in places] == [0, 1, 0]


@pytest.mark.parametrize("kind", CHATS)
def test_a_task_that_repeats_a_calls_argument_was_started_by_that_call(kind: Kind) -> None:
    talk = Talk()
    _, answer, _ = talk.ask(kind, opening(kind, "Go."))
    assert [call.name for call in answer.calls] == ["task", "task"]
    for index, call in enumerate(answer.calls):
        place, child, _ = talk.ask(kind, opening(kind, f"Do {call.arguments['prompt']}."))
        assert (place.continues, place.started_by) == (None, (1, index))
        # An agent that was started starts no other, or it would never end.
        assert child.calls == ()
        assert child.text


def test_equal_prompts_get_answers_of_different_names_and_are_counted_as_tries() -> None:
    talk = Talk()
    places = [talk.ask("chat", opening("chat", "Go."))[0] for _ in range(3)]
    assert [place.tries for place in places] == [0, 1, 2]
    assert {place.row for place in places} == {0}
    names = {talk.ask("chat", opening("chat", "Go."))[1].name for _ in range(3)}
    assert len(names) == 3


def test_a_program_run_again_meets_the_same_marks() -> None:
    one, two = Talk(), Talk()
    two.ask("chat", opening("chat", "Something else comes first."))
    first = one.ask("chat", opening("chat", "Go."))[2]["choices"]
    assert first == two.ask("chat", opening("chat", "Go."))[2]["choices"]


def test_a_response_that_names_the_one_before_goes_on_from_it() -> None:
    talk = Talk()
    _, _, answer = talk.ask("responses", {"input": "Go."})
    place, _, _ = talk.ask("responses", {"input": "On.", "previous_response_id": answer["id"]})
    assert place.continues == 1


def test_a_text_that_is_completed_goes_on_from_its_middle() -> None:
    talk = Talk()
    _, _, answer = talk.ask("completions", {"prompt": "Once"})
    text = "Once" + answer["choices"][0]["text"]
    assert talk.ask("completions", {"prompt": text})[0].continues == 1


def test_what_a_user_quotes_of_an_answer_makes_no_history() -> None:
    talk = Talk()
    _, answer, _ = talk.ask("chat", {"messages": [{"role": "user", "content": "Go."}]})
    place, _, _ = talk.ask("chat", opening("chat", f"Is this right: {answer.text}"))
    assert (place.continues, place.started_by) == (None, None)


def test_the_opening_of_a_prompt_is_the_same_in_every_run_whatever_marks_it_repeats() -> None:
    def prompt(mark: Mark) -> Prompt:
        return read_prompt("chat", opening("chat", f"Do {mark}."))

    one, two = prompt(Mark("0123abcdn0", 0)), prompt(Mark("fedc9876n3", 1))
    assert one.opening == two.opening
    assert one.digest != two.digest
    assert prompt(Mark("0123abcdn0", 0)) == one


def test_marks_are_found_in_the_ids_that_are_made_of_them() -> None:
    mark = Mark("0123abcdn12", 1)
    assert marks_in(f"call_{mark} and resp_{Mark('0123abcdn12')}") == [mark, Mark("0123abcdn12")]
    assert without_marks(f"a {mark} b") == "a tnto b"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/chat/completions", "chat"),
        ("/openai/deployments/m/chat/completions", "chat"),
        ("/v1/completions", "completions"),
        ("/v1/responses", "responses"),
        ("/v1/messages", "messages"),
        ("/v1/messages/count_tokens", None),
        ("/v1/embeddings", None),
        ("/tenuto/turns", None),
    ],
)
def test_a_path_tells_the_api(path: str, kind: Kind | None) -> None:
    assert kind_of(path) == kind
