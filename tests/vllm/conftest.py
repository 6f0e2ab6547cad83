"""Real servers for the tests in this folder; each takes about 40 s to start."""

from __future__ import annotations

import os
import re
from collections import Counter

import httpx
import pytest

from examples.demo.engines import vllm_server
from tenuto_vllm.engine import seam

OBSERVER = "tenuto_vllm.asgi.observer.RankObserver"
ASK = "tests.vllm.conftest.RankFromHeader"


class RankFromHeader:
    """Inside the server: ask for the rank in `X-Want-Rank`, and name this process."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_pid(message):
            if message["type"] == "http.response.start":
                pid = (b"x-api-pid", b"%d" % os.getpid())
                message = {**message, "headers": [*message["headers"], pid]}
            await send(message)

        seam.install(scope["app"].state.engine_client)
        wanted = dict(scope["headers"]).get(b"x-want-rank")
        with seam.request_box(scope) as box:
            box.wanted = None if wanted is None else int(wanted)
            await self._app(scope, receive, send_with_pid)


@pytest.fixture(scope="session")
def observed():
    """One API process, two ranks; the observer sees what `X-Want-Rank` asked for."""
    with vllm_server(ranks=2, middleware=(ASK, OBSERVER), num_blocks=2048) as server:
        yield server


# As in tests/vllm/recorded.py, which only an engine's process imports.
FOLDER = "TENUTO_TEST_FOLDER"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Where the engines of `recording` write down what reaches them."""
    return tmp_path_factory.mktemp("recorded")


@pytest.fixture(scope="session")
def recording(folder):
    """Two API processes and two ranks with the middleware and the scheduler, which writes down."""
    with vllm_server(
        ranks=2,
        api_processes=2,
        middleware=("tenuto_vllm.TurnMiddleware", OBSERVER),
        num_blocks=2048,
        extra_args=(
            *("--scheduler-cls", "tests.vllm.recorded.Recorded"),
            *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        ),
        env={FOLDER: str(folder), "TENUTO_LOG": "info"},
    ) as started:
        yield started


@pytest.fixture(scope="session")
def client(observed):
    with httpx.Client(base_url=observed.root_url, timeout=120, trust_env=False) as client:
        yield client


@pytest.fixture
def finished(client):
    """Requests that each engine has finished, by vLLM's own counters."""
    return lambda: finished_by_engine(client)


def finished_by_engine(client):
    """Return how many requests each engine has finished; vLLM leaves out those hung up on."""
    return by_engine(client, "request_success_total")


def by_engine(client, name):
    """Return one of vLLM's numbers at /metrics, summed over all labels but the engine."""
    numbers = Counter()
    pattern = rf"^vllm:{name}\{{([^}}]*)\}} (\S+)$"
    for labels, value in re.findall(pattern, client.get("/metrics").text, re.MULTILINE):
        numbers[int(re.search(r'engine="(\d+)"', labels)[1])] += int(float(value))
    return numbers
