"""`wrap` changes what a client sends and nothing that a program can see of it."""

from __future__ import annotations

from typing import Any

import openai
import pytest

import tenuto

KINDS = [openai.OpenAI, openai.AsyncOpenAI, openai.AzureOpenAI, openai.AsyncAzureOpenAI]


def make(kind: type[Any]) -> Any:
    azure = {"azure_endpoint": "http://127.0.0.1:9", "api_version": "2024-10-21"}
    return kind(api_key="k", **(azure if "Azure" in kind.__name__ else {}))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_object_comes_back_with_its_name_and_kind(kind: type[Any]) -> None:
    client = make(kind)
    chat = client.chat
    assert tenuto.wrap(client) is client
    assert isinstance(client, kind)
    assert (type(client).__name__, type(client).__module__) == (kind.__name__, kind.__module__)
    assert client.user_agent == make(kind).user_agent
    assert client.chat is chat


@pytest.mark.parametrize("kind", KINDS)
def test_wrapping_twice_changes_nothing_and_copies_are_wrapped(kind: type[Any]) -> None:
    client = tenuto.wrap(make(kind))
    wrapped = type(client)
    assert type(tenuto.wrap(client)) is wrapped
    assert type(client.with_options(timeout=1)) is wrapped
    assert type(client.copy(max_retries=0)) is wrapped


def test_an_unwrapped_client_of_the_same_class_is_left_alone() -> None:
    before = openai.OpenAI.request
    tenuto.wrap(make(openai.OpenAI))
    assert openai.OpenAI.request is before
    assert type(make(openai.OpenAI)) is openai.OpenAI


def test_a_dialect_given_later_replaces_the_one_before() -> None:
    client = tenuto.wrap(make(openai.OpenAI))
    assert type(tenuto.wrap(client, dialect="vllm")).__mro__[1] is openai.OpenAI


def test_a_subclass_of_a_users_own_is_wrapped_with_its_methods() -> None:
    class Ours(openai.OpenAI):
        def hello(self) -> str:
            return "hello"

    assert tenuto.wrap(Ours(api_key="k")).hello() == "hello"


@pytest.mark.parametrize("thing", [None, "https://api.openai.com", object(), openai])
def test_what_is_not_an_openai_client_is_refused_by_name(thing: Any) -> None:
    with pytest.raises(tenuto.ConfigError, match=r"OpenAI\(\) or AsyncOpenAI\(\)"):
        tenuto.wrap(thing)
