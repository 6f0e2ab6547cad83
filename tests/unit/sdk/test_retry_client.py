"""`retrying` makes a copy that looks like the client, and refuses what cannot work."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import openai
import pytest

import tenuto
from tenuto.errors import StreamInterrupted
from tenuto.retry import retrying
from tenuto.retry.attempt import timeout_within
from tenuto.retry.given_up import WINDOW_S, GivenUp, call_key
from tenuto.retry.streams import is_whole, text_of
from tests.unit.sdk.test_wrap import KINDS, make


@pytest.mark.parametrize("kind", KINDS)
def test_the_copy_is_of_the_same_kind_and_name_and_the_client_stays_as_it_is(
    kind: type[Any],
) -> None:
    client = make(kind)
    copied = retrying(client)
    assert type(client) is kind
    assert client.max_retries == 2
    assert copied is not client
    assert isinstance(copied, kind)
    assert (type(copied).__name__, type(copied).__module__) == (kind.__name__, kind.__module__)
    assert copied.user_agent == client.user_agent
    assert copied._client is client._client


@pytest.mark.parametrize("kind", KINDS)
def test_copies_of_the_copy_keep_the_layer(kind: type[Any]) -> None:
    copied = retrying(make(kind))
    for made in (copied.with_options(timeout=1), copied.copy(default_headers={"a": "b"})):
        assert type(made) is type(copied)
        assert made.__tenuto_retry__ is copied.__tenuto_retry__


@pytest.mark.parametrize("kind", KINDS)
def test_retrying_twice_adds_no_second_layer(kind: type[Any]) -> None:
    once = retrying(make(kind))
    twice = retrying(once, attempts=7)
    assert type(twice).request is type(once).request
    assert (once.max_retries, twice.max_retries) == (2, 6)


def test_a_wrapped_client_keeps_its_dialect_and_may_be_given_another_later() -> None:
    copied = retrying(tenuto.wrap(make(openai.OpenAI), dialect="vllm"), attempts=5)
    assert copied.__tenuto_dialect__.name == "vllm"
    again = tenuto.wrap(copied, dialect="generic")
    assert again.__tenuto_dialect__.name == "generic"
    assert again.max_retries == 4


def test_a_client_without_references_leaves_no_class_behind() -> None:
    retrying(make(openai.OpenAI))
    gc.collect()
    marked = type(tenuto.wrap(make(openai.OpenAI)))
    before = len(marked.__subclasses__())
    for _ in range(10):
        retrying(make(openai.OpenAI))
    gc.collect()
    assert len(marked.__subclasses__()) == before


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"attempts": 0}, "attempts"),
        ({"attempts": 1.5}, "attempts"),
        ({"attempts": True}, "attempts"),
        ({"deadline_s": 0}, "deadline_s"),
        ({"deadline_s": "1"}, "deadline_s"),
        ({"deadline_s": float("nan")}, "deadline_s"),
        ({"wait": 1}, "wait"),
        ({"cooldown_s": -1}, "cooldown_s"),
        ({"base_urls": "http://127.0.0.1"}, "list of URLs"),
        ({"base_urls": ["127.0.0.1:8000"]}, "http or https"),
        ({"base_urls": ["http:///v1"]}, "http or https"),
        ({"base_urls": ["http://127.0.0.1/v1?key=1"]}, "http or https"),
    ],
)
def test_what_cannot_work_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(tenuto.ConfigError, match=named):
        retrying(make(openai.OpenAI), **options)


def test_a_client_that_cannot_go_to_another_url_says_so_at_once() -> None:
    class Pinned(openai.OpenAI):
        @property
        def base_url(self) -> Any:
            return self._base_url

        @base_url.setter
        def base_url(self, url: Any) -> None:
            raise ValueError("pinned by its certificate")

    with pytest.raises(tenuto.ConfigError, match="cannot go to 'http://b/v1': pinned"):
        retrying(Pinned(api_key="k"), base_urls=["http://b/v1"])


@pytest.mark.parametrize("thing", [None, object(), openai])
def test_what_is_not_an_openai_client_is_refused(thing: Any) -> None:
    with pytest.raises(tenuto.ConfigError, match=r"OpenAI\(\) or AsyncOpenAI\(\)"):
        retrying(thing)


@pytest.mark.parametrize(
    ("base_urls", "all_urls"),
    [
        ([], ["http://a/v1"]),
        (["http://b/v1"], ["http://a/v1", "http://b/v1"]),
        (["http://b/v1/", "http://a/v1/"], ["http://b/v1", "http://a/v1"]),
        (["http://b/v1", "http://b/v1"], ["http://a/v1", "http://b/v1"]),
    ],
)
def test_a_clients_own_url_comes_first_unless_the_list_says_otherwise(
    base_urls: list[str], all_urls: list[str]
) -> None:
    client = retrying(openai.OpenAI(base_url="http://a/v1", api_key="k"), base_urls=base_urls)
    assert list(client.__tenuto_retry__.routes.urls) == all_urls


@pytest.mark.parametrize(
    ("asked", "default", "read_s"),
    [
        (openai.NOT_GIVEN, 600, 2.0),
        (openai.NOT_GIVEN, None, 2.0),
        (None, 1.0, 2.0),
        (1.0, 600, 1.0),
        (openai.Timeout(600, read=0.5), 600, 0.5),
        (openai.Timeout(None), 600, 2.0),
    ],
)
def test_a_deadline_cuts_timeouts_and_never_lengthens_them(
    asked: Any, default: Any, read_s: float
) -> None:
    cut = timeout_within(2.0, asked, default)
    assert cut.read == read_s
    assert max(cut.as_dict().values()) <= 2.0


def test_what_was_given_up_is_remembered_a_while_and_for_a_bounded_number() -> None:
    given_up = GivenUp()
    given_up.add(7, now_s=0)
    assert given_up.has(7, now_s=WINDOW_S - 1)
    assert not given_up.has(7, now_s=WINDOW_S)
    assert not given_up.has(8, now_s=0)
    for key in range(10_000):
        given_up.add(key, now_s=0)
    assert len(given_up._until_s) == 256
    given_up.discard(9_999)
    assert not given_up.has(9_999, now_s=0)


def test_calls_share_a_key_only_with_their_own_repeats() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    key = call_key("/chat/completions", body, None)
    assert call_key("/chat/completions", {**body}, None) == key
    assert call_key("/chat/completions", {**body, "model": "m"}, None) != key
    assert call_key("/completions", body, None) != key
    with tenuto.run() as run, run.agent("planner"):
        assert call_key("/chat/completions", body, None) != key
    loop: dict[str, Any] = {}
    loop["self"] = loop
    assert call_key("/chat/completions", loop) is None


def chunk(index: int = 0, finish: str | None = None, **said: Any) -> Any:
    return openai.types.chat.ChatCompletionChunk.model_validate(
        {
            **{"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk"},
            "choices": [{"index": index, "delta": said, "finish_reason": finish}],
        }
    )


def event(kind: str, **more: Any) -> Any:
    return openai.BaseModel.construct(type=kind, **more)


USAGE = openai.types.chat.ChatCompletionChunk.model_validate(
    {
        **{"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk"},
        **{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
    }
)


@pytest.mark.parametrize(
    ("items", "whole"),
    [
        ([], False),
        ([chunk(content="a")], False),
        ([chunk(content="a"), chunk(finish="stop")], True),
        ([chunk(content="a"), chunk(finish="stop"), USAGE], True),
        ([chunk(content="a"), USAGE], False),
        ([USAGE], False),
        ([chunk(0, "stop"), chunk(1, content="b")], False),
        ([chunk(0, "stop"), chunk(1, content="b"), chunk(1, "length")], True),
        ([event("response.created")], False),
        ([event("response.created"), event("response.completed")], True),
        ([event("response.created"), event("response.failed")], True),
        ([event("response.created"), event("response.incomplete")], True),
        ([event("response.created"), event("error")], True),
        ([event("error")], True),
        ([event("transcript.text.delta", delta="a")], True),
        ([{"any": "thing"}], True),
    ],
)
def test_a_stream_is_whole_when_its_answer_was_ended(items: list[Any], whole: bool) -> None:
    assert is_whole(items, of_model=True) is whole


def test_nothing_is_a_whole_stream_where_no_model_was_to_answer() -> None:
    assert is_whole([], of_model=False)


def test_the_text_is_that_of_the_first_choice() -> None:
    chat = [chunk(content="a"), chunk(1, content="x"), chunk(role="assistant"), USAGE]
    assert text_of([*chat, chunk(content="b")]) == "ab"
    assert text_of([event("response.output_text.delta", delta=d) for d in "cd"]) == "cd"
    assert text_of([event("response.created"), {"any": "thing"}]) == ""


def test_an_interruption_is_an_openai_error_and_survives_a_process_boundary() -> None:
    error = StreamInterrupted("ended", ["a"], "text", "req-1")
    assert isinstance(error, openai.OpenAIError)
    assert isinstance(error, tenuto.TenutoError)
    assert not isinstance(error, openai.APIError)
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.partial, copied.text, copied.request_id) == (["a"], "text", "req-1")
    assert "req-1" not in str(error)
