"""The Weka (kv-cache-tester) schema as it stands in files, checked by pydantic.

Two forms are read: the published one (`hash_ids`), and the packed one, where `hk`
counts the ids kept from the agent's previous request and `hr` lists runs
`[start, length]` of the rest. https://github.com/callanjfox/kv-cache-tester
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tenuto.trace.event import BlockId, BlockSize, Run, Tokens
from tenuto.trace.runs import Runs, dropped, ids_of, merged, runs_of, shared, taken

# So far from what an event may be that a start, a shift and a length can be added.
Finite = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]


class RequestRow(BaseModel):
    """One model call; `t`, `api_time` and `ttft` in seconds, `in` and `out` in tokens."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    type: Literal["s", "n"]
    t: Finite
    input_tokens: Tokens = Field(alias="in")
    output_tokens: Tokens = Field(alias="out")
    api_time: Finite | None = None
    ttft: Finite | None = None
    model: str | None = None
    stop: str | None = None
    hash_ids: list[BlockId] | None = None
    hk: int | None = None
    hr: tuple[Run, ...] | None = None


class SubagentRow(BaseModel):
    """One subagent with its calls; whose clock they follow is for the reader to find."""

    model_config = ConfigDict(frozen=True)

    type: Literal["subagent"]
    t: Finite
    agent_id: str
    subagent_type: str = "subagent"
    duration_ms: Finite | None = None
    status: str = "completed"
    requests: tuple[RequestRow, ...] = ()


class TraceRow(BaseModel):
    """One session of a user, with the subagents it forked."""

    model_config = ConfigDict(frozen=True)

    id: str
    block_size: BlockSize
    hash_id_scope: Literal["local", "global"] = "local"
    requests: tuple[Annotated[RequestRow | SubagentRow, Field(discriminator="type")], ...]


def unpacked(requests: tuple[RequestRow, ...]) -> list[Runs]:
    """Return the block ids of one agent's requests, whichever form the file has.

    Raises:
        ValueError: when a request has neither `hash_ids` nor `hk` and `hr`.
    """
    found: list[Runs] = []
    last: Runs = ()
    last_ids: list[int] = []
    for row in requests:
        if row.hash_ids is not None:
            # Most prompts only grow, and lists are compared faster than walked.
            kept = len(last_ids)
            if kept and row.hash_ids[:kept] == last_ids:
                last = merged((*last, *runs_of(row.hash_ids[kept:])))
            else:
                last = runs_of(row.hash_ids)
            last_ids = row.hash_ids
        elif row.hk is not None and row.hr is not None:
            last = merged((*taken(last, row.hk), *row.hr))
            last_ids = []
        else:
            message = f"the request at t={row.t} has neither hash_ids nor hk and hr"
            raise ValueError(message)
        found.append(last)
    return found


def packed(prompts: list[Runs]) -> list[tuple[int, list[list[int]]]]:
    """Return `hk` and `hr` of the prompts of one agent, in order."""
    rows: list[tuple[int, list[list[int]]]] = []
    last: Runs = ()
    for runs in prompts:
        kept = shared(last, runs)
        rows.append((kept, [list(run) for run in dropped(runs, kept)]))
        last = runs
    return rows


def published(prompts: list[Runs]) -> list[list[int]]:
    """Return `hash_ids` of the prompts of one agent, in order."""
    return [ids_of(runs) for runs in prompts]
