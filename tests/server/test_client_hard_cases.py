"""What a wrapped client does where two owners, tenants, calls or threads meet."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

import tenuto
from tenuto import process
from tenuto.answers import read_answer
from tenuto.servers import Servers
from tests.loopback import CHAT, Recorder, openai_http, serving
from tests.server.test_turns_on_the_wire import CALLED, RESULT, USER, Server, chat_answer, client_of


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_work_that_outlives_an_inner_run_is_in_no_run_at_all() -> None:
    async def later(client: Any, go: asyncio.Event) -> None:
        await go.wait()
        await client.chat.completions.create(model="m", messages=said("later"))

    async def main(url: str) -> None:
        go = asyncio.Event()
        async with tenuto.wrap(openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k")) as client:
            async with tenuto.run():
                async with tenuto.run() as inner, inner.agent("planner"):
                    task = asyncio.create_task(later(client, go))
                go.set()
                await task
                await client.chat.completions.create(model="m", messages=said("outer"))

    recorder = Recorder()
    with serving(recorder) as url:
        asyncio.run(main(url))
    late, outer = recorder.arrived
    assert late.markers == {}
    assert "x-session-id" in outer.headers


def test_calls_in_parallel_keep_what_is_said_of_their_turns_over_retries() -> None:
    failing = {"status_code": 500, "error": {"message": "scripted"}}
    server = Server(failing, failing)
    server.headers = {"retry-after-ms": "1"}
    with serving(server) as url, client_of(url) as client, tenuto.run() as run:
        scope = run.agent("planner", ttl=60)

        def call(text: str) -> None:
            with scope:
                client.chat.completions.create(model="m", messages=said(text))

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(call, ["one", "two"]))
    assert len(server.turns) == 4
    assert all(turn["ttl"] == "60" for turn in server.turns)
    assert all("phase" in turn for turn in server.turns)


def test_a_session_that_goes_on_after_its_end_is_not_said_to_have_ended() -> None:
    server = Server()
    with serving(server) as url, client_of(url) as client:
        run = tenuto.run("goes on")
        with run:
            client.chat.completions.create(model="m", messages=said("one"))
        run.end()
        with run:
            client.chat.completions.create(model="m", messages=said("two"))
    assert "drop" not in server.turns[1]


def test_an_agent_ends_with_its_last_scope_and_not_with_an_inner_one() -> None:
    server = Server()
    with serving(server) as url, client_of(url) as client, tenuto.run("nested ends") as run:
        outer, inner = (run.agent("planner", ends=True) for _ in range(2))
        with outer:
            with inner:
                client.chat.completions.create(model="m", messages=said("one"))
            client.chat.completions.create(model="m", messages=said("two"))
        client.chat.completions.create(model="m", messages=said("three"))
    assert ["drop" in turn for turn in server.turns] == [False, False, True]


def test_an_ended_session_is_named_under_its_own_credential_alone() -> None:
    server = Server()
    with serving(server) as url, tenuto.run("two tenants") as run:
        one = tenuto.wrap(openai.OpenAI(base_url=f"{url}/v1", api_key="tenant-1"))
        two = tenuto.wrap(openai.OpenAI(base_url=f"{url}/v1", api_key="tenant-2"))
        with one, two:
            with run.agent("search", ends=True):
                one.chat.completions.create(model="m", messages=[USER])
            two.chat.completions.create(model="m", messages=said("two"))
            one.chat.completions.create(model="m", messages=said("one"))
    assert ["drop" in turn for turn in server.turns] == [False, False, True]


def test_threads_that_take_ended_sessions_at_once_share_them() -> None:
    servers, account = Servers(), (("http", b"h"), None)
    taken: list[str] = []
    start = threading.Barrier(8)

    def work(i: int) -> None:
        start.wait()
        for k in range(300):
            servers.owe(account, f"{i}-{k}")
            taken.extend(servers.take_ended(account, 2))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken.extend(servers.take_ended(account, 10_000))
    assert len(taken) == len(set(taken)) == 2400


@pytest.mark.parametrize("dialect", ["vllm-router-pd", "production-stack", "openai"])
def test_a_session_that_the_http_client_names_keeps_ours_out_of_the_body_too(dialect: str) -> None:
    recorder = Recorder()
    http = openai_http.Client(headers={"X-Session-ID": "mine-4711"})
    with serving(recorder) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", http_client=http)
        with tenuto.wrap(client, dialect=dialect), tenuto.run() as run:
            client.chat.completions.create(model="m", messages=[USER])
    (arrived,) = recorder.arrived
    assert arrived.headers["x-session-id"] == "mine-4711"
    if dialect != "openai":
        assert run.session_id not in str(arrived.body)


def test_a_session_that_the_callers_body_names_keeps_all_of_ours_away() -> None:
    recorder = Recorder()
    with serving(recorder) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k")
        with tenuto.wrap(client, dialect="vllm-router-pd"), tenuto.run() as run:
            theirs = {"session_id": "mine-4711"}
            client.chat.completions.create(model="m", messages=[USER], extra_body=theirs)
    (arrived,) = recorder.arrived
    assert arrived.markers == {}
    assert run.session_id not in str(arrived.body)
    assert arrived.body["session_id"] == "mine-4711"


def test_a_dialect_given_after_the_first_call_holds_from_then_on() -> None:
    recorder = Recorder()
    with serving(recorder) as url, client_of(url) as client, tenuto.run():
        client.chat.completions.create(model="m", messages=said("one"))
        tenuto.wrap(client, dialect="silent")
        client.chat.completions.create(model="m", messages=said("two"))
    assert [bool(one.markers) for one in recorder.arrived] == [True, False]


def test_news_goes_with_the_credential_of_the_call_that_it_is_about() -> None:
    class Keyed(Server):
        keys: list[str]

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if "/tenuto/" in scope.get("path", ""):
                self.keys.append(dict(scope["headers"])[b"authorization"].decode())
            await super().__call__(scope, receive, send)

    server = Keyed(*[chat_answer("tool_calls", tools=True) for _ in range(2)])
    server.keys = []
    with serving(server) as url, tenuto.run("renewed key"):
        for key in ("old", "new"):
            with tenuto.wrap(openai.OpenAI(base_url=f"{url}/v1", api_key=key)) as client:
                client.chat.completions.create(model="m", messages=said(key))
            assert process.BACKGROUND.flush(5)
    assert server.keys == ["Bearer old", "Bearer new"]


def test_a_server_behind_a_transport_of_the_programs_own_is_told_nothing() -> None:
    stranger = Server()
    answer = chat_answer("tool_calls", tools=True)
    headers = {"X-Agent-Served": "rank=0", "X-Agent-Affinity": "abcd1234.0"}
    transport = openai_http.MockTransport(
        lambda _: openai_http.Response(200, headers=headers, json=answer)
    )
    with serving(stranger) as url, tenuto.run() as run:
        http = openai_http.Client(transport=transport)
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", http_client=http)
        with tenuto.wrap(client), run.agent("planner", ends=True):
            client.chat.completions.create(model="m", messages=[USER])
            client.chat.completions.create(model="m", messages=[USER, CALLED, RESULT])
        assert process.BACKGROUND.flush(5)
    assert stranger.news == []
    assert stranger.arrived == []


def test_news_shows_no_id_in_any_log(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(chat_answer("tool_calls", tools=True))
    caplog.set_level("INFO")
    with serving(server) as url:
        with client_of(url) as client, tenuto.run() as run:
            client.chat.completions.create(model="m", messages=[USER])
        assert process.BACKGROUND.flush(5)
    assert server.news
    assert run.session_id not in caplog.text


def test_a_name_that_a_server_says_in_each_chunk_is_one_tool() -> None:
    call = {"index": 0, "function": {"name": "ls", "arguments": "{"}}
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}
    answer = read_answer(chunk)
    for _ in range(1000):
        answer = read_answer(chunk, answer)
    assert answer.tools == ("ls",)


def test_a_response_that_is_still_being_made_is_followed_by_nothing_yet() -> None:
    made = {"output": [], "status": "in_progress", "usage": None}
    assert read_answer(made).next is None
    assert read_answer({**made, "status": "completed"}).next == "user"


def test_a_count_beyond_all_bounds_costs_no_marker() -> None:
    usage = {"prompt_tokens": 10**400, "completion_tokens": 1, "total_tokens": 1}
    server = Server({**CHAT, "usage": usage})
    with serving(server) as url, client_of(url) as client, tenuto.run():
        client.chat.completions.create(model="m", messages=[USER])
        client.chat.completions.create(model="m", messages=[USER, USER])
    assert server.turns[1]["n"] == "1"


def test_headers_and_diagnose_take_a_clients_own_url_and_refuse_what_is_none() -> None:
    client = tenuto.wrap(openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="k"))
    with client, tenuto.run() as run:
        assert tenuto.headers(client.base_url)["X-Session-ID"] == run.session_id
        assert tenuto.diagnose(base_url=client.base_url).dialect == "vllm"
        assert set(tenuto.headers()) == {"X-Session-ID", "X-Session-Affinity"}
        with pytest.raises(tenuto.ConfigError):
            tenuto.headers("http://[::1")
        with pytest.raises(tenuto.ConfigError, match="indices"):
            tenuto.turn(at=3)  # type: ignore[arg-type]
        assert tenuto.diagnose(object()).problems


def test_diagnose_lists_what_is_sent_and_nothing_when_nothing_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = Recorder()
    with serving(recorder) as url, client_of(url) as client, tenuto.run() as run:
        with run.agent("planner"):
            told = tenuto.diagnose(client).headers
            client.chat.completions.create(model="m", messages=[USER])
            monkeypatch.setenv("TENUTO_DISABLED", "1")
            process.settings.cache_clear()
            try:
                disabled = tenuto.diagnose(client)
            finally:
                monkeypatch.undo()
                process.settings.cache_clear()
    sent = {*recorder.arrived[0].markers, "x-request-id"}
    assert {name.lower() for name in told} == sent
    assert disabled.headers == {}
    assert str(disabled).startswith("problem   TENUTO_DISABLED")
