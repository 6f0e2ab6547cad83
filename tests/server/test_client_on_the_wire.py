"""What a wrapped client sends, seen by a real server on loopback."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pydantic
import pytest

import tenuto
from tests.loopback import Recorder, serving

USER = [{"role": "user", "content": "hi"}]
AFTER_TOOL = [
    *USER,
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": "a.txt"},
]
AT_ONCE = {"retry-after-ms": "1"}
KEYS = ("x-session-id", "x-parent-session-id", "x-agent-run-id")


class Word(pydantic.BaseModel):
    word: str


def make(kind: type[Any], url: str, **more: Any) -> Any:
    if "Azure" in kind.__name__:
        client = kind(azure_endpoint=url, api_key="k", api_version="2024-10-21", **more)
    else:
        client = kind(base_url=f"{url}/v1", api_key="k", **more)
    return tenuto.wrap(client)


def streamed(client: Any) -> Any:
    with client.chat.completions.stream(model="m", messages=USER) as stream:
        return stream.get_final_completion()


def streamed_raw(client: Any) -> Any:
    with client.chat.completions.with_streaming_response.create(model="m", messages=USER) as answer:
        return answer.read()


def streamed_response(client: Any) -> Any:
    with client.responses.stream(model="m", input="hi") as stream:
        return stream.get_final_response()


SYNC_CALLS: dict[str, Callable[[Any], Any]] = {
    "create": lambda c: c.chat.completions.create(model="m", messages=USER),
    "stream=True": lambda c: list(c.chat.completions.create(model="m", messages=USER, stream=True)),
    "stream()": streamed,
    "parse": lambda c: c.chat.completions.parse(model="m", messages=USER, response_format=Word),
    "raw": lambda c: c.chat.completions.with_raw_response.create(model="m", messages=USER).parse(),
    "streaming raw": streamed_raw,
    "responses": lambda c: c.responses.create(model="m", input="hi"),
    "responses.stream()": streamed_response,
    "responses.parse": lambda c: c.responses.parse(model="m", input="hi", text_format=Word),
    "completions": lambda c: c.completions.create(model="m", prompt="hi"),
    "embeddings": lambda c: c.embeddings.create(model="m", input="hi", encoding_format="float"),
    "with_options": lambda c: c.with_options(timeout=9).chat.completions.create(
        model="m", messages=USER
    ),
    "copy": lambda c: c.copy(timeout=9).chat.completions.create(model="m", messages=USER),
}


async def astreamed(client: Any) -> Any:
    async with client.chat.completions.stream(model="m", messages=USER) as stream:
        return await stream.get_final_completion()


async def astream_true(client: Any) -> Any:
    stream = await client.chat.completions.create(model="m", messages=USER, stream=True)
    return [chunk async for chunk in stream]


async def astreamed_raw(client: Any) -> Any:
    calls = client.chat.completions.with_streaming_response
    async with calls.create(model="m", messages=USER) as answer:
        return await answer.read()


async def astreamed_response(client: Any) -> Any:
    async with client.responses.stream(model="m", input="hi") as stream:
        return await stream.get_final_response()


ASYNC_CALLS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    **{
        name: SYNC_CALLS[name]
        for name in (
            "create",
            "parse",
            "responses",
            "responses.parse",
            "completions",
            "embeddings",
            "with_options",
            "copy",
        )
    },
    "raw": lambda c: c.chat.completions.with_raw_response.create(model="m", messages=USER),
    "stream=True": astream_true,
    "stream()": astreamed,
    "streaming raw": astreamed_raw,
    "responses.stream()": astreamed_response,
}


def check_one_call_tried_three_times(recorder: Recorder, *, turn: bool) -> None:
    first, second, third = recorder.arrived
    keys = {key: first.headers[key] for key in KEYS}
    assert all({key: one.headers[key] for key in KEYS} == keys for one in (second, third))
    if turn:
        assert [one.turn for one in recorder.arrived] == [
            {"n": "0", "attempt": str(attempt), "phase": "start"} for attempt in range(3)
        ]
    else:
        assert all("x-agent-turn" not in one.headers for one in recorder.arrived)


@pytest.mark.parametrize("name", SYNC_CALLS)
@pytest.mark.parametrize("kind", [openai.OpenAI, openai.AzureOpenAI])
def test_sync_keys_are_equal_over_openais_own_retries(kind: type[Any], name: str) -> None:
    recorder = Recorder(script=[500, 500], answer_headers=AT_ONCE)
    with serving(recorder) as url, make(kind, url) as client:
        with tenuto.run() as run, run.agent("planner"):
            SYNC_CALLS[name](client)
    check_one_call_tried_three_times(recorder, turn=name != "embeddings")


@pytest.mark.parametrize("name", ASYNC_CALLS)
@pytest.mark.parametrize("kind", [openai.AsyncOpenAI, openai.AsyncAzureOpenAI])
@pytest.mark.anyio
async def test_async_keys_are_equal_over_openais_own_retries(kind: type[Any], name: str) -> None:
    recorder = Recorder(script=[500, 500], answer_headers=AT_ONCE)
    with serving(recorder) as url:
        async with make(kind, url) as client:
            async with tenuto.run() as run, run.agent("planner"):
                await ASYNC_CALLS[name](client)
    check_one_call_tried_three_times(recorder, turn=name != "embeddings")


def test_the_keys_are_equal_over_a_tool_call_and_the_turn_advances() -> None:
    recorder = Recorder()
    with serving(recorder) as url, make(openai.OpenAI, url) as client, tenuto.run() as run:
        with run.agent("tool-caller"):
            client.chat.completions.create(model="m", messages=USER)
        with run.agent("tool-caller"):
            client.chat.completions.create(model="m", messages=AFTER_TOOL)
    asked, resumed = recorder.arrived
    assert {key: asked.headers[key] for key in KEYS} == {key: resumed.headers[key] for key in KEYS}
    assert asked.turn == {"n": "0", "attempt": "0", "phase": "start"}
    assert resumed.turn == {"n": "1", "attempt": "0", "phase": "tool"}


def test_the_same_prompt_again_is_the_same_turn_tried_again() -> None:
    recorder = Recorder(script=[400])
    with serving(recorder) as url, make(openai.OpenAI, url) as client, tenuto.run() as run:
        with run.agent("planner"), pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="m", messages=USER)
        with run.agent("planner"):
            client.chat.completions.create(model="fallback", messages=[dict(USER[0])])
            client.chat.completions.create(model="m", messages=AFTER_TOOL)
    assert [one.turn["n"] for one in recorder.arrived] == ["0", "0", "1"]
    assert [one.turn["attempt"] for one in recorder.arrived] == ["0", "1", "0"]


def test_a_run_entered_again_by_its_name_goes_on_where_it_was() -> None:
    recorder = Recorder(answer_headers={"X-Agent-Affinity": "abcd1234.1"})
    with serving(recorder) as url, make(openai.OpenAI, url) as client:
        for messages in (USER, AFTER_TOOL):
            with tenuto.run("ticket-a-run-entered-again") as run, run.agent("planner"):
                client.chat.completions.create(model="m", messages=messages)
    first, second = recorder.arrived
    assert first.headers["x-session-id"] == second.headers["x-session-id"]
    assert second.turn["n"] == "1"
    assert second.headers["x-agent-affinity"] == "abcd1234.1"


@pytest.mark.anyio
async def test_gathered_sessions_keep_their_own_keys_over_every_turn() -> None:
    recorder = Recorder(script=[500, 500, 500], answer_headers=AT_ONCE)

    async def work(run: tenuto.Run, name: str) -> str:
        async with run.agent(name) as agent:
            for turns in range(1, 5):
                messages = USER * turns + [{"role": "user", "content": name}]
                await client.chat.completions.create(model="m", messages=messages)
            return agent.session_id

    with serving(recorder) as url:
        async with make(openai.AsyncOpenAI, url) as client, tenuto.run() as run:
            ids = await asyncio.gather(*(work(run, name) for name in ("left", "right")))
    assert len(set(ids)) == 2
    for one in recorder.arrived:
        sender = one.body["messages"][-1]["content"]
        assert one.headers["x-session-id"] == ids[("left", "right").index(sender)]
        assert one.turn["n"] == str(len(one.body["messages"]) - 2)


def test_planner_tool_caller_and_verifier_are_three_sessions_of_one_run() -> None:
    recorder = Recorder()
    with serving(recorder) as url, make(openai.OpenAI, url) as client, tenuto.run() as run:
        client.chat.completions.create(model="m", messages=USER)
        for name in ("planner", "tool-caller", "verifier"):
            with run.agent(name):
                client.chat.completions.create(model="m", messages=USER)
    root, *agents = recorder.arrived
    assert len({one.headers["x-session-id"] for one in recorder.arrived}) == 4
    assert {one.headers["x-agent-run-id"] for one in recorder.arrived} == {run.run_id}
    assert "x-parent-session-id" not in root.headers
    assert {one.headers["x-parent-session-id"] for one in agents} == {root.headers["x-session-id"]}


def test_a_call_outside_every_run_goes_out_unmarked_and_works() -> None:
    recorder = Recorder()
    with serving(recorder) as url, make(openai.OpenAI, url) as client:
        with tenuto.run() as run, run.agent("planner"):
            pass
        answer = client.chat.completions.create(model="m", messages=USER)
    assert answer.choices[0].finish_reason == "stop"
    assert recorder.arrived[0].markers == {}


@pytest.mark.parametrize("decided", ["theirs-12345678", openai.Omit()])
def test_a_callers_own_session_header_or_omit_wins_over_all_of_ours(decided: Any) -> None:
    recorder = Recorder()
    with serving(recorder) as url, make(openai.OpenAI, url) as client, tenuto.run():
        client.chat.completions.create(
            model="m", messages=USER, extra_headers={"X-Session-ID": decided}
        )
    theirs = {"x-session-id": decided} if isinstance(decided, str) else {}
    assert recorder.arrived[0].markers == theirs


def test_a_clients_own_default_header_wins_over_ours() -> None:
    recorder = Recorder()
    headers = {"x-agent-run-id": "their-run-id"}
    with serving(recorder) as url, make(openai.OpenAI, url, default_headers=headers) as client:
        with tenuto.run() as run:
            client.chat.completions.create(model="m", messages=USER)
    assert recorder.arrived[0].headers["x-agent-run-id"] == "their-run-id"
    assert recorder.arrived[0].headers["x-session-id"] == run.session_id


def test_the_affinity_token_goes_back_to_the_origin_that_gave_it_and_nowhere_else() -> None:
    home = Recorder(answer_headers={"X-Agent-Affinity": "abcd1234.1"})
    other = Recorder()
    with serving(home) as home_url, serving(other) as other_url, tenuto.run():
        with make(openai.OpenAI, home_url) as client, make(openai.OpenAI, other_url) as stranger:
            client.chat.completions.create(model="m", messages=USER)
            stranger.chat.completions.create(model="m", messages=AFTER_TOOL)
            client.copy(timeout=9).chat.completions.create(model="m", messages=AFTER_TOOL * 2)
    assert [one.headers.get("x-agent-affinity") for one in home.arrived] == [None, "abcd1234.1"]
    assert [one.headers.get("x-agent-affinity") for one in other.arrived] == [None]


@pytest.mark.parametrize("legacy", [False, True], ids=["httpx2", "httpx"])
def test_no_marker_follows_a_redirect_to_another_origin(legacy: bool) -> None:
    home, other = Recorder(), Recorder()
    with serving(home) as home_url, serving(other) as other_url:
        home.script = [f"{other_url}/v1/chat/completions", f"{home_url}/v1/chat/completions"]
        home.answer_headers = {"X-Agent-Affinity": "abcd1234.1"}
        more = {"http_client": httpx.Client(follow_redirects=True)} if legacy else {}
        with make(openai.OpenAI, home_url, **more) as client, tenuto.run():
            client.chat.completions.create(model="m", messages=USER)
            client.chat.completions.create(model="m", messages=AFTER_TOOL)
    assert [set(one.markers) for one in other.arrived] == [set()]
    assert all("x-session-id" in one.headers for one in home.arrived)
    assert len(home.arrived) == 3


@pytest.mark.anyio
async def test_no_marker_of_an_async_client_follows_a_redirect_to_another_origin() -> None:
    home, other = Recorder(), Recorder()
    with serving(home) as home_url, serving(other) as other_url:
        home.script = [f"{other_url}/v1/chat/completions"]
        async with make(openai.AsyncOpenAI, home_url) as client, tenuto.run():
            await client.chat.completions.create(model="m", messages=USER)
    assert [set(one.markers) for one in other.arrived] == [set()]


def test_an_inheriting_child_starts_with_its_parents_token() -> None:
    recorder = Recorder(answer_headers={"X-Agent-Affinity": "abcd1234.1"})
    with serving(recorder) as url, make(openai.OpenAI, url) as client, tenuto.run() as run:
        with run.agent("main"):
            client.chat.completions.create(model="m", messages=USER)
            with run.agent("fresh"):
                client.chat.completions.create(model="m", messages=AFTER_TOOL)
            with run.agent("heir", fork="inherit") as heir:
                client.chat.completions.create(model="m", messages=AFTER_TOOL)
                client.chat.completions.create(model="m", messages=AFTER_TOOL * 2)
    _, fresh, child, later = recorder.arrived
    assert heir.agent == "main/heir"
    assert "x-agent-affinity" not in fresh.headers
    assert child.headers["x-agent-affinity"] == "abcd1234.1"
    assert child.turn["fork"] == "inherit"
    assert "fork" not in later.turn


def test_a_client_never_names_a_rank_or_a_worker() -> None:
    recorder = Recorder(answer_headers={"X-Agent-Affinity": "abcd1234.1"})
    with serving(recorder) as url, make(openai.OpenAI, url) as client, tenuto.run():
        for turns in range(1, 4):
            client.chat.completions.create(model="m", messages=USER * turns)
    bare = {"host", "accept", "accept-encoding", "connection", "user-agent", "authorization"}
    bare |= {"content-type", "content-length"}
    for one in recorder.arrived:
        names = {name for name in one.headers if not name.startswith("x-stainless-")} - bare
        ours = {"x-session-id", "x-agent-run-id", "x-agent-turn", "x-agent-affinity"}
        assert names <= ours | {"x-request-id"}


STEPS = [
    "stamp.current_call",
    "stamp.dialect_at",
    "stamp._said",
    "stamp.open_try",
    "stamp._headers",
    "stamp.guard",
    "raw_headers.found",
    "raw_headers.extend",
    "raw_headers.value",
    "turns.read_prompt",
    "turns.phase",
    "turns.tokens",
    "process.BACKGROUND.put",
    "answered.heard",
    "answered.read_answer",
    "answered.observe",
    "openai.learn_head",
    "openai.learn_answer",
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_in_any_step_of_ours_leaves_the_request_as_it_was(
    step: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("of ours")

    monkeypatch.setattr(f"tenuto.{step}", fail)
    recorder = Recorder(script=[500], answer_headers={**AT_ONCE, "X-Agent-Affinity": "abcd1234.1"})
    with serving(recorder) as url, make(openai.OpenAI, url) as client, tenuto.run():
        answer = client.chat.completions.create(model="m", messages=USER, stream=stream)
        pieces = list(answer) if stream else [answer]
    assert pieces[-1].choices[0].finish_reason == "stop"
    assert len(recorder.arrived) == 2


def test_a_log_filter_that_raises_costs_nobody_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    class Raising(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise ValueError("of the filter")

    def fail(*_: Any) -> Any:
        raise RuntimeError("of ours")

    monkeypatch.setattr("tenuto.stamp._mark", fail)
    recorder, log, raising = Recorder(), logging.getLogger("tenuto"), Raising()
    log.addFilter(raising)
    log.setLevel(logging.DEBUG)
    try:
        with serving(recorder) as url, make(openai.OpenAI, url) as client, tenuto.run():
            client.chat.completions.create(model="m", messages=USER)
    finally:
        log.removeFilter(raising)
        log.setLevel(logging.NOTSET)
    assert recorder.arrived[0].markers == {}


def test_no_id_is_logged_or_shown_in_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    recorder = Recorder(script=[400])
    with serving(recorder) as url, make(openai.OpenAI, url) as client, tenuto.run("x") as run:
        with pytest.raises(openai.BadRequestError) as raised:
            client.chat.completions.create(model="m", messages=USER)
        client.chat.completions.create(model="m", messages=USER)
    shown = caplog.text + str(raised.value) + repr(run)
    assert run.run_id not in shown
    assert run.session_id not in shown


IDS = """
import sys, tenuto
run = tenuto.run("ticket-4711")
with run, run.agent("planner") as planner, run.agent("search", instance=3) as search:
    print(run.run_id, run.session_id, planner.session_id, search.session_id)
"""


def ids_of_new_processes(count: int, home: Path, **environ: str) -> list[tuple[str, str]]:
    ours = ("TENUTO", "XDG")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", IDS],
            env={**clean, "HOME": str(home), **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    return [process.communicate(timeout=60) for process in started]


def test_processes_that_make_the_install_key_at_once_derive_the_same_ids(tmp_path: Path) -> None:
    outputs = ids_of_new_processes(4, tmp_path)
    assert len({ids for ids, _ in outputs}) == 1
    assert [said for _, said in outputs] == [""] * 4
    key = tmp_path / ".config" / "tenuto" / "key"
    assert key.stat().st_mode & 0o077 == 0
    assert [path.name for path in key.parent.iterdir()] == ["key"]
    ids = outputs[0][0].split()
    assert len(set(ids)) == 4
    assert not any("4711" in one for one in ids)


def test_a_key_in_the_environment_gives_the_same_ids_on_every_machine(tmp_path: Path) -> None:
    (one,), (two,), (other,) = (
        ids_of_new_processes(1, tmp_path / name, TENUTO_KEY=key)
        for name, key in (("a", "secret"), ("b", "secret"), ("c", "another"))
    )
    assert one == two
    assert one[0] != other[0]


def test_without_any_install_key_ids_stay_private_and_one_warning_says_so(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", encoding="utf-8")
    outputs = ids_of_new_processes(2, blocked)
    assert len({ids for ids, _ in outputs}) == 2
    assert all(said.count("no install key") == 1 for _, said in outputs)
    assert all("TENUTO_KEY" in said for _, said in outputs)
