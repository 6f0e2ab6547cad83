"""What becomes of sessions when a server behind a front is gone, and when it is back."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest
from openai import OpenAI

import tenuto
import tenuto_vllm
from examples.deploy.fronts import front
from tenuto_vllm.config import Settings
from tenuto_vllm.embedded import EngineSettings, serve
from tests.loopback import eventually
from tests.router.test_deploy_fronts import FRONTS, chat

SESSIONS = 16
# So many that of those of a server that is gone some lie deep among its points on a ring.
RING_SESSIONS = 96
SETTINGS = EngineSettings(served_model_name="m", ranks=2)


def named(endpoint: str, *, trust_rank: bool) -> list[Any]:
    """Return the extension of a server of that name, and what tells the name in each answer."""

    class Named:
        def __init__(self, app: Any) -> None:
            self._app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async def told(message: Any) -> None:
                if message["type"] == "http.response.start":
                    server = (b"x-server", endpoint.encode())
                    message = {**message, "headers": [*message["headers"], server]}
                await send(message)

            await self._app(scope, receive, told)

    settings = Settings(endpoint=endpoint, trust_rank=trust_rank)
    return [partial(tenuto_vllm.TurnMiddleware, settings=settings), Named]


@contextlib.contextmanager
def server(endpoint: str, port: int = 0, *, trust_rank: bool = False) -> Generator[str]:
    with serve(SETTINGS, named(endpoint, trust_rank=trust_rank), port=port) as url:
        yield url


def turn(client: OpenAI, name: str, number: int, sessions: int = SESSIONS) -> dict[str, str]:
    """Have a turn of every session and return the server of each."""
    homes: dict[str, str] = {}
    for at in range(sessions):
        with tenuto.run(f"{name} {at}") as run:
            messages: Any = [{"role": "user", "content": f"{name} {at} {number}"}]
            raw = client.chat.completions.with_raw_response.create(
                model="m", messages=messages, max_tokens=4
            )
            homes[run.session_id] = raw.headers["x-server"]
    return homes


@pytest.mark.parametrize("name", FRONTS)
def test_sessions_of_a_server_that_is_gone_go_on_at_the_other(name: str, prompt: str) -> None:
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.ExitStack())
        a, b = first.enter_context(server("a")), stack.enter_context(server("b"))
        up = stack.enter_context(front(name, [a, b], env={"RANKS": "2"}))
        # vllm-router answers 500 until it has counted a server out: openai's own retries do.
        retries = 6 if name.startswith("vllm-router") else 0
        client = stack.enter_context(OpenAI(base_url=up.base_url, api_key="k", max_retries=retries))
        tenuto.wrap(client, dialect="vllm-router" if name.startswith("vllm-router") else "vllm")
        sessions = RING_SESSIONS if name.startswith("envoy") else SESSIONS
        before = turn(client, prompt, 0, sessions)
        assert set(before.values()) == {"a", "b"}
        first.close()
        while_gone = [turn(client, prompt, number, sessions) for number in (1, 2)]
        assert all(set(homes.values()) == {"b"} for homes in while_gone)


@pytest.mark.parametrize(
    ("name", "then"), [("nginx/by-token.conf", "b"), ("nginx/by-session.conf", "a")]
)
def test_by_token_a_session_that_has_moved_stays_and_by_hash_it_goes_back(
    name: str, then: str, prompt: str
) -> None:
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.ExitStack())
        a, b = first.enter_context(server("a")), stack.enter_context(server("b"))
        up = stack.enter_context(front(name, [a, b]))
        client = stack.enter_context(OpenAI(base_url=up.base_url, api_key="k", max_retries=0))
        tenuto.wrap(client, dialect="vllm")
        moved = {session for session, home in turn(client, prompt, 0).items() if home == "a"}
        first.close()
        assert set(turn(client, prompt, 1).values()) == {"b"}
        stack.enter_context(server("a", int(a.rpartition(":")[2])))
        # nginx asks a server that has failed again after fail_timeout; first turns tell when.
        rounds = itertools.count()
        assert eventually(
            lambda: "a" in turn(client, f"{prompt} others {next(rounds)}", 0).values(), 30
        )
        assert {turn(client, prompt, 2)[session] for session in moved} == {then}


def test_a_token_decides_over_the_session_and_one_of_nobody_does_not(prompt: str) -> None:
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(server(endpoint)) for endpoint in "ab"]
        up = stack.enter_context(front("nginx/by-token.conf", urls))
        client = stack.enter_context(OpenAI(base_url=up.base_url, api_key="k", max_retries=0))
        messages: Any = [{"role": "user", "content": prompt}]

        def where(token: str) -> str:
            headers = {"X-Session-ID": "one-session", "X-Agent-Affinity": token}
            raw = client.chat.completions.with_raw_response.create(
                model="m", messages=messages, extra_headers=headers
            )
            return raw.headers["x-server"]

        for name in "ab":
            # With the epoch of the rank's cache behind it, where that has been emptied.
            assert {where(f"{name}-0123456789abcdef.{rank}") for rank in ("0", "11", "0.1")} == {
                name
            }
        nobody = ("c-0123456789abcdef.0", "a.0", "a-0123456789abcdef.0x", "0123456789abcdef.0", "")
        assert len({where(token) for token in nobody}) == 1


@pytest.mark.parametrize("name", FRONTS)
def test_later_turns_find_what_earlier_ones_computed(name: str, prompt: str) -> None:
    trust_rank = name.endswith("ranks.sh")
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(server(at, trust_rank=trust_rank)) for at in "ab"]
        up = stack.enter_context(front(name, urls, env={"RANKS": "2"}))
        client = stack.enter_context(OpenAI(base_url=up.base_url, api_key="k", max_retries=0))
        tenuto.wrap(client, dialect="vllm-router" if name.startswith("vllm-router") else "vllm")
        texts = {at: f"{prompt} {at} ".ljust(400, "x") for at in range(7)}
        found: list[int] = []
        for number in range(4):
            for at, text in texts.items():
                with tenuto.run(f"{prompt} {at}"):
                    answer = chat(client, text, max_tokens=8)
                texts[at] = text + "y" * 100
                if number:
                    found.append(answer.usage.prompt_tokens_details.cached_tokens)
        # All of the last prompt but its end: the chat template closes a message, and blocks are 16.
        assert min(found) >= 380
