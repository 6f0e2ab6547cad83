"""vllm-router's program scheduling reads our context, and its refusals are understood."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import tenuto
from tenuto import _wire, dialects
from tenuto.dialects.agentic import agentic_context
from tests.router.fleet import Fleet, routed

ROOT, CHILD = "0" * 32, "1" * 32
ROW = dialects.named("vllm-router-pd")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    options = ("--policy", "consistent_hash", "--enable-program-scheduling", "--worker-urls")
    with routed(tmp_path_factory.mktemp("router") / "log", 2, *options, "{a}", "{b}") as running:
        yield running


def post(fleet: Fleet, context: str) -> httpx.Response:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    body["vllm_xargs"] = {"agentic_context": context}
    return httpx.post(f"{fleet.url}/v1/chat/completions", json=body)


@pytest.mark.parametrize(
    "said",
    [
        _wire.Markers(ROOT, turn=_wire.Turn(n=0, attempt=0)),
        _wire.Markers(ROOT, None, "r" * 32, _wire.Turn(n=999_999_999, ttl=99_999_999), "i.1"),
        _wire.Markers(ROOT, turn=_wire.Turn(n=0, ttl=0)),
        _wire.Markers(CHILD, ROOT, "r" * 32, _wire.Turn(n=0, fork="inherit")),
        _wire.Markers("x" * 64),
    ],
)
@pytest.mark.parametrize("root", [None, ROOT])
def test_the_router_takes_the_context_of_every_kind_of_turn(
    fleet: Fleet, said: _wire.Markers, root: str | None
) -> None:
    answer = post(fleet, agentic_context(said, _wire.encode_turn(said.turn), root))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "context",
    [
        {"program_id": ROOT, "blocks_parent": True},
        {"program_id": ROOT, "step_id": "0"},
        {"program_id": "x" * 257},
        "no json",
    ],
)
def test_a_refusal_of_the_context_is_understood_as_one(fleet: Fleet, context: Any) -> None:
    answer = post(fleet, context if isinstance(context, str) else json.dumps(context))
    assert answer.status_code == 400
    refused = dialects.rejected_fields(ROW, answer.status_code, answer.text)
    assert refused == {"vllm_xargs.agentic_context"}


def test_each_agent_of_a_run_is_a_program_with_a_place_of_its_own(
    fleet: Fleet, prompt: str
) -> None:
    fleet.forget()
    client = fleet.client("vllm-router-pd")
    for at in range(8):
        with tenuto.run(f"{prompt} {at}") as run:
            for name in ("planner", "tool"):
                with run.agent(name):
                    for turn in range(3):
                        text = f"{name} {turn}"
                        message: Any = {"role": "user", "content": text}
                        client.chat.completions.create(model="m", messages=[message])
    workers: dict[str, set[str]] = defaultdict(set)
    for name, arrived in fleet.calls():
        context = json.loads(arrived.body["vllm_xargs"]["agentic_context"])
        if "parent_program_id" in context:
            workers[context["program_id"]].add(name)
    assert len(workers) == 16
    assert all(len(names) == 1 for names in workers.values())
    assert httpx.get(f"{fleet.url}/scheduling/diagnostics").json()["enabled"] is True
