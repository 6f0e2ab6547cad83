"""The first line of a result file: everything that two runs must share to be compared."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

VERSION = 1


class Header(BaseModel):
    """What was run, against what.

    Attributes:
        kind: `header`.
        v: version of the format.
        name: of this side, as tables and pictures call it.
        traces: digest of each trace by its id (`tenuto.trace.digest`), scaled as it was run.
        calls: how many each trace has, by its id; empty where the writer did not say.
        seed: of everything that was drawn.
        identity: name of the dialect that marked the calls; None when nothing did.
        mode: `closed` (tools take their recorded time after the answer), `fixed` (the recorded
            schedule) or `asap`.
        time_scale: share of the recorded waits that was kept.
        gap_cap_s: longest wait that was kept, before scaling; None without one.
        live_sessions: traces that ran at once; None for all.
        concurrency: calls in flight at most; None without a limit.
        max_output_tokens: answers were cut to this; None when they were not.
        repeats: how many times the traces were to be run.
        route: of the API.
        prompt_form: what prompts were sent as.
        vocab: token ids of prompts are below it; None for text.
        cache_bust: each repeat's prompts share nothing with another's.
        reset: the server's prefix cache was emptied before each repeat.
        new_connections: each call had a connection of its own.
        cached_known: whether the server says how many prompt tokens it had cached; found out
            from the turns when a file is read, so a line of the file always has True.
        clock: `real` or `virtual`.
        target: URL, `embedded` or `simulator`.
        model: served model name; empty where there is none.
        ranks: data-parallel ranks, None where that is not known.
        gpus: that the server has, for figures per GPU; the ranks where it was not said.
        engine: settings of the engine, where they are ours to know: blocks, block size,
            placement, retention, latency.
        machine: kind of machine, system and Python, without its name.
        started: ISO 8601 date and time, UTC.
        resumed: how many times the run was taken up again after a break.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["header"] = "header"
    v: Literal[1] = VERSION
    name: str
    traces: dict[str, str]
    calls: dict[str, int] = {}
    seed: int = 0
    identity: str | None = None
    mode: Literal["closed", "fixed", "asap"] = "closed"
    time_scale: float = 1.0
    gap_cap_s: float | None = None
    live_sessions: int | None = None
    concurrency: int | None = None
    max_output_tokens: int | None = None
    repeats: int = 1
    route: Literal["completions", "chat"] = "completions"
    prompt_form: Literal["text", "tokens"] = "text"
    vocab: int | None = None
    cache_bust: bool = True
    reset: bool = False
    new_connections: bool = False
    cached_known: bool = True
    clock: Literal["real", "virtual"] = "real"
    target: str
    model: str = ""
    ranks: int | None = None
    gpus: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    engine: dict[str, Any] = {}
    machine: str = ""
    started: str = ""
    resumed: int = 0
