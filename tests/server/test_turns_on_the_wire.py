"""What a wrapped client says of its turns, and what it tells a server after an answer."""

from __future__ import annotations

import json
import logging
from typing import Any

import openai
import pytest

import tenuto
from tenuto import process
from tests.loopback import CHAT, RESPONSE, Arrived, Recorder, eventually, read_body, serving

USER = {"role": "user", "content": "Why do the tests fail?"}
SERVED = {"X-Agent-Served": "rank=1, home=1, why=first", "X-Agent-Affinity": "abcd1234.1"}
TOOL_CALL = {"id": "1", "type": "function", "function": {"name": "pytest", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "1 failed" * 40}


def chat_answer(finish: str = "stop", tools: bool = False, usage: bool = True) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "hi"}
    if tools:
        message = {**CALLED, "tool_calls": [TOOL_CALL]}
    answer = {**CHAT, "choices": [{"index": 0, "finish_reason": finish, "message": message}]}
    if usage:
        answer["usage"] = {"prompt_tokens": 1000, "completion_tokens": 30, "total_tokens": 1030}
    return answer


class Server:
    """Answers model calls from a list, then with a plain text, and takes news."""

    def __init__(self, *answers: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self.answers = list(answers)
        self.headers = SERVED if headers is None else headers
        self.arrived: list[Arrived] = []
        self.news: list[tuple[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw = await read_body(receive)
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        said: list[tuple[bytes, bytes]] = []
        if "/tenuto/" in scope["path"]:
            self.news.append((scope["path"], json.loads(raw)))
            status, payload = 204, b""
        else:
            self.arrived.append(Arrived(scope["path"], headers, json.loads(raw)))
            answer = self.answers.pop(0) if self.answers else chat_answer()
            status, payload = answer.get("status_code", 200), json.dumps(answer).encode()
            said = [(k.encode(), v.encode()) for k, v in self.headers.items()]
            said.append((b"content-type", b"application/json"))
        await send({"type": "http.response.start", "status": status, "headers": said})
        await send({"type": "http.response.body", "body": payload})

    @property
    def turns(self) -> list[dict[str, str]]:
        return [one.turn for one in self.arrived]


def client_of(url: str, **more: Any) -> Any:
    return tenuto.wrap(openai.OpenAI(base_url=f"{url}/v1", api_key="k", **more))


def test_append_and_prefix_come_from_the_last_answers_usage() -> None:
    server = Server()
    with serving(server) as url, client_of(url) as client, tenuto.run():
        start = [{"role": "user", "content": "x" * 4000}]
        client.chat.completions.create(model="m", messages=start)
        more = [*start, {"role": "assistant", "content": "hi"}, {**RESULT, "content": "y" * 4000}]
        client.chat.completions.create(model="m", messages=more)
    first, second = server.turns
    assert "append" not in first
    assert second["prefix"] == "1030"
    assert int(second["append"]) == pytest.approx(1000, rel=0.1)
    assert second["phase"] == "tool"
    assert "keep" not in second


def test_a_streams_usage_counts_and_a_stream_without_it_says_nothing() -> None:
    recorder = Recorder()
    with serving(recorder) as url, client_of(url) as client, tenuto.run():
        for text in ("one", "two"):
            said = [{"role": "user", "content": text}]
            list(client.chat.completions.create(model="m", messages=said, stream=True))
    assert "prefix" not in recorder.arrived[1].turn


def test_after_a_compaction_keep_says_how_much_is_unchanged() -> None:
    server = Server()
    system = {"role": "system", "content": "s" * 2000}
    with serving(server) as url, client_of(url) as client, tenuto.run():
        long = [system, USER, {"role": "assistant", "content": "a" * 2000}, USER, USER]
        client.chat.completions.create(model="m", messages=long)
        client.chat.completions.create(model="m", messages=[system, USER])
    turn = server.turns[1]
    assert turn["phase"] == "compact"
    assert int(turn["keep"]) == pytest.approx(500, rel=0.2)


@pytest.mark.parametrize("kind", ["raw", "streaming raw"])
def test_raw_answers_are_read_too(kind: str) -> None:
    server = Server(chat_answer("tool_calls", tools=True))
    with serving(server) as url, client_of(url) as client, tenuto.run():
        calls = client.chat.completions
        if kind == "raw":
            calls.with_raw_response.create(model="m", messages=[USER])
        else:
            with calls.with_streaming_response.create(model="m", messages=[USER]) as answer:
                answer.parse()
        calls.create(model="m", messages=[USER, CALLED, RESULT])
    if kind == "raw":
        assert server.turns[1]["prefix"] == "1030"
    assert server.turns[1]["n"] == "1"


def test_a_responses_usage_and_calls_are_read() -> None:
    call = {"type": "function_call", "id": "f", "call_id": "1", "name": "ls", "arguments": "{}"}
    usage = {"input_tokens": 700, "output_tokens": 9, "total_tokens": 709}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {}}
    server = Server({**RESPONSE, "output": [call], "usage": {**usage, **details}})
    server.answers.append(dict(RESPONSE))
    with serving(server) as url, client_of(url) as client, tenuto.run():
        client.responses.create(model="m", input="hi")
        said = [{"type": "function_call_output", "call_id": "1", "output": "x"}]
        client.responses.create(model="m", input=said, previous_response_id="r")
    turn = server.turns[1]
    assert turn["prefix"] == "709"
    assert turn["phase"] == "tool"


def test_what_a_program_expects_travels_with_the_turn() -> None:
    server = Server()
    with serving(server) as url, client_of(url) as client, tenuto.run() as run:
        with run.agent("planner", expect=tenuto.tool("pytest", seconds=40), ttl=300, prio=3):
            client.chat.completions.create(model="m", messages=[USER])
            with tenuto.turn(phase="user", at=[-2], expect=tenuto.Expectation("end")):
                client.chat.completions.create(model="m", messages=[USER, CALLED, RESULT])
    first, second = server.turns
    assert (first["next"], first["gap"], first["ttl"], first["prio"]) == (
        "tool",
        "40000",
        "300",
        "3",
    )
    assert (second["next"], second["phase"], second["at"]) == ("end", "user", "(-2)")
    assert (second["ttl"], second["prio"]) == ("300", "3")
    assert "gap" not in second


@pytest.mark.parametrize(
    "said",
    [{"prio": 9}, {"ttl": -1}, {"phase": "lunch"}, {"at": [1, 2, 3, 4, 5]}, {"expect": "tool"}],
)
def test_what_cannot_be_sent_is_refused_where_it_is_said(said: dict[str, Any]) -> None:
    with pytest.raises(tenuto.ConfigError):
        tenuto.turn(**said)


def test_an_agents_own_waits_are_expected_again() -> None:
    server = Server(*[chat_answer("tool_calls", tools=True) for _ in range(8)])
    with serving(server) as url, client_of(url) as client, tenuto.run() as run:
        for instance in range(2):
            with run.agent("planner", instance=instance):
                messages: list[Any] = [USER]
                for _ in range(4):
                    client.chat.completions.create(model="m", messages=messages)
                    messages = [*messages, CALLED, RESULT]
                assert process.BACKGROUND.flush(5)
    assert "next" not in server.turns[0]
    later = server.turns[-1]
    assert later["next"] == "tool"
    assert int(later["gap"]) < 5000


def test_the_server_is_told_which_wait_follows_and_that_a_session_has_ended() -> None:
    server = Server(chat_answer("tool_calls", tools=True), chat_answer())
    with serving(server) as url, client_of(url) as client:
        with tenuto.run() as run:
            with run.agent("planner", ttl=60) as planner:
                client.chat.completions.create(model="m", messages=[USER])
                assert process.BACKGROUND.flush(5)
                client.chat.completions.create(model="m", messages=[USER, CALLED, RESULT])
        assert process.BACKGROUND.flush(5)
        assert eventually(lambda: server.news[-1][0] == "/tenuto/sessions/end")
    told = {path: body for path, body in server.news}
    assert server.news[0] == (
        "/tenuto/turns",
        [{"session": planner.session_id, "next": "tool", "ttl": 60}],
    )
    assert told["/tenuto/sessions/end"] == {"sessions": [planner.session_id]}


def test_an_ended_session_travels_with_the_next_request_to_that_server_alone() -> None:
    one, other = Server(), Server()
    with serving(one) as url, serving(other) as second, client_of(url) as client:
        with tenuto.run("ticket-4711") as run:
            with run.agent("search", ends=True) as search:
                client.chat.completions.create(model="m", messages=[USER])
            with run.agent("planner"), client_of(second) as elsewhere:
                elsewhere.chat.completions.create(model="m", messages=[USER])
                client.chat.completions.create(model="m", messages=[USER, USER])
                client.chat.completions.create(model="m", messages=[USER, USER, USER])
    assert one.turns[1]["drop"] == f'"{search.session_id}"'
    assert "drop" not in one.turns[2]
    assert "drop" not in other.turns[0]


def test_a_run_with_a_name_goes_on_until_it_is_said_to_have_ended() -> None:
    server = Server()
    with serving(server) as url, client_of(url) as client:
        for text in ("one", "two"):
            with tenuto.run("ticket-4711") as run, run.agent("planner") as planner:
                said = [{"role": "user", "content": text}]
                client.chat.completions.create(model="m", messages=said)
        assert process.BACKGROUND.flush(5)
        assert [path for path, _ in server.news if path.endswith("end")] == []
        run.end()
        assert process.BACKGROUND.flush(5)
    assert server.news[-1] == ("/tenuto/sessions/end", {"sessions": [planner.session_id]})


def test_a_server_that_does_not_speak_the_protocol_is_told_nothing() -> None:
    server = Server(chat_answer("tool_calls", tools=True), headers={})
    with serving(server) as url, client_of(url) as client, tenuto.run():
        client.chat.completions.create(model="m", messages=[USER])
    assert process.BACKGROUND.flush(5)
    assert server.news == []


def test_a_stream_that_ends_without_an_end_is_reported_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Cut(Recorder):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                return
            chunk = {**CHAT, "object": "chat.completion.chunk"}
            chunk["choices"] = [{"index": 0, "finish_reason": None, "delta": {"content": "hal"}}]
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            body = f"data: {json.dumps(chunk)}\n\n".encode()
            await send({"type": "http.response.body", "body": body})

    with serving(Cut()) as url, client_of(url) as client, tenuto.run(), caplog.at_level("WARNING"):
        for text in ("one", "two"):
            said = [{"role": "user", "content": text}]
            items = list(client.chat.completions.create(model="m", messages=said, stream=True))
            assert items[0].choices[0].delta.content == "hal"
    assert process.PASSED_OVER["stream without an end"] == 2
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(warnings) == 1


def test_all_attempts_of_a_turn_say_the_same_of_it() -> None:
    failing = {"status_code": 500, "error": {"message": "scripted"}}
    server = Server(chat_answer("tool_calls", tools=True), failing, failing)
    server.headers = {**SERVED, "retry-after-ms": "1"}
    with serving(server) as url, client_of(url) as client, tenuto.run() as run:
        with run.agent("search", ends=True):
            client.chat.completions.create(model="m", messages=[USER])
        with run.agent("planner", expect=tenuto.tool("pytest", seconds=4)):
            client.chat.completions.create(model="m", messages=[USER, CALLED, RESULT])
    first, *further = server.turns[1:]
    assert first.pop("drop")
    said = [{**one, "attempt": "0"} for one in further]
    assert said == [first, first]
    assert [one["attempt"] for one in further] == ["1", "2"]


def test_a_server_that_takes_no_news_costs_nobody_a_call() -> None:
    class Deaf(Server):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if "/tenuto/" not in scope.get("path", ""):
                await super().__call__(scope, receive, send)
                return
            self.news.append((scope["path"], None))
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    server = Deaf(*[chat_answer("tool_calls", tools=True) for _ in range(6)])
    with serving(server) as url, client_of(url) as client, tenuto.run():
        for turn in range(6):
            said = [{"role": "user", "content": str(turn)}]
            client.chat.completions.create(model="m", messages=said)
            assert process.BACKGROUND.flush(5)
    assert len(server.arrived) == 6
    # A server that has refused three times in a row is left alone.
    assert len(server.news) == 3
    assert process.NEWS.counts["sent"] == 0
    assert process.NEWS.counts["dropped"] > 0


def test_one_request_id_stands_for_a_call_over_openais_retries() -> None:
    recorder = Recorder(script=[500, 500], answer_headers={"retry-after-ms": "1"})
    with serving(recorder) as url, client_of(url) as client, tenuto.run():
        client.chat.completions.create(model="m", messages=[USER])
        client.chat.completions.create(model="m", messages=[USER, USER])
        own = {"X-Request-Id": "mine"}
        client.chat.completions.create(model="m", messages=[USER], extra_headers=own)
    ids = [one.headers["x-request-id"] for one in recorder.arrived]
    assert len(set(ids[:3])) == 1
    assert len({*ids}) == 3
    assert ids[-1] == "mine"


def test_a_body_field_that_a_server_refuses_costs_no_call_and_is_sent_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusal = {
        "status_code": 400,
        "error": {"message": "Unrecognized request argument supplied: prompt_cache_key"},
    }
    server = Server(refusal)
    url_of = client_of
    with serving(server) as url, caplog.at_level("WARNING"):
        client = url_of(url, max_retries=0)
        tenuto.wrap(client, dialect="openai")
        with client, tenuto.run() as run, run.agent("planner") as planner:
            client.chat.completions.create(model="m", messages=[USER])
            client.chat.completions.create(model="m", messages=[USER, USER])
    keys = [one.body.get("prompt_cache_key") for one in server.arrived]
    assert keys == [planner.session_id, None, None]
    assert [one.markers for one in server.arrived] == [{}, {}, {}]
    assert len([one for one in caplog.records if "prompt_cache_key" in one.getMessage()]) == 1


@pytest.mark.anyio
async def test_an_async_call_survives_a_refused_body_field_too() -> None:
    refusal = {"status_code": 400, "error": {"message": "unknown field `prompt_cache_key`"}}
    server = Server(refusal)
    with serving(server) as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        tenuto.wrap(client, dialect="openai")
        async with client, tenuto.run():
            await client.chat.completions.create(model="m", messages=[USER])
    assert ["prompt_cache_key" in one.body for one in server.arrived] == [True, False]


def test_a_400_of_the_callers_own_making_is_the_callers() -> None:
    refusal = {"status_code": 400, "error": {"message": "max_tokens is too large"}}
    server = Server(refusal)
    with serving(server) as url:
        client = tenuto.wrap(
            openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0), dialect="openai"
        )
        with client, tenuto.run(), pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="m", messages=[USER])
    assert len(server.arrived) == 1


def test_a_callers_own_body_field_or_omit_stays() -> None:
    server = Server()
    with serving(server) as url:
        client = tenuto.wrap(openai.OpenAI(base_url=f"{url}/v1", api_key="k"), dialect="openai")
        with client, tenuto.run():
            create = client.chat.completions.create
            create(model="m", messages=[USER], prompt_cache_key="mine")
            create(model="m", messages=[USER, USER], extra_body={"prompt_cache_key": openai.omit})
            create(model="m", messages=[USER] * 3, extra_body={"prompt_cache_key": "also mine"})
    assert [one.body.get("prompt_cache_key") for one in server.arrived] == [
        "mine",
        None,
        "also mine",
    ]


@pytest.mark.parametrize("dialect", ["vllm-router-pd", "openai"])
def test_no_body_field_of_ours_follows_a_redirect_to_another_origin(dialect: str) -> None:
    target = Recorder()
    with serving(target) as there:
        source = Recorder(script=[f"{there}/v1/chat/completions"])
        with serving(source) as url:
            client = tenuto.wrap(openai.OpenAI(base_url=f"{url}/v1", api_key="k"), dialect=dialect)
            with client, tenuto.run():
                client.chat.completions.create(model="m", messages=[USER])
    assert set(source.arrived[0].body) > {"messages", "model"}
    assert set(target.arrived[0].body) == {"messages", "model"}
    assert target.arrived[0].markers == {}
