"""Settings, drained ranks and what is told of them, on real vLLM."""

from __future__ import annotations

import json
import os
import re
import subprocess

import httpx
import pytest
from prometheus_client import REGISTRY

from examples.demo.engines import vllm_python, vllm_server
from examples.demo.processes import EngineStartError
from tenuto_vllm.metrics import Counters
from tests.loopback import eventually

from .conftest import OBSERVER

TURNS = "tenuto_vllm.TurnMiddleware"
KEY = "a-key-of-the-operators"
ADMIN = {"Authorization": f"Bearer {KEY}"}
SENTENCE = "tenuto: TENUTO_SESSIONS is 'many'; it must be a whole number from 1 to 999999999."
PROCESSES = 2
LOADER = """
from vllm.plugins import load_general_plugins
for _ in range(2):
    load_general_plugins()
"""


def loaded(folder, **variables):
    """What vLLM's own loader of plugins says in a process."""
    return subprocess.run(
        [vllm_python(), "-c", LOADER],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, **variables},
    ).stderr


def test_vllms_own_loader_warns_of_the_rust_front_end_and_of_nothing_else(tmp_path):
    warning = "VLLM_USE_RUST_FRONTEND is set: vLLM's Rust front end runs no Python middleware"
    assert loaded(tmp_path, VLLM_USE_RUST_FRONTEND="1").count(warning) == 1
    assert "tenuto" not in loaded(tmp_path)
    assert "tenuto" not in loaded(tmp_path, VLLM_USE_RUST_FRONTEND="1", VLLM_PLUGINS="other")


def failing(log_path, processes=PROCESSES, **variables):
    """Start a server with a bad setting, and return what it says."""
    with (
        pytest.raises(EngineStartError, match=r"ended with status [^0]"),
        vllm_server(
            ranks=2,
            api_processes=processes,
            middleware=(TURNS,),
            num_blocks=1024,
            env={"TENUTO_SESSIONS": "many", **variables},
            log_path=log_path,
        ),
    ):
        pass
    return log_path.read_text(encoding="utf-8")


def test_a_bad_setting_ends_vllm_serve_before_it_loads_with_a_sentence(tmp_path):
    said = failing(tmp_path / "log")
    assert said.rstrip().splitlines()[-1] == SENTENCE
    assert "Traceback" not in said
    assert "EngineCore" not in said


def test_without_the_plugin_it_ends_all_the_same_and_the_sentence_is_there(tmp_path):
    assert SENTENCE in failing(tmp_path / "log", VLLM_PLUGINS="")


def test_dry_runs_and_drained_ranks_are_numbers_of_prometheus():
    def value(name, **labels):
        return REGISTRY.get_sample_value(f"tenuto_{name}", labels)

    counters = Counters()
    counters.imagine(100, 200, agrees=True)
    counters.imagine(50, 50, agrees=False)
    assert value("shadow_uncached_tokens_total") == 150
    assert [value("shadow_requests_total", agrees=said) for said in ("yes", "no")] == [1, 1]
    assert (counters.shadow["uncached_tokens"], counters.shadow["stock_uncached_tokens"]) == (
        150,
        250,
    )
    for ranks, drained, shown in ((3, {1, 2}, [0, 1, 1]), (2, {1, 2}, [0, 1, 0]), (2, {}, [0] * 3)):
        counters.stand(ranks, frozenset(drained))
        assert [value("rank_drained", rank=str(rank)) for rank in range(3)] == shown


@pytest.fixture(scope="module")
def server():
    env = {"TENUTO_ADMIN_KEY": KEY, "TENUTO_LOG": "info"}
    size = {"ranks": 2, "api_processes": PROCESSES, "num_blocks": 2048}
    with vllm_server(middleware=(TURNS, OBSERVER), env=env, **size) as started:
        yield started


def ask(server, path, method="GET", **more):
    """One request on a connection of its own: any API process may take it."""
    return httpx.request(method, server.root_url + path, timeout=60, trust_env=False, **more)


def turn(server, session, n=0, token=None):
    headers = {"X-Session-ID": session, "X-Agent-Turn": f"n={n}"}
    if token is not None:
        headers["X-Agent-Affinity"] = token
    body = {"model": "tiny", "prompt": f"{session} " * 60, "max_tokens": 1}
    answer = ask(server, "/v1/completions", "POST", json=body, headers=headers)
    answer.raise_for_status()
    return answer.headers


def states(server):
    """The state of each API process, by its id."""
    told = {}
    for _ in range(200):
        state = ask(server, "/tenuto/state").json()
        told[state["process"]] = state
        if len(told) == PROCESSES:
            return told
    raise AssertionError("not every API process has answered")


def order(server, what, rank, status=200):
    answer = ask(server, f"/tenuto/ranks/{what}", "POST", json={"rank": rank}, headers=ADMIN)
    assert answer.status_code == status
    return answer.json()


def metric(server, name):
    text = ask(server, "/metrics").text
    found = re.findall(rf'^{name}\{{[^}}]*rank="(\d)"[^}}]*\}} (\S+)$', text, re.MULTILINE)
    return {int(rank): float(value) for rank, value in found}


def test_an_order_to_one_api_process_holds_in_all_and_is_seen_at_metrics(server):
    homes = {f"session-{n:02}": turn(server, f"session-{n:02}") for n in range(8)}
    assert {answer["X-Engine-Rank"] for answer in homes.values()} == {"0", "1"}
    assert order(server, "drain", 1) == {"ranks": 2, "drained": [1]}
    assert eventually(lambda: all(s["drained"] == [1] for s in states(server).values()))
    for session, answer in homes.items():
        moved = turn(server, session, 1, answer["X-Agent-Affinity"])
        assert (moved["X-Engine-Rank"], moved["X-Agent-Affinity"].split(".")[1]) == ("0", "0")
    assert eventually(lambda: metric(server, "tenuto_rank_drained") == {0: 0.0, 1: 1.0})
    order(server, "drain", 0, status=409)
    assert order(server, "restore", 1)["drained"] == []
    assert eventually(lambda: all(s["drained"] == [] for s in states(server).values()))
    assert {turn(server, f"another-{n:02}")["X-Engine-Rank"] for n in range(8)} == {"0", "1"}
    assert eventually(lambda: metric(server, "tenuto_rank_drained") == {0: 0.0, 1: 0.0})


def test_the_state_tells_of_the_running_engine_and_names_sessions_for_the_key_alone(server):
    turn(server, "session-of-mine")
    told = states(server).values()
    assert len({state["instance"] for state in told}) == 1
    assert all(len(state["load"]) == len(state["homes"]) == state["ranks"] == 2 for state in told)
    assert "session-of-mine" not in json.dumps(list(told))
    assert ask(server, "/tenuto/state?sessions=1").status_code == 401
    listed = set()
    for _ in range(20):
        answer = ask(server, "/tenuto/state?sessions=1", headers=ADMIN).json()
        listed |= {one["session"] for one in answer["listed"]}
    assert "session-of-mine" in listed


def test_events_are_lines_of_json_in_the_servers_log(server):
    order(server, "drain", 1)
    order(server, "restore", 1)
    said = server.log_path.read_text(encoding="utf-8").splitlines()
    told = [json.loads(line) for line in said if line.startswith('{"')]
    started = [one for one in told if one["event"] == "started"]
    assert len({one["process"] for one in started}) == PROCESSES
    assert {"drained", "restored"} <= {one["event"] for one in told}
    assert not any("session-" in line for line in said if line.startswith('{"'))
