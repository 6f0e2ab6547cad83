"""What the engines say of their caches: at /tenuto/state, at /metrics and in an answer's lease."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tenuto_vllm.prometheus import Metrics
from tests.hinted import STATE, HintedApp, hinted
from tests.loopback import eventually

SID = "0123456789abcdef"
CHAT = "/v1/chat/completions"


def test_the_state_tells_what_each_rank_says_asked_at_most_once_a_second() -> None:
    app = HintedApp(ranks=2)
    with hinted(app) as http:
        told = [http.get("/tenuto/state").json()["retention"] for _ in range(3)]
        assert told == [[STATE, STATE]] * 3
    assert sorted(app.asked) == [0, 1]


def test_a_rank_that_does_not_answer_is_waited_for_a_second_and_asked_once() -> None:
    app = HintedApp(ranks=2)
    app.gate = False
    with hinted(app) as http, ThreadPoolExecutor(3) as pool:
        began_s = time.monotonic()
        answers = list(pool.map(http.get, ["/tenuto/state", "/metrics", "/tenuto/state"]))
        assert time.monotonic() - began_s < 2.5
        assert [answer.status_code for answer in answers] == [200] * 3
        assert answers[0].json()["retention"] == [None, None]
        app.gate = True
        assert eventually(lambda: http.get("/tenuto/state").json()["retention"] == [STATE] * 2)
    assert sorted(app.asked) == [0, 1]


@pytest.mark.parametrize("said", [{}, None, [1], "no"])
def test_an_engine_that_keeps_no_leases_says_nothing(said: Any) -> None:
    app = HintedApp(ranks=1)

    async def call(method: str, *args: str, engine: bytes) -> Any:
        return said

    app.state.engine_client.engine_core._call_utility_async = call
    with hinted(app) as http:
        assert http.get("/metrics").status_code == 200
        assert http.get("/tenuto/state").json()["retention"] == [None]


def test_a_scrape_finds_the_engines_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[tuple[Any, ...], float] = {}
    monkeypatch.setattr("tenuto_vllm.metrics.metrics", lambda: Metrics(Shown, partial_of(seen)))
    app = HintedApp(ranks=2)
    with hinted(app) as http:
        http.get("/health")
        assert app.asked == []
        assert http.get("/metrics").status_code == 200
    for rank in (0, 1):
        shown = {key[0:1] + key[2:]: value for key, value in seen.items() if key[1] == rank}
        assert (
            shown.items()
            >= {
                ("tenuto_retention_blocks", "in_use"): 10,
                ("tenuto_retention_blocks", "evict_first"): 5,
                ("tenuto_retention_blocks", "ordinary"): 55,
                ("tenuto_retention_blocks", "leased"): 30,
                ("tenuto_retention_leases",): 2,
                ("tenuto_retention_events_total", "leased"): 7,
                ("tenuto_retention_tokens_total", "saved"): 640,
            }.items()
        )


class Shown:
    """A family of numbers that shows each in a dictionary, by its name and labels."""

    def __init__(self, name: str, *_: Any, seen: Any = None, **more: Any) -> None:
        self._key: tuple[Any, ...] = (name,)
        self._seen = {} if seen is None else seen
        self.mode = more.get("multiprocess_mode")

    def labels(self, *labels: Any) -> Shown:
        one = Shown(self._key[0], seen=self._seen)
        one._key = (*self._key, *labels)
        return one

    def set(self, value: float) -> None:
        self._seen[self._key] = value

    def inc(self, _: float = 1) -> None:
        """Count nothing."""


def partial_of(seen: dict[tuple[Any, ...], float]) -> Any:
    def gauge(*args: Any, **more: Any) -> Shown:
        # All API processes report the same engines: their numbers must not be summed up.
        assert more["multiprocess_mode"] == "mostrecent"
        return Shown(*args, seen=seen, **more)

    return gauge


def test_a_scrape_of_engines_that_say_something_else_is_answered_all_the_same() -> None:
    app = HintedApp(ranks=1)

    async def call(method: str, *args: str, engine: bytes) -> Any:
        return {"blocks": "many", "free": 1, "counts": [7]}

    app.state.engine_client.engine_core._call_utility_async = call
    with hinted(app) as http:
        assert http.get("/metrics").status_code == 200


@pytest.mark.parametrize(
    ("turn", "lease"),
    [
        ("n=1, ttl=120", ", lease=120"),
        ("n=1, ttl=120, next=user", ", lease=120"),
        ("n=1, ttl=600", ", lease=600"),
        ("n=1, ttl=601", ", lease=600"),
        ("n=1, ttl=99999999", ", lease=600"),
        ("n=1, ttl=0", ""),
        ("n=1", ""),
        ("n=1, ttl=120, next=end", ""),
        ("n=1, ttl=120, class=auxiliary", ""),
    ],
)
def test_an_answer_names_the_lease_where_its_length_is_known(turn: str, lease: str) -> None:
    app = HintedApp(ranks=1)
    with hinted(app) as http:
        headers = {"X-Session-ID": SID, "X-Agent-Turn": turn}
        served = http.post(CHAT, json={}, headers=headers).headers["X-Agent-Served"]
    assert served.partition(", why=")[2].partition(",")[1:] == (
        (",", lease[1:]) if lease else ("", "")
    )
