"""An engine that answers by a script, asked by the real openai client."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import openai
import pytest

import tenuto
import tenuto_vllm
from tenuto_vllm.embedded import EngineSettings, ToolCall, serve

CALLS = [
    ToolCall("look_up", {"topic": "the weight of a pump", "deep": False}),
    ToolCall("look_up", {"topic": "the price of a pump"}),
]
TOOLS = {
    "chat": [{"type": "function", "function": {"name": "look_up", "parameters": {}}}],
    "responses": [{"type": "function", "name": "look_up", "parameters": {}, "strict": False}],
}
ASKED = [{"role": "user", "content": "What does a pump weigh and cost? " * 9}]


def answers(body: Mapping[str, Any]) -> str | list[ToolCall] | None:
    """Call tools, answer their results, and leave what is neither to the engine."""
    if "say é" in str(body):
        return "é"
    if "raise" in str(body):
        raise LookupError("the script is at its end")
    items = body.get("messages", body.get("input"))
    last = items[-1] if isinstance(items, list) else {}
    if last.get("role") == "tool" or last.get("type") == "function_call_output":
        return "It weighs 12 kg and costs 90."
    return CALLS if body.get("tools") else None


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    fast = EngineSettings(
        prefill_tokens_per_s=1e6, decode_tokens_per_s=50_000, max_model_len=2000, answers=answers
    )
    with serve(fast, [tenuto_vllm.TurnMiddleware]) as base_url:
        yield base_url


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as made:
        yield tenuto.wrap(made)


def chat_of(client: openai.OpenAI, messages: list[Any], *, streamed: bool, **more: Any) -> Any:
    """Return a chat's whole answer, put together from its chunks when it is streamed."""
    asked: dict[str, Any] = {"model": "tiny", "messages": messages, "tools": TOOLS["chat"], **more}
    if not streamed:
        return client.chat.completions.create(**asked)
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        return stream.get_final_completion()


def response_of(client: openai.OpenAI, items: list[Any], *, streamed: bool, **more: Any) -> Any:
    asked: dict[str, Any] = {"model": "tiny", "input": items, "tools": TOOLS["responses"], **more}
    if not streamed:
        return client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        return stream.get_final_response()


@pytest.mark.parametrize("streamed", [False, True])
def test_a_chat_calls_tools_and_its_next_turn_finds_them_in_the_cache_at_home(
    client: openai.OpenAI, streamed: bool
):
    asked: list[Any] = [{"role": "system", "content": f"Streamed: {streamed}"}, *ASKED]
    with tenuto.run():
        first = chat_of(client, asked, streamed=streamed)
        message = first.choices[0].message
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": "12"}
            for call in message.tool_calls
        ]
        made = message.model_dump(include={"role", "content", "tool_calls"})
        second = chat_of(client, [*asked, made, *results], streamed=streamed)
    assert first.choices[0].finish_reason == "tool_calls"
    assert not message.content
    called = [call.function for call in message.tool_calls]
    assert [ToolCall(one.name, json.loads(one.arguments)) for one in called] == CALLS
    assert len({call.id for call in message.tool_calls}) == 2
    assert second.choices[0].message.content == "It weighs 12 kg and costs 90."
    assert second.choices[0].finish_reason == "stop"
    computed = first.usage.prompt_tokens + first.usage.completion_tokens - 1
    assert second.usage.prompt_tokens_details.cached_tokens == computed // 16 * 16


@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_calls_tools_and_its_next_turn_finds_them_in_the_cache_at_home(
    client: openai.OpenAI, streamed: bool
):
    asked: list[Any] = [{"role": "user", "content": f"{streamed}. {ASKED[0]['content']}"}]
    with tenuto.run():
        first = response_of(client, asked, streamed=streamed)
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "12"}
            for item in first.output
        ]
        made = [item.model_dump(exclude={"parsed_arguments"}) for item in first.output]
        second = response_of(client, [*asked, *made, *results], streamed=streamed)
    assert first.status == "completed"
    assert [item.type for item in first.output] == ["function_call"] * 2
    assert [ToolCall(item.name, json.loads(item.arguments)) for item in first.output] == CALLS
    assert second.output_text == "It weighs 12 kg and costs 90."
    computed = first.usage.input_tokens + first.usage.output_tokens - 1
    assert second.usage.input_tokens_details.cached_tokens == computed // 16 * 16


def test_a_call_is_streamed_as_the_events_that_openai_sends(client: openai.OpenAI):
    asked: Any = {"model": "tiny", "input": ASKED, "tools": TOOLS["responses"]}
    with client.responses.create(stream=True, **asked) as stream:
        events = list(stream)
    of_a_call = [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    begun, ended = ["response.created", "response.in_progress"], ["response.completed"]
    assert [event.type for event in events] == [*begun, *of_a_call, *of_a_call, *ended]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event for event in events if event.type.endswith("arguments.delta")]
    assert [(event.output_index, json.loads(event.delta)) for event in deltas] == [
        (index, call.arguments) for index, call in enumerate(CALLS)
    ]


def test_what_the_script_leaves_open_the_engine_answers_with_its_words(client: openai.OpenAI):
    answer = client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=8)
    completion = client.completions.create(model="tiny", prompt="hi", max_tokens=8)
    assert len(answer.choices[0].message.content) == len(completion.choices[0].text) == 8


def test_calls_that_the_callers_limit_cuts_are_text(client: openai.OpenAI):
    cut = chat_of(client, ASKED, streamed=False, max_tokens=11).choices[0]
    assert (cut.finish_reason, cut.message.tool_calls) == ("length", None)
    assert cut.message.content == "<|call|>loo"


def test_an_answer_that_has_no_tokens_of_one_character_is_refused_with_the_reason(
    client: openai.OpenAI,
):
    with pytest.raises(openai.InternalServerError, match="not ASCII"):
        client.completions.create(model="tiny", prompt="say é")


def test_a_script_that_raises_is_an_error_of_the_server_and_ends_one_call_only(
    client: openai.OpenAI,
):
    with pytest.raises(openai.InternalServerError):
        client.completions.create(model="tiny", prompt="raise")
    # uvicorn closes the connection of the one that failed, and the next may meet that.
    again = client.with_options(max_retries=2)
    assert again.completions.create(model="tiny", prompt="go on").choices[0].text


def test_the_command_takes_the_script_by_its_name():
    asked = [sys.executable, "-m", "tenuto_vllm.embedded", "--port", "0", "--exit-with-stdin"]
    with subprocess.Popen(
        [*asked, "--answers", "tests.server.test_embedded_scripted.answers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        base_url = process.stdout.readline().split()[-1]
        with openai.OpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0) as client:
            answer = chat_of(client, ASKED, streamed=False)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
    assert answer.choices[0].finish_reason == "tool_calls"


def test_the_command_refuses_what_it_cannot_call():
    asked = [sys.executable, "-m", "tenuto_vllm.embedded", "--answers"]
    for name, says in (("json.nothing", "cannot import"), ("sys.path", "cannot be called")):
        done = subprocess.run([*asked, name], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert says in done.stderr
