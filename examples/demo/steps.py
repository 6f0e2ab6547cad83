"""The demo's steps: record the agent programs, replay what they did, compare both sides.

The last two are the commands `tenuto replay` and `tenuto compare`, called as they would be
from a shell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from openai import AsyncOpenAI

import tenuto
from examples.demo.engines import MODEL_NAME, Server, embedded_server, vllm_server
from examples.demo.program import work_on
from examples.demo.tickets import TICKETS
from tenuto.cli import main as command
from tenuto.report import Side, timeline_svg
from tenuto.results import read

RANKS = 2
SIDES = {"without tenuto": False, "with tenuto": True}

_SESSION = Path(__file__).resolve().parents[1] / "traces" / "weka_trace_0277_f8.jsonl.gz"
_EXTENSION = "tenuto_vllm.TurnMiddleware"
_OBSERVER = "tenuto_vllm.asgi.observer.RankObserver"
_BLOCK_SIZE = {"embedded": 16, "vllm": 128}

# Each rank could hold every session at once: what is lost is lost to placement, not to
# eviction. 16-token blocks, as many tokens as 10 of the longest prompts.
_BLOCKS = 10_000

_TITLE = "Which of two ranks served each turn, and how much of its prompt it had cached"
_NOTES = {
    "embedded": "Embedded engine: placement and cache as in vLLM, token counts exact; times are "
    "modelled and stretch on a busy machine.",
    "vllm": "Real vLLM with a tiny random model on CPU: token counts are exact, times are "
    "this machine's and noisy.",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How one demo runs.

    Attributes:
        engine: "embedded" or "vllm".
        out: folder for what it leaves behind.
        rounds: how many rounds of their plans the agent programs run, 1 to 3.
        time_scale: share of the recorded pauses to keep in the replay.
        prefill_tokens_per_s: modelled speed of a rank of the embedded engine.
        decode_tokens_per_s: modelled speed of an answer of the embedded engine.
    """

    engine: str
    out: Path
    rounds: int = 3
    time_scale: float = 0.004
    prefill_tokens_per_s: float = 8_000.0
    decode_tokens_per_s: float = 400.0

    def results(self, side: str) -> Path:
        """Return where a side's results are."""
        return self.out / f"{side.replace(' ', '-')}.jsonl"


def record(plan: Plan, tell: Callable[[str], None]) -> Path:
    """Run the agent programs against an engine; return the trace of what they asked."""
    trace = plan.out / "programs.jsonl"
    trace.unlink(missing_ok=True)
    with _server(plan, marked=True) as server:
        tell(f"engine is up after {server.start_s:.1f} s")
        with tenuto.record(trace):
            asyncio.run(_work(plan, server.base_url))
    return trace


def replay(plan: Plan, trace: Path, side: str, tell: Callable[[str], None]) -> None:
    """Play what was recorded against a fresh engine, with tenuto or without.

    Raises:
        RuntimeError: the command failed.
    """
    marked = SIDES[side]
    plan.results(side).unlink(missing_ok=True)
    with _server(plan, marked=marked) as server:
        tell(f"engine is up after {server.start_s:.1f} s")
        words = ["replay", str(trace), str(_SESSION), "--target", server.root_url]
        words += ["--name", side, "--out", str(plan.results(side)), "--model", MODEL_NAME]
        words += ["--time-scale", str(plan.time_scale), "--max-output", "48", "--repeat", "2"]
        words += ["--ranks", str(RANKS), "--block-size", str(_BLOCK_SIZE[plan.engine])]
        if command([*words, "--quiet", *([] if marked else ["--unmarked"])]):
            raise RuntimeError(f"tenuto replay failed {side}")


def compare(plan: Plan) -> None:
    """Compare the sides: a table, a page and a picture.

    Raises:
        RuntimeError: the command failed.
    """
    paths = [plan.results(side) for side in SIDES]
    words = ["compare", *map(str, paths), "--allow", "identity"]
    if command([*words, "--html", str(plan.out / "demo.html")]):
        raise RuntimeError("tenuto compare failed")
    sides = [
        Side(name, [turn for turn in read(path).turns if turn.repeat == 0])
        for name, path in zip(SIDES, paths, strict=True)
    ]
    picture = timeline_svg(sides, ranks=RANKS, title=_TITLE, note=_NOTES[plan.engine])
    (plan.out / "demo.svg").write_text(picture, encoding="utf-8")


def _server(plan: Plan, *, marked: bool) -> AbstractContextManager[Server]:
    extension = (_EXTENSION,) if marked else ()
    if plan.engine == "vllm":
        return vllm_server(ranks=RANKS, middleware=(*extension, _OBSERVER))
    return embedded_server(
        ranks=RANKS,
        num_blocks=_BLOCKS,
        middleware=extension,
        prefill_tokens_per_s=plan.prefill_tokens_per_s,
        decode_tokens_per_s=plan.decode_tokens_per_s,
    )


async def _work(plan: Plan, base_url: str) -> None:
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        tenuto.wrap(client)
        async with asyncio.TaskGroup() as group:
            for ticket in TICKETS:
                group.create_task(work_on(ticket.first(plan.rounds), client, model=MODEL_NAME))
