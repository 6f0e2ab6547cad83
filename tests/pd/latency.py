"""Measure what the application adds to the first token, and print JSON.

    python -m tests.pd.latency > docs/measurements/prefill_decode_latency.json

The servers answer at once, in processes of their own, so that nothing but the ways to ask is
measured: by hand, one stage after the other, and through the application, in turn.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import httpx

from benchmarks.machine import machine
from examples.demo.processes import free_ports
from tenuto_vllm.pd import stages
from tests.loopback import eventually, serving
from tests.pd.pair import tokens
from tests.server.pd_fakes import FakeServer

PROMPTS = (256, 20_000, 140_000)
ROUNDS = 200
WARM = 10


@contextlib.contextmanager
def command(prefill: str, decode: str, always: str) -> Iterator[str]:
    """Run `tenuto-vllm pd` as a process of its own."""
    port = free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    line = f"-m tenuto_vllm.cli pd --port {port} --block-size 32".split()
    line += ["--always", always, "--prefill", prefill, "--decode", decode]
    process = subprocess.Popen(
        [sys.executable, *line], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        assert eventually(lambda: _is_ready(url), 300)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def _is_ready(url: str) -> bool:
    try:
        told = httpx.get(url + "/health", trust_env=False).json()
    except httpx.TransportError:
        return False
    return told["ready"] and not any(one.get("problem") for one in told["servers"])


def first_token_s(client: httpx.Client, url: str, body: Any) -> float:
    """Return how long a stream's first event takes, from before the request."""
    begun = time.perf_counter()
    with client.stream("POST", url + "/v1/completions", json=body) as answer:
        parts = answer.iter_raw()
        next(parts)
        took = time.perf_counter() - begun
        for _ in parts:
            pass
    return took


def by_hand_s(client: httpx.Client, prefill: str, decode: str, body: dict[str, Any]) -> float:
    """Return the same of the two stages, one after the other."""
    begun = time.perf_counter()
    raw = stages.prefill(json.dumps(body).encode(), body, None)
    headers = {"content-type": "application/json"}
    url = prefill + "/v1/completions"
    told = client.post(url, content=raw, headers=headers).json()
    body = {**body, stages.PARAMS: told[stages.PARAMS]}
    return time.perf_counter() - begun + first_token_s(client, decode, body)


def latency(prefill: str, decode: str, always: str, prompt: int) -> dict[str, Any]:
    """Return medians of both ways, interleaved, in milliseconds."""
    app_s: list[float] = []
    hand_s: list[float] = []
    with (
        command(prefill, decode, always) as url,
        httpx.Client(trust_env=False, timeout=60) as client,
    ):
        for n in range(ROUNDS + WARM):
            seed = time.time_ns()
            bodies = [
                {
                    "model": "tiny",
                    "prompt": tokens(prompt, seed + side),
                    "max_tokens": 2,
                    "stream": True,
                    "temperature": 0,
                }
                for side in (0, 1)
            ]

            def app(body: Any = bodies[0]) -> None:
                app_s.append(first_token_s(client, url, body))

            def hand(body: Any = bodies[1]) -> None:
                if always == "remote":
                    hand_s.append(by_hand_s(client, prefill, decode, body))
                else:
                    hand_s.append(first_token_s(client, decode, body))

            for way in (app, hand) if n % 2 else (hand, app):
                way()
    differences = [a - b for a, b in zip(app_s[WARM:], hand_s[WARM:], strict=True)]
    return {
        "way": always,
        "prompt_tokens": prompt,
        "by_hand_ms": round(median(hand_s[WARM:]) * 1e3, 2),
        "application_ms": round(median(app_s[WARM:]) * 1e3, 2),
        "added_ms": round((median(app_s[WARM:]) - median(hand_s[WARM:])) * 1e3, 2),
        "median_of_differences_ms": round(median(differences) * 1e3, 2),
    }


@contextlib.contextmanager
def fake(role: str) -> Iterator[str]:
    """Run a server that answers at once; yields its URL."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(role, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("end")
        process.join(20)


def _serve(role: str, pipe: Any) -> None:
    server = FakeServer(role)
    with serving(server) as url:
        pipe.send(url)
        pipe.recv()


def main() -> None:
    """Measure, and print."""
    with fake("prefill") as prefill, fake("decode") as decode:
        rows = [
            latency(prefill, decode, always, prompt)
            for prompt in PROMPTS
            for always in ("remote", "local")
        ]
    print(json.dumps({"machine": machine(), "rounds": ROUNDS, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
