"""Hints, news and numbers between several API processes and engines, on real vLLM."""

from __future__ import annotations

import json
import re

import httpx
import pytest

from tenuto_vllm.retention.hint import unpack
from tests.loopback import eventually

KEY = {"Authorization": "Bearer key-one"}
MESSAGES = [{"role": "user", "content": "hi there"}]
ROUTES = {
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 3, "n": 2},
    "/v1/completions": {"prompt": ["hi there", "hi where"], "max_tokens": 3},
    "/v1/responses": {"input": "hi there", "max_output_tokens": 3},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 3},
}


@pytest.fixture
def server(recording):
    return recording


@pytest.fixture(autouse=True)
def _afresh(folder):
    for file in folder.iterdir():
        file.unlink()


def ask(server, path, body=None, **headers):
    """One request on a connection of its own: any API process may take it."""
    answer = httpx.request(
        "GET" if body is None else "POST",
        server.root_url + path,
        json=body,
        headers=KEY | {name.replace("_", "-"): value for name, value in headers.items()},
        timeout=120,
        trust_env=False,
    )
    answer.raise_for_status()
    return answer


def recorded(folder, what):
    """What each engine has written down, by its process."""
    return {
        file.name: [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        for file in folder.glob(f"{what}-*")
    }


def flat(folder, what):
    return [one for of_engine in recorded(folder, what).values() for one in of_engine]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ROUTES)
def test_every_engine_request_of_a_call_carries_the_hint_and_the_clean_session_id(
    server, folder, path, stream
):
    body = {"model": "tiny", "stream": stream, **ROUTES[path]}
    session = f"session-{len(path)}-{int(stream)}"
    turn = {"X_Session_ID": session, "X_Agent_Turn": "n=0, next=tool, gap=900, ttl=60"}
    answer = ask(server, path, body, **turn)
    assert answer.headers["X-Agent-Served"].endswith("lease=60")
    requests = flat(folder, "requests")
    assert len(requests) == (2 if "completions" in path else 1)
    for request in requests:
        (text,) = request["hints"]
        hint = unpack(text)
        assert re.fullmatch(rf"[0-9a-f]{{12}}\.{session}", hint.session)
        assert (hint.turn.n, hint.turn.next, hint.turn.gap, hint.turn.ttl) == (0, "tool", 900, 60)
        # `/v1/messages` reads no session id of its own.
        assert request["session_id"] in ({session} if path != "/v1/messages" else {session, None})


def test_the_tenant_is_the_same_in_every_api_process(server, folder):
    for _ in range(12):
        ask(server, "/v1/completions", {"model": "tiny", "prompt": "a"}, X_Session_ID="session-t")
    hints = {unpack(one["hints"][0]).session for one in flat(folder, "requests")}
    assert len(hints) == 1


def test_a_call_of_no_session_carries_nothing(server, folder):
    ask(server, "/v1/completions", {"model": "tiny", "prompt": "a"})
    assert flat(folder, "requests") == [{"hints": [], "session_id": None}]


FUNCTION = {"name": "get", "parameters": {"type": "object"}}
CHAT_TOOLS = {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required"}
MESSAGE_TOOLS = {
    "tools": [{"name": "get", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "any"},
}
RESPONSE_TOOLS = {"tools": [{"type": "function", **FUNCTION}], "tool_choice": "required"}
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
# So hot that any token may come next, the last one too.
TEXT, INPUT = {"max_tokens": 9000, "temperature": 2}, {"max_output_tokens": 9000, "temperature": 2}
ENDS = {
    "chat": (CHAT, {"messages": MESSAGES, **TEXT}, "user"),
    "chat, tools": (CHAT, {"messages": MESSAGES, **TEXT, **CHAT_TOOLS}, "tool"),
    "completions": ("/v1/completions", {"prompt": "hi there", **TEXT}, "user"),
    "messages": ("/v1/messages", {"messages": MESSAGES, **TEXT}, "user"),
    "messages, tools": ("/v1/messages", {"messages": MESSAGES, **TEXT, **MESSAGE_TOOLS}, "tool"),
    "responses": (RESPONSES, {"input": "hi there", **INPUT}, "user"),
    "responses, tools": (RESPONSES, {"input": "hi there", **INPUT, **RESPONSE_TOOLS}, "tool"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ENDS)
def test_how_an_answer_ended_is_told_to_the_engine_that_gave_it(server, folder, name, stream):
    path, body, wait = ENDS[name]
    if name == "messages, tools" and not stream:
        pytest.skip("vLLM refuses the arguments that a model of random weights makes up")
    session = f"session-end-{len(name)}-{int(stream)}"
    for attempt in range(8):
        try:
            ask(server, path, {"model": "tiny", "stream": stream, **body}, X_Session_ID=session)
        except httpx.HTTPStatusError:
            # vLLM may refuse the arguments that a model of random weights makes up.
            assert "tools" in name
            assert attempt < 7
            for file in folder.iterdir():
                file.unlink()
        else:
            break
    assert eventually(lambda: flat(folder, "told"))
    (told,) = flat(folder, "told")
    assert [turn[1:] for turn in told["turns"]] == [[wait, None, None]]
    assert told["turns"][0][0].endswith(f".{session}")
    served, informed = recorded(folder, "requests"), recorded(folder, "told")
    assert {name.split("-")[1] for name in served} == {name.split("-")[1] for name in informed}


def test_news_reaches_the_engines_of_every_rank(server, folder):
    ask(server, "/tenuto/sessions/end", {"sessions": ["session-e"]})
    assert eventually(lambda: len(flat(folder, "told")) == 2)
    assert len(recorded(folder, "told")) == 2
    ask(server, "/tenuto/turns", [{"session": "session-e", "next": "tool", "gap": 5}])
    assert eventually(lambda: len(flat(folder, "told")) == 4)


def test_the_state_and_the_metrics_of_any_process_tell_of_both_engines_once(server, folder):
    for n in range(6):
        turn = {"X_Session_ID": f"session-m-{n}", "X_Agent_Turn": "n=0, next=tool, ttl=600"}
        ask(server, "/v1/completions", {"model": "tiny", "prompt": f"{n} " * 90}, **turn)
    for _ in range(6):
        told = ask(server, "/tenuto/state").json()["retention"]
        assert [state["blocks"] for state in told] == [2048, 2048]
        assert sum(state["counts"]["leased"] for state in told) >= 6
    leased = sum(state["leases"] for state in told)
    pattern = r'^tenuto_retention_leases\{[^}]*rank="\d"[^}]*\} (\S+)$'

    def shown():
        found = re.findall(pattern, ask(server, "/metrics").text, re.MULTILINE)
        return len(found) == 2 and sum(map(float, found)) == leased

    assert eventually(shown)
    text = ask(server, "/metrics").text
    for segment in ("in_use", "evict_first", "ordinary", "leased"):
        assert re.search(rf'^tenuto_retention_blocks\{{.*segment="{segment}".*\}}', text, re.M)
    assert re.search(r'^tenuto_retention_events_total\{.*event="leased".*\}', text, re.M)


def test_each_process_says_how_it_hands_them_on(server):
    said = server.log_path.read_text(encoding="utf-8")
    events = [json.loads(line) for line in said.splitlines() if line.startswith('{"')]
    assert {one.get("carrier") for one in events if one["event"] == "hints"} == {"kv_hints"}
    assert not any(one["event"] == "retention_off" for one in events)
