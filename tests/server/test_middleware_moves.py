"""When a session leaves its home, and what leaves none: the middleware on the embedded engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx

import tenuto_vllm
from tenuto_vllm.embedded import EngineSettings, serve
from tests.loopback import eventually


@contextmanager
def engine(**size: Any) -> Iterator[httpx.Client]:
    fast = {"prefill_tokens_per_s": float("inf"), "decode_tokens_per_s": float("inf")}
    settings = EngineSettings(**({"ranks": 2, **fast} | size))
    with (
        serve(settings, middleware=[tenuto_vllm.TurnMiddleware]) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=30) as http,
    ):
        yield http


class Session:
    """A client that keeps its token, and grows its prompt each turn."""

    def __init__(self, http: httpx.Client, name: str, size: int) -> None:
        self._http = http
        self._name = name
        self._size = size
        self.n = 0
        self.token: str | None = None

    def turn(self, **said: str) -> httpx.Response:
        told = ", ".join([f"n={self.n}", *(f"{key}={value}" for key, value in said.items())])
        headers = {"X-Session-ID": self._name, "X-Agent-Turn": told}
        if self.token is not None:
            headers["X-Agent-Affinity"] = self.token
        prompt = (self._name * self._size)[: self._size + 16 * self.n]
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 1}
        answer = self._http.post("/v1/completions", json=body, headers=headers)
        answer.raise_for_status()
        self.token = answer.headers.get("X-Agent-Affinity", self.token)
        self.n += 1
        return answer


def why(answer: httpx.Response) -> str:
    return answer.headers["X-Agent-Served"].rpartition("why=")[2]


def test_sessions_that_begin_one_after_another_fill_all_ranks_alike() -> None:
    with engine(ranks=4) as http:
        ranks = Counter(
            Session(http, f"session-{n:02}", 640).turn().headers["X-Engine-Rank"] for n in range(16)
        )
        assert set(ranks.values()) == {4}


def test_a_session_that_was_evicted_at_home_is_placed_anew_and_stays_there() -> None:
    # A rank holds 1,600 tokens: one session of 1,000 at a time.
    with engine(blocks=101) as http:
        first = Session(http, "session-first", 1_000)
        home = first.turn().headers["X-Engine-Rank"]
        others = [Session(http, f"session-{n:02}", 1_000) for n in range(6)]
        there = [other for other in others if other.turn().headers["X-Engine-Rank"] == home]
        assert len(there) >= 2
        moved = first.turn()
        assert why(moved) in {"moved", "home"}
        assert moved.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert why(first.turn()) == "home"
        assert first.turn().json()["usage"]["prompt_tokens_details"]["cached_tokens"] >= 960


def test_a_session_is_not_moved_while_its_home_holds_it() -> None:
    with engine(blocks=1_001) as http:
        sessions = [Session(http, f"session-{n:02}", 1_000) for n in range(6)]
        homes = [session.turn().headers["X-Engine-Rank"] for session in sessions]
        for _ in range(5):
            answers = [session.turn() for session in sessions]
            assert [answer.headers["X-Engine-Rank"] for answer in answers] == homes
            assert {why(answer) for answer in answers} == {"home"}


def test_after_the_caches_were_emptied_sessions_are_spread_anew() -> None:
    with engine(blocks=1_001) as http:
        large, *small = [
            Session(http, f"session-{n:02}", 4_000 if n == 0 else 200) for n in range(5)
        ]
        home = large.turn().headers["X-Engine-Rank"]
        with_large = [one for one in small if one.turn().headers["X-Engine-Rank"] == home]
        assert why(large.turn()) == "home"
        assert http.post("/reset_prefix_cache").status_code == 200
        moved = large.turn()
        assert moved.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert why(moved) == ("home" if moved.headers["X-Engine-Rank"] == home else "moved")
        assert len(with_large) < len(small)
        for one in small:
            one.turn()
        assert {why(one.turn()) for one in small} == {"home"}


def test_an_auxiliary_call_goes_where_there_is_room_and_leaves_no_home() -> None:
    with engine() as http:
        session = Session(http, "session-main", 2_000)
        home = session.turn().headers["X-Engine-Rank"]
        side = Session(http, "session-side", 100).turn(**{"class": "auxiliary"})
        assert side.headers["X-Engine-Rank"] != home
        assert side.headers["X-Agent-Served"] == f"rank={1 - int(home)}, why=auxiliary"
        assert "X-Agent-Affinity" not in side.headers
        assert session.turn(**{"class": "auxiliary"}).status_code == 200
        assert session.turn().headers["X-Engine-Rank"] == home


def test_traffic_in_no_session_counts_as_what_its_rank_computes() -> None:
    with engine() as http:
        body = {"model": "tiny", "prompt": "x" * 4_000, "max_tokens": 1}
        busy = http.post("/v1/completions", json=body).headers["X-Engine-Rank"]
        for n in range(4):
            begun = Session(http, f"session-{n:02}", 100).turn()
            assert begun.headers["X-Engine-Rank"] != busy


def test_a_session_that_begins_again_without_its_token_goes_where_it_is_warm() -> None:
    with engine(ranks=8) as http:
        homes = []
        for _ in range(2):
            sessions = [Session(http, f"session-{n:02}", 640) for n in range(8)]
            homes.append([session.turn().headers["X-Engine-Rank"] for session in sessions])
        assert homes[0] == homes[1]


def test_what_waits_is_given_back_by_refusals_errors_and_clients_that_leave() -> None:
    with engine(prefill_tokens_per_s=2_000.0) as http:
        session = Session(http, "session-main", 4_000)
        session.turn()
        bad = {"model": "tiny", "prompt": "", "max_tokens": 1}
        headers = {"X-Session-ID": "session-main", "X-Agent-Turn": "n=1"}
        assert http.post("/v1/completions", json=bad, headers=headers).status_code == 400
        body = {"model": "tiny", "prompt": "y" * 4_000, "max_tokens": 1, "stream": True}
        headers = {"X-Session-ID": "session-gone", "X-Agent-Turn": "n=0"}
        with suppress(httpx.TimeoutException):
            http.post("/v1/completions", json=body, headers=headers, timeout=0.2)
        assert eventually(lambda: http.get("/tenuto/state").json()["pending"] == [0, 0])


def streamed(http: httpx.Client, name: str, n: int, token: str | None = None) -> httpx.Response:
    headers = {"X-Session-ID": name, "X-Agent-Turn": f"n={n}"}
    if token is not None:
        headers["X-Agent-Affinity"] = token
    body = {"model": "tiny", "prompt": name * 100, "max_tokens": 400, "stream": True}
    request = http.build_request("POST", "/v1/completions", json=body, headers=headers)
    return http.send(request, stream=True)


def test_turns_of_one_session_in_flight_at_once_share_one_home() -> None:
    with engine(ranks=8, decode_tokens_per_s=100.0) as http:
        first = [streamed(http, "session-fan-out", 0) for _ in range(4)]
        (home,) = {answer.headers["X-Engine-Rank"] for answer in first}
        token = first[0].headers["X-Agent-Affinity"]
        later = [streamed(http, "session-fan-out", n, token) for n in (1, 1, 2)]
        assert {answer.headers["X-Engine-Rank"] for answer in later} == {home}
        for answer in (*first, *later):
            answer.close()
        assert eventually(lambda: sum(http.get("/tenuto/state").json()["in_flight"]) == 0)


def test_a_session_whose_first_turn_was_given_up_has_no_home_yet() -> None:
    with engine(ranks=2, prefill_tokens_per_s=200.0) as http:
        body = {"model": "tiny", "prompt": "y" * 4_000, "max_tokens": 1, "stream": True}
        headers = {"X-Session-ID": "session-gone", "X-Agent-Turn": "n=0"}
        with suppress(httpx.TimeoutException):
            http.post("/v1/completions", json=body, headers=headers, timeout=0.3)
        assert eventually(lambda: sum(http.get("/tenuto/state").json()["in_flight"]) == 0)
        again = streamed(http, "session-gone", 0)
        assert again.headers["X-Agent-Served"].endswith("why=first")
        again.close()
