"""The kit on real sockets: honest agents pass, and each broken one fails what it breaks."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from openai import InternalServerError, OpenAI
from pydantic import BaseModel

from tenuto.conformance import Recording, Report, recording
from tenuto.conformance.script import TROUBLES
from tenuto.errors import ConfigError
from tests.unit.sdk.conformance import agents, harnesses
from tests.unit.sdk.conformance.agents import BROKEN, Honest

NOTHING_SEEN = {"server", "hidden"}


def recorded(kind: Callable[[str, str], Honest], *, times: int = 1) -> Report:
    made: list[Recording] = []
    for _ in range(times):
        # The one trouble that only takes time is left to the tests of honest agents.
        with recording(without={"stall"} if times == 1 else ()) as one:
            kind(one.url, one.name).work()
        made.append(one)
    return made[0].report(again=made[-1] if times > 1 else None)


def statuses(report: Report) -> dict[str, str]:
    return {one.id: one.status for one in report if one.status not in NOTHING_SEEN}


def test_an_agent_that_keeps_the_protocol_by_hand_passes_whole() -> None:
    report = recorded(Honest, times=2)
    assert report.dialects == ("vllm",)
    assert set(statuses(report).values()) == {"pass"}, str(report)


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_agent_fails_what_it_breaks_and_nothing_else(kind: type[Honest]) -> None:
    times = 2 if kind is agents.RandomBelowTheRun else 1
    report = recorded(kind, times=times)
    assert set(report.failed) == BROKEN[kind], str(report)
    for name in report.failed:
        assert report[name].why
        assert report[name].proof


def test_a_failure_is_proven_by_the_two_requests_that_differ() -> None:
    with recording(without={"stall"}) as one:
        agents.TurnPerTry(one.url, one.name).work()
    first, second = one.report()["id-turn"].proof
    tries = [one.requests[proof.request - 1] for proof in (first, second)]
    assert tries[0].body == tries[1].body
    assert tries[0].failed
    assert first.what == second.what == "x-agent-turn n"
    assert first.value != second.value


def test_the_ways_to_count_a_turn_wrong_are_told_apart() -> None:
    kinds = (agents.TurnPerTry, agents.TurnStays, agents.TurnLeaps, agents.AttemptStays)
    assert [recorded(kind)["id-turn"].why for kind in kinds] == [
        "the same prompt tried again counts as another turn",
        "two prompts of one session count as one turn",
        "a new prompt does not advance the turn by one",
        "the same prompt tried again is not a further attempt",
    ]


EXPRESSED = {
    harnesses.ClaudeCode: ("claude-code", {"wire-total"}),
    harnesses.Codex: ("codex", set[str]()),
    harnesses.OpenCode: ("generic", {"wire-total"}),
    harnesses.CacheKey: (
        "openai",
        {"wire-total", "wire-size", "wire-duplicate", "wire-redirect", "parent-named"},
    ),
}
OURS_ALONE = {
    *("id-turn", "turn-phase", "turn-tokens", "turn-attempt", "affinity-echo", "wire-token"),
    *("news-told", "news-turns", "news-end", "news-bounds"),
}
UNCUED = {"id-unmarked", "wire-caller-wins", "auxiliary"}


@pytest.mark.parametrize("kind", EXPRESSED, ids=lambda kind: kind.__name__)
def test_a_harness_passes_what_its_dialect_can_express(kind: type[Honest]) -> None:
    dialect, beyond = EXPRESSED[kind]
    report = recorded(kind, times=2)
    assert report.dialects == (dialect,)
    found = statuses(report)
    assert {name for name, one in found.items() if one == "not expressible"} == beyond | OURS_ALONE
    assert {name for name, one in found.items() if one == "not seen"} == UNCUED
    assert not report.failed, str(report)


def test_a_program_that_marks_nothing_is_told_so_and_fails_nothing() -> None:
    report = recorded(harnesses.Unmarked)
    assert report.dialects == ()
    assert not report.failed
    assert report["id-context"].why == "no call carries a session"
    assert "no request carries a session" in str(report)


def test_a_report_can_be_held_to_the_dialects_and_requirements_that_are_named() -> None:
    with recording(without={"stall"}) as one:
        harnesses.OpenCode(one.url, one.name).work()
    report = one.report(dialects=["trtllm"], only=["parent-named", "id-shape"])
    assert report.dialects == ("trtllm",)
    assert [result.id for result in report] == ["id-shape", "parent-named"]
    # TensorRT-LLM knows a parent by another name.
    assert report.failed == ("parent-named",)
    with pytest.raises(ConfigError, match="'id-none' is not known"):
        one.report(only=["id-none"])


def test_what_rests_on_a_broken_requirement_is_not_judged() -> None:
    report = recorded(agents.IdPerCall)
    assert report["parent-named"].why == "id-context is broken first"
    assert report["parent-named"].status == "not seen"


class AskTheSame(Honest):
    """Two agents at once with one prompt, of which the server refuses two tries."""

    def work(self) -> None:
        sessions = [self.session("voter", number) for number in range(2)]
        # The first opening of a history is refused but once, the third twice.
        self.call(self.session("one"), [{"role": "user", "content": "One."}])
        self.call(self.session("two"), [{"role": "user", "content": "Two."}])
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda one: self.agent(one, "Vote.", rounds=2), sessions))
        self.http.close()


def test_parallel_agents_that_ask_the_same_are_not_taken_for_one_that_changes_its_id() -> None:
    report = recorded(AskTheSame)
    assert report["id-context"].status == "pass"
    assert report["id-instance"].status == "pass"
    assert not report.failed, str(report)


class OneGivesUp(Honest):
    """Of two that ask the same, the later one gives up while the first is still at it."""

    def work(self) -> None:
        for word in ("One.", "Two."):
            self.call(self.session(word), [{"role": "user", "content": word}])
        body = {"messages": [{"role": "user", "content": "Three."}]}
        one, two = (self.session("voter", number) for number in range(2))
        statuses = [
            self.http.post(
                self.path, json=body, headers=self.headers(voter, 0, attempt)
            ).status_code
            for voter, attempt in ((one, 0), (two, 0), (one, 1))
        ]
        assert statuses == [500, 429, 200]
        self.http.close()


def test_one_that_gives_up_beside_another_with_the_same_prompt_is_no_change_of_ids() -> None:
    assert recorded(OneGivesUp)["id-context"].status == "pass"


class ChangesOnce(Honest):
    """A single call, tried again under another id."""

    def work(self) -> None:
        body = {"messages": [{"role": "user", "content": "One."}]}
        for voter in (self.session("voter", 0), self.session("voter", 1)):
            self.http.post(self.path, json=body, headers=self.headers(voter, 0, 0))
        self.http.close()


def test_a_single_call_that_is_tried_again_under_another_id_is_a_failure() -> None:
    report = recorded(ChangesOnce)
    assert report["id-context"].why == "a prompt is tried again in another session"


class SideBySide(Honest):
    """Two histories in one session, turn by turn."""

    def work(self) -> None:
        one = self.session("both")
        histories = [[{"role": "user", "content": word}] for word in ("One.", "Two.")]
        for _ in range(2):
            for history in histories:
                history += [self.call(one, history), {"role": "user", "content": "On."}]
        self.http.close()


class OneAfterTheOther(Honest):
    """Two agents of different instructions in one session, one when the other is done."""

    def work(self) -> None:
        one = self.session("both")
        for kind in ("planner", "verifier"):
            one.kind = kind
            self.agent(one, "Work.", rounds=2, tools=[])
        self.http.close()


class BegunAnew(Honest):
    """The history of a session is cut down to a summary: the instructions stay."""

    def work(self) -> None:
        one = self.session("both")
        for task in ("Work.", "Go on from this summary."):
            self.agent(one, task, rounds=2, tools=[])
        self.http.close()


@pytest.mark.parametrize("kind", [SideBySide, OneAfterTheOther])
def test_two_agents_in_one_session_are_a_failure(kind: type[Honest]) -> None:
    assert recorded(kind)["id-instance"].why == "two histories share one session"


def test_a_session_that_is_compacted_is_still_one() -> None:
    assert "id-instance" not in recorded(BegunAnew).failed


class HandsOver(Honest):
    """A second session goes on from the first one's history."""

    says_parent = True

    def work(self) -> None:
        main = self.session("planner")
        self.agent(main, "Plan.", tools=[])
        heir = self.session("reviewer", parent=main)
        heir.parent = main.id if self.says_parent else None
        for word in ("Review.", "Again."):
            asked = [*self.history, {"role": "user", "content": word}]
            self.history = [*asked, self.call(heir, asked)]
        self.http.close()


class HandsOverInSilence(HandsOver):
    says_parent = False


def test_a_session_that_goes_on_from_another_names_it() -> None:
    assert recorded(HandsOver)["id-context"].status == "pass"
    assert recorded(HandsOver)["parent-named"].status == "pass"
    report = recorded(HandsOverInSilence)
    assert report.failed == ("id-context",)
    assert report["id-context"].why == "the next turn of a history has another session"


class LosesItsMarkers(Honest):
    def headers(self, session: agents.Session, n: int, attempt: int) -> list[tuple[str, str]]:
        return super().headers(session, n, attempt) if n < 2 else []


def test_a_history_that_loses_its_markers_is_a_failure() -> None:
    report = recorded(LosesItsMarkers)
    assert report["id-context"].why == "the next turn of a history has no session"


class Verdict(BaseModel):
    """A structured answer."""

    passed: bool
    reasons: list[str]


def test_every_api_answers_openais_client_whole_and_streamed() -> None:
    with recording(without=TROUBLES) as one:
        client = OpenAI(base_url=f"{one.url}/v1", api_key="k", max_retries=0)
        ask: Any = {"model": "m", "messages": [{"role": "user", "content": "Hello."}]}
        assert "tnto" in (client.chat.completions.create(**ask).choices[0].message.content or "")
        chunks = [*client.chat.completions.create(**ask, stream=True)]
        assert "tnto" in "".join(one.choices[0].delta.content or "" for one in chunks)
        assert chunks[-1].choices[0].finish_reason == "stop"
        options: Any = {"include_usage": True}
        last = [*client.chat.completions.create(**ask, stream=True, stream_options=options)][-1]
        assert last.usage is not None
        parsed = client.chat.completions.parse(**ask, response_format=Verdict)
        assert parsed.choices[0].message.parsed is not None
        response = client.responses.parse(model="m", input="Hello.", text_format=Verdict)
        assert response.output_parsed is not None
        with client.responses.stream(model="m", input="Hello.") as stream:
            assert "tnto" in stream.get_final_response().output_text
        pieces = [*client.completions.create(model="m", prompt="Once", stream=True)]
        assert "tnto" in "".join(one.choices[0].text for one in pieces)
        assert len(client.embeddings.create(model="m", input=["a", "b"]).data) == 2
        assert client.models.list().data
        assert client.models.retrieve("m").id == "m"
        assert client.conversations.create().id
        client.close()
    assert [one.prompt is None for one in one.requests].count(True) == 4


def test_a_request_is_kept_as_it_came() -> None:
    with recording(without=TROUBLES) as one:
        with httpx.Client() as http:
            headers = [("X-B", "1"), ("X-A", "2"), ("X-B", "3"), ("X-C", "é".encode())]
            for _ in range(2):
                http.post(f"{one.url}/v1/chat/completions", json={"messages": []}, headers=headers)
        httpx.post(f"{one.url}/v1/chat/completions?a=b", content=b"no json")
    first, second, third = one.requests
    kept = [pair for pair in first.headers if pair[0].startswith(b"x-")]
    assert kept == [(b"x-b", b"1"), (b"x-a", b"2"), (b"x-b", b"3"), (b"x-c", "é".encode())]
    assert (first.method, first.path, first.body) == (
        "POST",
        "/v1/chat/completions",
        {"messages": []},
    )
    assert first.connection == second.connection != third.connection
    assert first.at_s < first.answered_s <= first.end_s < second.at_s
    assert (third.query, third.body, third.prompt, third.status) == ("a=b", None, None, 404)


def test_the_script_is_seen_by_a_client_that_does_not_retry() -> None:
    ask: Any = {"model": "m", "messages": [{"role": "user", "content": "Hello."}]}
    with recording() as one:
        with OpenAI(base_url=f"{one.url}/v1", api_key="k", max_retries=0) as client:
            with pytest.raises(InternalServerError) as refused:
                client.chat.completions.create(**ask)
            assert refused.value.response.headers["retry-after-ms"] == "1"
            assert client.chat.completions.create(**ask).choices
    assert [request.outcome for request in one.requests] == ["500", "answered"]


def test_an_unknown_trouble_is_a_mistake_that_names_the_known() -> None:
    with pytest.raises(ConfigError, match=r"'500s' is not known; choose of 500, 429, drop"):
        with recording(without={"500s"}):
            pass


def test_a_client_that_hangs_up_leaves_the_server_at_work() -> None:
    body = {"messages": [{"role": "user", "content": "Hello."}], "stream": True}
    with recording(without={"500"}) as one:
        with httpx.stream("POST", f"{one.url}/v1/chat/completions", json=body) as answer:
            assert next(answer.iter_raw())
        start_s = time.monotonic()
        assert httpx.get(f"{one.url}/v1/models").status_code == 200
    assert time.monotonic() - start_s < 5
