"""Sessions spread over several base URLs: each stays where its cache is."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

import tenuto
import tenuto_vllm
from tenuto import process
from tenuto.retry import retrying
from tenuto.sessions import SessionStore
from tenuto_vllm.embedded import EngineSettings, serve
from tests.calls import make
from tests.loopback import Recorder, serving
from tests.retry_calls import no_wait

SIZE = EngineSettings(prefill_tokens_per_s=float("inf"), decode_tokens_per_s=float("inf"))
# So many that chance, which the ports of the servers bring in, leaves none without a session.
SESSIONS, TURNS = 40, 3
TOKENS = ("abcd1234.1", "dcba4321.2")


def call(session: int, turn: int) -> dict[str, Any]:
    said = f"{session} policy " * 40 + "more " * turn
    return {"model": "tiny", "messages": [{"role": "user", "content": said}], "max_tokens": 4}


def create(client: Any, session: int, turn: int, **more: Any) -> Any:
    return client.chat.completions.create(**call(session, turn), **more)


def create_raw(client: Any, session: int, turn: int) -> Any:
    return client.chat.completions.with_raw_response.create(**call(session, turn))


WAYS: dict[str, Callable[[Any, int, int], Any]] = {
    "create": create,
    "stream": lambda client, *at: list(create(client, *at, stream=True)),
    "raw": create_raw,
    "with_options": lambda client, *at: create(client.with_options(timeout=9), *at),
}


@contextmanager
def recorders() -> Iterator[tuple[list[Recorder], list[str]]]:
    """Serve two recorders, each with a token of its own; the second yields root URLs."""
    both = [Recorder(answer_headers={"X-Agent-Affinity": token}) for token in TOKENS]
    with serving(both[0]) as first, serving(both[1]) as second:
        yield both, [first, second]


def engine(port: int = 0) -> Any:
    return serve(SIZE, [tenuto_vllm.TurnMiddleware], port=port)


@contextmanager
def spreading(urls: list[str], **options: Any) -> Iterator[Any]:
    """Yield a client that spreads its sessions over the servers at these root URLs."""
    with make(openai.OpenAI, urls[0]) as plain:
        bases = [f"{url}/v1" for url in urls]
        yield retrying(plain, base_urls=bases, spread_sessions=True, wait=no_wait, **options)


def run_turns(client: Any, run: Any, turns: Any, served: dict[int, list[Any]]) -> None:
    """Make turns of all sessions by turns; note who served each, and the tokens it had cached."""
    for turn, number in itertools.product(turns, range(SESSIONS)):
        with run.agent("worker", instance=str(number)):
            raw = create_raw(client, number, turn)
        cached = raw.parse().usage.prompt_tokens_details.cached_tokens
        served[number].append((raw.http_response.url.port, cached))


def check_homes(both: list[Recorder]) -> None:
    """Check that each session was at one of two servers in all its turns, and both were used."""
    at = [[one.headers["x-session-id"] for one in each.arrived] for each in both]
    assert set(at[0]).isdisjoint(at[1])
    assert all(at)
    assert all(ids.count(one) == TURNS for ids in at for one in ids)
    assert sum(map(len, at)) == SESSIONS * TURNS


def latest(recorder: Recorder) -> tuple[int, int]:
    """Return turn and attempt of the last request; they differ on two servers."""
    if not recorder.arrived:
        return (-1, 0)
    turn = recorder.arrived[-1].turn
    return int(turn["n"]), int(turn["attempt"])


def home_of(both: list[Recorder]) -> int:
    """Return which of two servers has served the last request."""
    return max((0, 1), key=lambda at: latest(both[at]))


@pytest.mark.parametrize("way", WAYS)
def test_all_turns_of_a_session_are_at_one_server_and_both_servers_are_used(way: str) -> None:
    with recorders() as (both, urls), spreading(urls) as client, tenuto.run() as run:
        for turn, number in itertools.product(range(TURNS), range(SESSIONS)):
            with run.agent("worker", instance=str(number)):
                WAYS[way](client, number, turn)
    check_homes(both)


@pytest.mark.anyio
async def test_sessions_of_an_async_client_that_run_at_once_stay_at_their_servers() -> None:
    with recorders() as (both, urls):
        async with make(openai.AsyncOpenAI, urls[0]) as plain:
            bases = [f"{url}/v1" for url in urls]
            client = retrying(plain, base_urls=bases, spread_sessions=True)
            run = tenuto.run()

            async def session(number: int) -> None:
                async with run.agent("worker", instance=str(number)):
                    await create(client, number, 0)
                    await create_raw(client, number, 1)
                    async for _ in await create(client, number, 2, stream=True):
                        pass

            await asyncio.gather(*map(session, range(SESSIONS)))
    check_homes(both)


def test_engines_find_every_session_in_their_caches_from_its_second_turn_on() -> None:
    served: dict[int, list[Any]] = defaultdict(list)
    with engine() as one, engine() as other, tenuto.run() as run:
        with spreading([one, other]) as client:
            run_turns(client, run, range(TURNS), served)
    assert len({turns[0][0] for turns in served.values()}) == 2
    for turns in served.values():
        assert len({port for port, _ in turns}) == 1
        assert all(cached > 0 for _, cached in turns[1:])


def test_a_servers_death_rehomes_its_sessions_once_and_they_stay_when_it_is_back() -> None:
    served: dict[int, list[Any]] = defaultdict(list)
    with tenuto.run() as run, engine() as one, engine() as other, ExitStack() as stack:
        with engine() as dying:
            port = urlsplit(dying).port or 0
            client = stack.enter_context(spreading([dying, one, other], cooldown_s=0))
            run_turns(client, run, range(2), served)
        run_turns(client, run, range(2, 4), served)
        with engine(port):
            run_turns(client, run, range(4, 6), served)
    homes = {number: [at for at, _ in turns] for number, turns in served.items()}
    rehomed = {number for number, at in homes.items() if at[0] == port}
    assert 0 < len(rehomed) < SESSIONS
    for number, (first, second, third, *later) in homes.items():
        assert first == second
        assert (third != first) is (number in rehomed)
        assert later == [third] * 3


@pytest.mark.parametrize(("status", "returns"), [(429, True), (500, False)])
def test_a_session_returns_to_a_home_that_was_busy_and_not_to_one_that_failed(
    status: int, returns: bool
) -> None:
    with recorders() as (both, urls), tenuto.run():
        with spreading(urls, cooldown_s=0) as client:
            create(client, 0, 0)
            home = home_of(both)
            both[home].script = [status]
            for turn in range(1, 4):
                create(client, 0, turn)
    turns = [[one.turn["n"] for one in both[at].arrived] for at in (home, 1 - home)]
    assert turns == ([["0", "1", "2", "3"], ["1"]] if returns else [["0", "1"], ["1", "2", "3"]])


def test_a_session_that_found_its_home_avoided_does_not_go_back_either() -> None:
    with recorders() as (both, urls), spreading(urls, cooldown_s=3600) as client:
        with tenuto.run() as run:
            create(client, 0, 0)
            home = home_of(both)
            both[home].script = [500]
            with pytest.raises(openai.InternalServerError), run.agent("child", fork="inherit"):
                # One try, at the parent's home.
                create(client.with_options(max_retries=0), 1, 0)
            create(client, 0, 1)
            both[1 - home].script = [429]
            with run.agent("other"):
                # Its answer from there says that the home is up again.
                create(client, 2, 0)
            create(client, 0, 2)
            create(client, 0, 3)
    parent = both[home].arrived[0].headers["x-session-id"]
    turns = [
        [one.turn["n"] for one in each.arrived if one.headers["x-session-id"] == parent]
        for each in (both[home], both[1 - home])
    ]
    assert turns == [["0"], ["1", "2", "3"]]
    assert len(both[home].arrived) == 3


def test_no_server_is_sent_a_token_of_another_however_often_a_session_moves() -> None:
    with recorders() as (both, urls), spreading(urls, cooldown_s=0) as client, tenuto.run():
        for turn in range(6):
            create(client, 0, turn)
            both[home_of(both)].script = [500]
    for recorder, token in zip(both, TOKENS, strict=True):
        sent = [one.headers.get("x-agent-affinity") for one in recorder.arrived]
        assert sent == [None, *[token] * (len(sent) - 1)]
        assert len(sent) > 3
    assert len({one.headers["x-session-id"] for each in both for one in each.arrived}) == 1


def test_children_that_inherit_begin_at_their_parents_server_and_others_at_both() -> None:
    with recorders() as (both, urls), spreading(urls) as client, tenuto.run() as run:
        create(client, 0, 0)
        home = home_of(both)
        for number in range(SESSIONS):
            with run.agent("child", instance=str(number), fork="inherit"):
                create(client, number, 1)
        assert [len(both[home].arrived), len(both[1 - home].arrived)] == [1 + SESSIONS, 0]
        for number in range(SESSIONS):
            with run.agent("other", instance=str(number)):
                create(client, number, 1)
    assert len(both[1 - home].arrived) > 0


def test_a_session_carried_into_another_process_goes_on_at_its_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    carried: list[tuple[int, dict[str, str]]] = []
    with recorders() as (both, urls), spreading(urls, cooldown_s=0) as client:
        for number in range(SESSIONS):
            with tenuto.run():
                # There and back again: the token of its home came before the other's.
                for turn in range(3):
                    create(client, number, turn)
                    both[home_of(both)].script = [500] if turn < 2 else []
                carried.append((home_of(both), tenuto.inject()))
            both[0].arrived.clear()
            both[1].arrived.clear()
        monkeypatch.setattr(process, "SESSIONS", SessionStore())
        for _, carrier in carried:
            with tenuto.extract(carrier):
                create(client, 0, 9)
    homes = [home for home, _ in carried]
    assert [len(one.arrived) for one in both] == [homes.count(0), homes.count(1)]
    assert all(one.arrived for one in both)


def test_clients_of_the_same_servers_share_a_sessions_home() -> None:
    with recorders() as (both, urls), tenuto.run():
        with spreading(urls, cooldown_s=0) as one, spreading(urls[::-1]) as other:
            create(one, 0, 0)
            home = home_of(both)
            both[home].script = [500]
            create(one, 0, 1)
            create(other, 0, 2)
    assert [len(both[home].arrived), len(both[1 - home].arrived)] == [2, 2]


def test_calls_in_no_session_go_to_the_first_url_and_so_do_all_where_none_is_spread() -> None:
    with recorders() as (both, urls), spreading(urls) as client:
        for number in range(SESSIONS):
            create(client, number, 0)
        once = retrying(client, base_urls=[f"{url}/v1" for url in urls])
        for number in range(SESSIONS):
            with tenuto.run():
                create(once, number, 0)
    assert [len(one.arrived) for one in both] == [2 * SESSIONS, 0]


def test_a_stored_response_is_gone_on_with_where_it_is_kept_although_that_server_failed() -> None:
    homes: set[int] = set()
    with recorders() as (both, urls), spreading(urls) as client:
        for _ in range(SESSIONS):
            with tenuto.run():
                client.responses.create(model="m", input="hi", background=True)
                home = home_of(both)
                both[home].script = [500]
                with pytest.raises(openai.InternalServerError):
                    client.responses.create(model="m", input="on", previous_response_id="r")
                client.responses.create(model="m", input="on", previous_response_id="r")
                client.responses.retrieve("r")
            assert [len(both[home].arrived), len(both[1 - home].arrived)] == [4, 0]
            both[home].arrived.clear()
            homes.add(home)
    assert homes == {0, 1}


def test_a_conversation_and_a_file_stay_with_the_clients_own_url() -> None:
    with recorders() as (both, urls), spreading(urls) as client:
        for _ in range(SESSIONS):
            with tenuto.run():
                client.files.retrieve("f")
                client.responses.create(model="m", input="hi", conversation="c")
    assert [len(one.arrived) for one in both] == [2 * SESSIONS, 0]
