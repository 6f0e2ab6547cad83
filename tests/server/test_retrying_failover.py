"""Several base URLs: where a call goes next, where later calls go first, and what is kept."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

import tenuto
from tenuto.retry import retrying
from tests.calls import HTTP, make
from tests.loopback import CHAT, RESPONSE, Recorder, serving
from tests.retry_calls import ASKS, USER, no_wait
from tests.scripted import (
    CUT,
    STALL,
    Answer,
    Scripted,
    chat_chunks,
    failure,
    found,
    scripted,
    streamed,
)

OK = found(CHAT)
TOKENS = ("abcd1234.1", "dcba4321.2")
FAILURES: dict[str, Answer] = {
    "500": failure(500),
    "503 that asks to wait": failure(503, retry_after="60"),
    "429 that asks to wait": failure(429, retry_after="60"),
    "disconnect": [CUT],
    "timeout": [STALL],
}


@contextmanager
def two(home: list[Answer], spare: list[Answer]) -> Iterator[tuple[list[Scripted], list[str]]]:
    """Serve two scripts; the second yields base URLs."""
    with scripted(*home) as (first, home_url), scripted(*spare) as (second, spare_url):
        yield [first, second], [home_url, spare_url]


def chat(client: Any, content: str = "hi", **more: Any) -> Any:
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": content}], **more
    )


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
@pytest.mark.parametrize("name", FAILURES)
def test_what_a_server_fails_goes_to_the_next_url_at_once(name: str, ask: Any) -> None:
    with two([FAILURES[name]], [OK]) as ((home, spare), (home_url, spare_url)), tenuto.run():
        ask(
            home_url,
            {"timeout": 0.5},
            base_urls=[f"{spare_url}/v1"],
            wait=lambda _: 60.0,
            deadline_s=30,
        )
    first, second = home.arrived[0], spare.arrived[0]
    assert (first.turn["attempt"], second.turn["attempt"]) == ("0", "1")
    assert (first.turn["n"], second.turn["n"]) == ("0", "0")
    assert first.headers["x-session-id"] == second.headers["x-session-id"]
    assert (first.path, first.body) == (second.path, second.body)
    assert first.headers["authorization"] == second.headers["authorization"]
    assert second.headers["host"] in spare_url


def test_a_url_that_refuses_connections_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with scripted(OK, OK) as (spare, url), make(openai.OpenAI, dead) as plain:
        client = retrying(plain, base_urls=[f"{url}/v1"])
        chat(client)
        chat(client)
    assert len(spare.arrived) == 2


@pytest.mark.parametrize("status", [400, 404, 422])
def test_what_another_server_would_refuse_too_goes_nowhere_else(status: int) -> None:
    with two([failure(status)], [OK]) as ((_, spare), (home_url, spare_url)):
        with make(openai.OpenAI, home_url) as plain, pytest.raises(openai.APIStatusError):
            chat(retrying(plain, base_urls=[f"{spare_url}/v1"]))
    assert spare.arrived == []


def test_urls_are_tried_in_turn_for_as_long_as_attempts_last() -> None:
    with two([failure(500)] * 3, [failure(500)] * 2) as ((home, spare), (home_url, spare_url)):
        with make(openai.OpenAI, home_url) as plain:
            client = retrying(plain, base_urls=[f"{spare_url}/v1"], attempts=5, wait=no_wait)
            with pytest.raises(openai.InternalServerError):
                chat(client)
    assert (len(home.arrived), len(spare.arrived)) == (3, 2)


def test_a_server_that_asked_to_wait_is_not_tried_before() -> None:
    answers = [failure(429, retry_after="60")], [failure(500)] * 9
    with two(*answers) as ((home, spare), (home_url, spare_url)):
        with make(openai.OpenAI, home_url) as plain:
            client = retrying(
                plain, base_urls=[f"{spare_url}/v1"], attempts=9, wait=no_wait, deadline_s=20
            )
            with pytest.raises(openai.InternalServerError):
                chat(client)
    assert (len(home.arrived), len(spare.arrived)) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "later"),
    [(failure(500), "spare"), ([CUT], "spare"), (failure(429), "home")],
)
def test_later_calls_go_where_the_last_one_was_answered_but_for_a_busy_home(
    answer: Answer, later: str
) -> None:
    with two([answer, OK], [OK, OK]) as ((home, spare), (home_url, spare_url)):
        with make(openai.OpenAI, home_url) as plain:
            client = retrying(plain, base_urls=[f"{spare_url}/v1"], cooldown_s=3600)
            chat(client, "one")
            # Copies share what is known.
            chat(client.with_options(timeout=9), "two")
    assert (len(home.arrived), len(spare.arrived)) == ((1, 2) if later == "spare" else (2, 1))


def test_a_home_that_has_cooled_down_is_tried_first_again() -> None:
    with two([failure(500), OK], [OK]) as ((home, spare), (home_url, spare_url)):
        with make(openai.OpenAI, home_url) as plain:
            client = retrying(plain, base_urls=[f"{spare_url}/v1"], cooldown_s=0)
            chat(client, "one")
            chat(client, "two")
    assert (len(home.arrived), len(spare.arrived)) == (2, 1)


def test_a_home_that_answers_again_before_it_has_cooled_down_is_home_again() -> None:
    with two([failure(500), OK, OK], [failure(429)]) as ((home, spare), (home_url, spare_url)):
        with make(openai.OpenAI, home_url) as plain:
            client = retrying(plain, base_urls=[f"{spare_url}/v1"], cooldown_s=3600, wait=no_wait)
            chat(client, "one")
            chat(client, "two")
    assert (len(home.arrived), len(spare.arrived)) == (3, 1)


def test_threads_share_what_is_known() -> None:
    with two([failure(500)], [OK] * 9) as ((home, spare), (home_url, spare_url)):
        with make(openai.OpenAI, home_url) as plain:
            client = retrying(plain, base_urls=[f"{spare_url}/v1"])
            chat(client)
            threads = [threading.Thread(target=chat, args=(client, str(i))) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert (len(home.arrived), len(spare.arrived)) == (1, 9)


def test_each_server_is_sent_its_own_affinity_token_and_no_others() -> None:
    home, spare = (Recorder(answer_headers={"X-Agent-Affinity": token}) for token in TOKENS)
    with serving(home) as home_url, serving(spare) as spare_url, tenuto.run():
        with make(openai.OpenAI, home_url) as plain:
            client = retrying(plain, base_urls=[f"{spare_url}/v1"], cooldown_s=0)
            for i, failing in enumerate((None, home, home, None)):
                if failing is not None:
                    failing.script = [500]
                chat(client, str(i))
    assert [one.headers.get("x-agent-affinity") for one in home.arrived] == [
        *(None, TOKENS[0], TOKENS[0], TOKENS[0])
    ]
    assert [one.headers.get("x-agent-affinity") for one in spare.arrived] == [None, TOKENS[1]]
    ids = {one.headers["x-session-id"] for one in (*home.arrived, *spare.arrived)}
    assert len(ids) == 1


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_a_stream_that_fails_before_its_first_item_goes_to_the_next_url(ask: Any) -> None:
    whole = streamed(*chat_chunks("a", "b"))
    with two([streamed(end=CUT)], [whole]) as ((home, spare), (home_url, spare_url)):
        items = ask(home_url, {"stream": True}, base_urls=[f"{spare_url}/v1"])
    assert len(items) == 2
    assert (len(home.arrived), len(spare.arrived)) == (1, 1)


def test_a_call_on_what_a_server_keeps_stays_with_it() -> None:
    with two([failure(503)] * 2, []) as ((home, spare), (home_url, spare_url)):
        with make(openai.OpenAI, home_url) as plain:
            client = retrying(plain, base_urls=[f"{spare_url}/v1"], attempts=2, wait=no_wait)
            with pytest.raises(openai.InternalServerError):
                client.responses.create(model="m", input="hi", previous_response_id="r")
    assert (len(home.arrived), len(spare.arrived)) == (2, 0)


def test_routes_of_things_kept_on_one_server_go_to_the_clients_own_url_only() -> None:
    with two([failure(500), failure(500), found({"id": "f"})], [OK]) as (
        (home, spare),
        (home_url, spare_url),
    ):
        with make(openai.OpenAI, home_url) as plain:
            client = retrying(plain, base_urls=[f"{spare_url}/v1"], attempts=2, wait=no_wait)
            chat(client)
            client.files.retrieve("f")
    assert [one.path for one in home.arrived] == ["/v1/chat/completions", *["/v1/files/f"] * 2]
    assert [one.path for one in spare.arrived] == ["/v1/chat/completions"]


def test_a_copy_for_another_url_does_not_fail_over_to_the_list() -> None:
    with (
        two([], []) as ((home, spare), (home_url, spare_url)),
        scripted(*[failure(500)] * 3) as (other, other_url),
    ):
        with make(openai.OpenAI, home_url) as plain:
            client = retrying(plain, base_urls=[f"{spare_url}/v1"], wait=no_wait)
            elsewhere = client.with_options(base_url=f"{other_url}/v1", api_key="theirs")
            with pytest.raises(openai.InternalServerError):
                chat(elsewhere)
    assert (len(home.arrived), len(spare.arrived), len(other.arrived)) == (0, 0, 3)


def test_a_key_that_is_changed_later_is_the_one_that_is_sent() -> None:
    with two([failure(500)], [OK]) as ((home, spare), (home_url, spare_url)):
        with make(openai.OpenAI, home_url) as plain:
            client = retrying(plain, base_urls=[f"{spare_url}/v1"])
            client.api_key = "later"
            chat(client)
    sent = {one.headers["authorization"] for one in (*home.arrived, *spare.arrived)}
    assert sent == {"Bearer later"}


AZURE_CALLS = {
    "chat": (chat, "/openai/deployments/m/chat/completions", OK),
    "responses": (
        lambda c: c.responses.create(model="m", input="hi"),
        "/openai/responses",
        found(RESPONSE),
    ),
    "models": (lambda c: c.models.list(), "/openai/models", found({"data": []})),
}


@pytest.mark.parametrize("deployment", [None, "m"])
@pytest.mark.parametrize("ending", ["", "/", "/openai"])
@pytest.mark.parametrize("http", HTTP)
@pytest.mark.parametrize("name", AZURE_CALLS)
def test_an_azure_call_keeps_its_path_on_another_endpoint(
    name: str, http: str, ending: str, deployment: str | None
) -> None:
    call, path, answer = AZURE_CALLS[name]
    with two([failure(500)], [answer]) as ((home, spare), (home_url, spare_url)):
        more = {} if deployment is None else {"azure_deployment": deployment}
        with make(openai.AzureOpenAI, home_url, http) as made:
            plain = openai.AzureOpenAI(
                azure_endpoint=home_url,
                api_key="k",
                api_version="2024-10-21",
                http_client=made._client,
                **more,
            )
            call(retrying(plain, base_urls=[spare_url + ending]))
    assert [one.path for one in home.arrived] == [path]
    assert [one.path for one in spare.arrived] == [path]
    assert spare.arrived[0].headers["api-key"] == "k"


@pytest.mark.parametrize("http", HTTP)
@pytest.mark.anyio
async def test_an_async_azure_call_keeps_its_path_on_another_endpoint(http: str) -> None:
    with two([failure(500)], [OK]) as ((home, spare), (home_url, spare_url)):
        async with make(openai.AsyncAzureOpenAI, home_url, http) as plain:
            client = retrying(plain, base_urls=[spare_url])
            await client.chat.completions.create(model="m", messages=USER)
    assert home.arrived[0].path == spare.arrived[0].path
