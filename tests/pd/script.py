"""The turns of a small agent program, and one run of them through the application."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import httpx

from tenuto_vllm.pd.app import App
from tenuto_vllm.pd.options import Options
from tenuto_vllm.placement.split import Costs
from tests.loopback import eventually, serving
from tests.pd.pair import BLOCK, LEASE_S, Pair, ask, counters, ids, since, tokens

OUTPUT = 24
# All processes share this machine's few cores.
_PATIENT = {"stage_least_s": 120.0, "stage_most_s": 300.0}
# Such that prompts of a thousand tokens and more go to the prefill server, and shorter ones stay.
COSTS = Costs(
    prefill_s=0.05,
    prefill_s_per_token=5e-4,
    prefill_s_per_token2=0.0,
    transfer_bytes_per_s=1e8,
    kv_bytes_per_token=1024.0,
    hop_s=0.3,
    stall_weight=0.75,
    decode_s_per_running=0.0,
)

Does = Literal["start", "warm", "large", "fork", "fresh", "compact", "compact unsaid"]


class Step(NamedTuple):
    """One turn: of which session, what it does to the context, and its new tokens."""

    session: str
    does: Does
    new: int


KEEP = 640
STEPS = (
    Step("main", "start", 3000),
    *(Step("main", "warm", 300),) * 4,
    Step("main", "large", 3500),
    *(Step("main", "warm", 250),) * 3,
    Step("fork", "fork", 200),
    *(Step("fork", "warm", 180),) * 3,
    Step("child", "fresh", 1500),
    *(Step("child", "warm", 200),) * 4,
    Step("main", "warm", 300),
    Step("main", "compact", 400),
    *(Step("main", "warm", 220),) * 3,
    Step("main", "compact unsaid", 500),
    *(Step("main", "warm", 200),) * 3,
)


class Row(NamedTuple):
    """What one turn did.

    Attributes:
        step: the turn.
        prompt: its prompt.
        output: its answer.
        told: what the application says of it.
        decode: what the decode server counted for it.
        held: tokens that the decode server should have had cached.
    """

    step: Step
    prompt: list[int]
    output: list[int]
    told: Any
    decode: dict[str, float]
    held: int


class Ran(NamedTuple):
    """A whole run: its turns, and what either server counted."""

    rows: list[Row]
    prefill: dict[str, float]
    decode: dict[str, float]


@contextmanager
def application(pair: Pair, told: list[Any], **options: Any) -> Iterator[tuple[App, str]]:
    """Serve the application in front of both servers, warmed up."""
    given = {"lease_s": float(LEASE_S), "costs": COSTS, **_PATIENT, **options}
    urls = [pair.prefill.root_url], [pair.decode.root_url]
    app = App(Options(*urls, **given), told.append, BLOCK)
    with serving(app) as url:
        assert eventually(lambda: all(one.node().is_up for one in app.fleet.all()), 300)
        yield app, url


@contextmanager
def decoding(url: str) -> Iterator[None]:
    """Let another request decode meanwhile, so that a prefill beside it does damage."""
    begun, over = threading.Event(), threading.Event()

    def stream() -> None:
        while not over.is_set():
            body = {"model": "tiny", "prompt": [65] * 8, "max_tokens": 12000, "stream": True}
            body |= {"ignore_eos": True, "temperature": 0}
            with httpx.stream(
                "POST", url + "/v1/completions", json=body, timeout=60, trust_env=False
            ) as answer:
                for _ in answer.iter_raw():
                    begun.set()
                    if over.is_set():
                        break

    thread = threading.Thread(target=stream)
    thread.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def run(pair: Pair, seed: int, **options: Any) -> Ran:
    """Run the turns; another `seed` shares no block with the runs before."""
    told: list[Any] = []
    with application(pair, told, **options) as (app, url), decoding(url):
        before = counters(pair.prefill.root_url), counters(pair.decode.root_url)
        rows = list(_turns(pair, app, url, seed, told))
        return Ran(
            rows,
            since(pair.prefill.root_url, before[0]),
            since(pair.decode.root_url, before[1]),
        )


def _turns(pair: Pair, app: App, url: str, seed: int, told: list[Any]) -> Iterator[Row]:
    contexts: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    node = pair.decode.root_url
    for number, step in enumerate(STEPS):
        fresh = tokens(step.new, seed * 1000 + number)
        session, said = f"pd-{step.session}-{seed:04}", "phase=tool"
        headers = {"X-Session-ID": session}
        past = contexts.get(step.session, [])
        if step.does == "fork":
            past = contexts["main"]
            headers["X-Parent-Session-ID"] = f"pd-main-{seed:04}"
            said = f"phase=start, fork=inherit, keep={len(past)}"
        elif step.does in {"start", "fresh"}:
            said = "phase=start"
        elif step.does.startswith("compact"):
            past = past[:KEEP]
            said = "phase=compact" + (f", keep={KEEP}" if step.does == "compact" else "")
        n = counts[step.session] = counts.get(step.session, -1) + 1
        headers["X-Agent-Turn"] = f"n={n}, {said}"
        prompt = past + fresh
        before, answered = counters(node), len(told)
        answer = ask(url, prompt, OUTPUT, headers)
        assert answer["status"] == 200, answer
        mine = _mine(told, answered, session)
        decode = _settled(node, before, is_remote=mine.prefiller != node)
        held = app.copies.floor(min(mine.plan.held.get(node, 0), len(prompt) - 1))
        contexts[step.session] = prompt + ids(answer)
        yield Row(step, prompt, ids(answer), mine, decode, held)


def _mine(told: list[Any], answered: int, session: str) -> Any:
    assert eventually(lambda: len(told) > answered)
    return next(one for one in told[answered:] if one.plan.session == session)


def _settled(url: str, before: dict[str, float], *, is_remote: bool) -> dict[str, float]:
    """Return what a server counted, once it has told of its transfer too."""
    if is_remote:
        eventually(lambda: since(url, before)["bytes"] > 0, 5)
    return since(url, before)
