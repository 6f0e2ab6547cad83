"""The real openai client over loopback."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import openai
import pytest
from pydantic import BaseModel

from tenuto_vllm.embedded import EngineSettings, serve

FAST = EngineSettings(
    ranks=2, blocks=64, prefill_tokens_per_s=1e6, decode_tokens_per_s=20_000, max_model_len=900
)
CHAT = [{"role": "user", "content": "What is the capital of France, and who lives there?"}]


class Answer(BaseModel):
    city: str
    people: list[int]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(FAST) as base_url:
        yield base_url


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as made:
        yield made


def ranks(url: str) -> list[dict[str, int]]:
    with urllib.request.urlopen(f"{url}/stats", timeout=5) as answer:
        return json.load(answer)["ranks"]


def test_a_chat_is_answered_with_words_up_to_the_limit(client: openai.OpenAI):
    answer = client.chat.completions.create(model="tiny", messages=CHAT, max_completion_tokens=30)
    assert len(answer.choices[0].message.content) == 30
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 30
    prompt = f"<|user|>{CHAT[0]['content']}\n<|assistant|>"
    assert answer.usage.prompt_tokens == len(prompt)


def test_without_a_limit_an_answer_ends_by_itself_after_sixteen_tokens(client: openai.OpenAI):
    completion = client.completions.create(model="tiny", prompt="hi")
    chat = client.chat.completions.create(model="tiny", messages=CHAT)
    response = client.responses.create(model="tiny", input="hi")
    assert completion.usage.completion_tokens == chat.usage.completion_tokens == 16
    assert completion.choices[0].finish_reason == chat.choices[0].finish_reason == "stop"
    assert (response.usage.output_tokens, response.status) == (16, "completed")


def test_the_same_prompt_gets_the_same_text_on_every_rank_streamed_or_not(client: openai.OpenAI):
    texts = set()
    for rank in ("0", "1"):
        headers = {"X-data-parallel-rank": rank}
        answer = client.chat.completions.create(model="tiny", messages=CHAT, extra_headers=headers)
        texts.add(answer.choices[0].message.content)
        with client.chat.completions.create(
            model="tiny", messages=CHAT, stream=True, extra_headers=headers
        ) as chunks:
            texts.add("".join(c.choices[0].delta.content or "" for c in chunks))
    assert len(texts) == 1


def test_a_chat_stream_opens_with_the_role_and_closes_with_reason_and_usage(client: openai.OpenAI):
    with client.chat.completions.create(
        model="tiny",
        messages=CHAT,
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        first, *pieces, last, usage = stream
    assert first.choices[0].delta.role == "assistant"
    assert all(p.choices[0].delta.content and not p.choices[0].finish_reason for p in pieces)
    assert last.choices[0].finish_reason == "length"
    assert usage.choices == []
    assert usage.usage.completion_tokens == 40


def test_usage_is_streamed_only_on_request(client: openai.OpenAI):
    with client.completions.create(model="tiny", prompt="hi", stream=True) as chunks:
        assert {c.usage for c in chunks} == {None}


def test_the_next_turn_finds_the_last_one_in_its_ranks_cache(client: openai.OpenAI, url: str):
    headers = {"X-data-parallel-rank": "1"}
    chat = [{"role": "user", "content": "A question of which the cache has never heard." * 3}]
    first = client.chat.completions.create(
        model="tiny", messages=chat, max_tokens=40, extra_headers=headers
    )
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    answer = {"role": "assistant", "content": first.choices[0].message.content}
    chat = [*chat, answer, {"role": "user", "content": "And now?"}]
    second = client.chat.completions.create(model="tiny", messages=chat, extra_headers=headers)
    computed = first.usage.prompt_tokens + first.usage.completion_tokens - 1
    assert second.usage.prompt_tokens_details.cached_tokens == computed // 16 * 16
    elsewhere = client.chat.completions.create(
        model="tiny", messages=chat, extra_headers={"X-data-parallel-rank": "0"}
    )
    assert elsewhere.usage.prompt_tokens_details.cached_tokens < 16


def test_a_reset_empties_the_cache(client: openai.OpenAI, url: str):
    headers = {"X-data-parallel-rank": "0"}

    def cached() -> int:
        answer = client.responses.create(model="tiny", input="reset me" * 9, extra_headers=headers)
        return answer.usage.input_tokens_details.cached_tokens

    cached()
    assert cached() > 0
    request = urllib.request.Request(f"{url}/reset_prefix_cache", method="POST")
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert json.load(answer) == {"success": True}
    assert cached() == 0


def test_every_route_says_which_rank_served_before_the_first_byte(client: openai.OpenAI):
    headers = {"X-data-parallel-rank": "1"}
    calls = [
        (client.chat.completions, {"messages": CHAT}),
        (client.completions, {"prompt": "hi"}),
        (client.responses, {"input": "hi"}),
    ]
    for resource, body in calls:
        raw = resource.with_raw_response.create(model="tiny", extra_headers=headers, **body)
        assert raw.headers["X-Engine-Rank"] == "1"
        with resource.with_streaming_response.create(
            model="tiny", stream=True, extra_headers=headers, **body
        ) as streamed:
            assert streamed.headers["X-Engine-Rank"] == "1"
            assert streamed.headers["content-type"].startswith("text/event-stream")
            streamed.read()


def test_a_completion_takes_text_or_its_token_ids(client: openai.OpenAI):
    by_text = client.completions.create(model="tiny", prompt="hé")
    by_ids = client.completions.create(model="tiny", prompt=list("hé".encode()))
    assert by_text.choices[0].text == by_ids.choices[0].text
    assert by_ids.usage.prompt_tokens == 3


def test_a_completion_stream_joins_to_the_whole_text(client: openai.OpenAI):
    whole = client.completions.create(model="tiny", prompt="hi", max_tokens=100)
    with client.completions.create(
        model="tiny",
        prompt="hi",
        max_tokens=100,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        *chunks, usage = stream
    assert len(chunks) > 2
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    assert usage.usage.prompt_tokens == 2


def test_a_response_at_its_limit_is_incomplete(client: openai.OpenAI):
    answer = client.responses.create(model="tiny", input="hi", max_output_tokens=20)
    assert len(answer.output_text) == answer.usage.output_tokens == 20
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"


def test_a_response_streams_through_the_clients_accumulator(client: openai.OpenAI):
    whole = client.responses.create(model="tiny", input="hi", max_output_tokens=100)
    with client.responses.stream(model="tiny", input="hi", max_output_tokens=100) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == whole.output_text
    assert [e.sequence_number for e in events] == list(range(len(events)))


def test_a_responses_output_can_be_sent_back_as_input(client: openai.OpenAI):
    first = client.responses.create(model="tiny", input="hi", instructions="Be brief.")
    items = [{"role": "user", "content": "hi"}, *(item.to_dict() for item in first.output)]
    items.append({"role": "user", "content": "more"})
    second = client.responses.create(model="tiny", input=items, instructions="Be brief.")
    assert second.usage.input_tokens > first.usage.total_tokens


def test_structured_answers_parse_on_chat(client: openai.OpenAI):
    parsed = client.chat.completions.parse(model="tiny", messages=CHAT, response_format=Answer)
    assert parsed.choices[0].message.parsed == Answer(city="", people=[])
    assert parsed.choices[0].finish_reason == "stop"
    with client.chat.completions.stream(
        model="tiny", messages=CHAT, response_format=Answer
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == Answer(city="", people=[])


def test_structured_answers_parse_on_responses(client: openai.OpenAI):
    parsed = client.responses.parse(model="tiny", input="hi", text_format=Answer)
    assert parsed.output_parsed == Answer(city="", people=[])
    assert parsed.status == "completed"
    with client.responses.stream(model="tiny", input="hi", text_format=Answer) as stream:
        assert stream.get_final_response().output_parsed == Answer(city="", people=[])


def test_a_structured_answer_is_cut_at_the_callers_limit(client: openai.OpenAI):
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model="tiny", messages=CHAT, response_format=Answer, max_tokens=3
        )


def test_a_json_object_is_answered_with_an_empty_one(client: openai.OpenAI):
    answer = client.chat.completions.create(
        model="tiny", messages=CHAT, response_format={"type": "json_object"}
    )
    assert answer.choices[0].message.content == "{}"


def test_a_chat_without_a_format_streams_through_the_clients_accumulator(client: openai.OpenAI):
    with client.chat.completions.stream(model="tiny", messages=CHAT) as stream:
        assert len(stream.get_final_completion().choices[0].message.content) == 16


def test_the_model_list_names_the_served_model(client: openai.OpenAI):
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_another_model_is_not_found(client: openai.OpenAI):
    with pytest.raises(openai.NotFoundError, match="The model `gpt-4` does not exist"):
        client.chat.completions.create(model="gpt-4", messages=CHAT)


def test_a_request_over_the_models_length_is_a_bad_request(client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError, match="you requested 10000 output tokens"):
        client.completions.create(model="tiny", prompt="hi", max_tokens=10_000)


def test_stats_count_requests_and_tokens_of_each_rank(client: openai.OpenAI, url: str):
    before = ranks(url)[1]
    headers = {"X-data-parallel-rank": "1"}
    answer = client.completions.create(model="tiny", prompt="count me", extra_headers=headers)
    after = ranks(url)[1]
    assert after["requests"] == before["requests"] + 1
    assert after["prompt_tokens"] == before["prompt_tokens"] + answer.usage.prompt_tokens
    assert after["in_flight"] == 0
    assert after["free_blocks"] == after["total_blocks"] == 63
