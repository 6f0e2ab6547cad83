"""Who decides: the caller over us, the real origin over the base URL, sent over planned."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, ClassVar

import openai
import pytest
from openai._models import FinalRequestOptions

import tenuto
from tenuto import raw_headers
from tests.loopback import Recorder, openai_http, serving
from tests.server.test_client_on_the_wire import AFTER_TOOL, AT_ONCE, USER, make

TOKEN = {"X-Agent-Affinity": "abcd1234.1"}


@pytest.mark.parametrize("where", ["constructor", "with_options", "call"])
@pytest.mark.parametrize("name", ["X-Session-ID", "x-agent-turn"])
def test_an_omit_wins_wherever_it_is_said(where: str, name: str) -> None:
    recorder = Recorder()
    omit = {name: openai.Omit()}
    with serving(recorder) as url, tenuto.run():
        client = make(
            openai.OpenAI, url, **({"default_headers": omit} if where == "constructor" else {})
        )
        if where == "with_options":
            client = client.with_options(default_headers=omit)
        more = {"extra_headers": omit} if where == "call" else {}
        client.chat.completions.create(model="m", messages=USER, **more)
    sent = recorder.arrived[0].markers
    assert name.lower() not in sent
    assert bool(sent) == (name != "X-Session-ID")


def test_a_header_of_the_http_client_wins_too() -> None:
    recorder = Recorder()
    http = openai_http.Client(headers={"X-Agent-Run-ID": "of-the-http-client"})
    with (
        serving(recorder) as url,
        make(openai.OpenAI, url, http_client=http) as client,
        tenuto.run(),
    ):
        client.chat.completions.create(model="m", messages=USER)
    assert recorder.arrived[0].headers["x-agent-run-id"] == "of-the-http-client"


def test_a_call_in_a_session_of_the_callers_own_takes_no_turn_and_leaves_no_token() -> None:
    recorder = Recorder(answer_headers=TOKEN)
    theirs = {"X-Session-ID": "their-session-1"}
    with serving(recorder) as url, make(openai.OpenAI, url) as client, tenuto.run():
        client.chat.completions.create(model="m", messages=USER, extra_headers=theirs)
        client.chat.completions.create(model="m", messages=AFTER_TOOL)
    ours = recorder.arrived[1]
    assert ours.turn["n"] == "0"
    assert "x-agent-affinity" not in ours.headers


def test_a_call_that_never_gets_to_http_takes_no_turn() -> None:
    recorder = Recorder()
    with serving(recorder) as url, make(openai.OpenAI, url) as client, tenuto.run():
        with pytest.raises(TypeError):
            client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": object()}]
            )
        client.chat.completions.create(model="m", messages=USER)
    assert recorder.arrived[0].turn["n"] == "0"


def test_a_token_is_not_sent_where_a_subclass_routes_a_call_to() -> None:
    home, other = Recorder(answer_headers=TOKEN), Recorder()
    with serving(home) as home_url, serving(other) as other_url:
        targets = [home_url, other_url, home_url]

        class Routing(openai.OpenAI):
            def _prepare_url(self, url: str) -> Any:
                return openai_http.URL(targets.pop(0) + url)

        with make(Routing, "http://127.0.0.1:9") as client, tenuto.run():
            for turns in range(1, 4):
                client.chat.completions.create(model="m", messages=USER * turns)
    assert [one.headers.get("x-agent-affinity") for one in home.arrived] == [None, "abcd1234.1"]
    assert "x-agent-affinity" not in other.arrived[0].headers


def test_without_a_guard_against_redirects_there_are_no_markers() -> None:
    class Hookless(openai_http.Client):
        @property
        def event_hooks(self) -> Any:
            raise RuntimeError("none here")

    recorder = Recorder()
    with serving(recorder) as url, make(openai.OpenAI, url, http_client=Hookless()) as client:
        with tenuto.run():
            client.chat.completions.create(model="m", messages=USER)
    assert recorder.arrived[0].markers == {}


@pytest.mark.anyio
async def test_calls_that_share_one_options_object_keep_their_own_sessions() -> None:
    recorder = Recorder()
    options = FinalRequestOptions.construct(
        method="post", url="/chat/completions", json_data={"model": "m", "messages": USER}
    )

    async def work(i: int) -> str:
        async with run.agent(str(i)) as agent:
            await client.request(object, options)
            return agent.session_id

    with serving(recorder) as url:
        async with make(openai.AsyncOpenAI, url) as client, tenuto.run() as run:
            ids = await asyncio.gather(*(work(i) for i in range(6)))
        async with make(openai.AsyncOpenAI, url) as client:
            await client.request(object, options)
    assert sorted(one.headers.get("x-session-id", "") for one in recorder.arrived) == sorted(
        ["", *ids]
    )


def test_a_prompt_in_extra_body_or_in_raw_bytes_tells_turns_apart() -> None:
    recorder = Recorder(script=[200, 200, 500], answer_headers=AT_ONCE)
    with serving(recorder) as url, make(openai.OpenAI, url) as client, tenuto.run():
        for prompt in ("one", "two"):
            client.completions.create(model="m", prompt="x", extra_body={"prompt": prompt})
        client.post("/completions", content=b'{"prompt": "three"}', cast_to=object)
    assert [one.turn["n"] for one in recorder.arrived] == ["0", "1", "2", "2"]
    assert [one.turn["attempt"] for one in recorder.arrived] == ["0", "0", "0", "1"]


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_wrapper_on_the_instances_request_composes_in_either_order(order: str) -> None:
    recorder = Recorder(script=[500, 200, 500], answer_headers=AT_ONCE)
    with serving(recorder) as url, tenuto.run():
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k")
        if order == "after":
            tenuto.wrap(client)
        original = client.request
        client.request = functools.partial(original)  # type: ignore[method-assign]
        tenuto.wrap(client)
        for turns in (1, 2):
            client.chat.completions.create(model="m", messages=USER * turns)
        client.close()
    assert [one.turn["n"] for one in recorder.arrived] == ["0", "0", "1", "1"]
    assert [one.turn["attempt"] for one in recorder.arrived] == ["0", "1", "0", "1"]


def test_a_subclass_of_a_stamped_class_keeps_its_own_methods_and_takes_a_dialect() -> None:
    stamped = type(tenuto.wrap(openai.OpenAI(api_key="k")))

    class Ours(stamped):  # type: ignore[misc, valid-type]
        def request(self, *args: Any, **given: Any) -> Any:
            asked.append(args[1].url)
            return super().request(*args, **given)

    asked: list[str] = []
    recorder = Recorder()
    with serving(recorder) as url, tenuto.run():
        client = tenuto.wrap(Ours(base_url=f"{url}/v1", api_key="k"), dialect="generic")
        client.chat.completions.create(model="m", messages=USER)
    assert asked == ["/chat/completions"]
    assert set(recorder.arrived[0].markers) == {"x-session-id", "x-session-affinity"}


def test_headers_of_another_make_are_read_and_extended_the_public_way() -> None:
    class Foreign(dict[str, str]):
        """A mapping whose private list is of another shape."""

        _list: ClassVar = [("a", "b")]

    headers = Foreign({"x-agent-affinity": "abcd1234.1"})
    names = frozenset({b"x-agent-affinity", b"x-agent-turn"})
    assert raw_headers.found(headers, names) == {b"x-agent-affinity": b"abcd1234.1"}
    assert raw_headers.value(headers, b"x-agent-affinity") == "abcd1234.1"
    raw_headers.extend(headers, [(b"X-Agent-Turn", b"x-agent-turn", b"n=0")])
    assert headers["X-Agent-Turn"] == "n=0"
    assert Foreign._list == [("a", "b")]
