"""The Weka (kv-cache-tester) schema as it stands in files, checked by pydantic.

Two forms are read: the published one (`hash_ids`), and the packed one, where `hk`
counts the ids kept from the agent's previous request and `hr` lists runs
`[start, length]` of the rest. https://github.com/callanjfox/kv-cache-tester
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Run = tuple[int, Annotated[int, Field(ge=1)]]


class RequestRow(BaseModel):
    """One model call; `t` and `api_time` in seconds, `in` and `out` in tokens."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    type: Literal["s", "n"]
    t: float
    input_tokens: int = Field(alias="in", ge=0)
    output_tokens: int = Field(alias="out", ge=0)
    api_time: float | None = None
    hash_ids: tuple[int, ...] | None = None
    hk: int | None = None
    hr: tuple[Run, ...] | None = None


class SubagentRow(BaseModel):
    """One subagent with its calls; whose clock they follow is for the reader to find."""

    model_config = ConfigDict(frozen=True)

    type: Literal["subagent"]
    t: float
    agent_id: str
    subagent_type: str = "subagent"
    duration_ms: float | None = None
    status: str = "completed"
    requests: tuple[RequestRow, ...] = ()


class TraceRow(BaseModel):
    """One session of a user, with the subagents it forked."""

    model_config = ConfigDict(frozen=True)

    id: str
    block_size: int = Field(ge=1)
    requests: tuple[Annotated[RequestRow | SubagentRow, Field(discriminator="type")], ...]


def unpacked(requests: tuple[RequestRow, ...]) -> list[tuple[int, ...]]:
    """Return the block ids of one agent's requests, whichever form the file has.

    Raises:
        ValueError: when a request has neither `hash_ids` nor `hk` and `hr`.
    """
    found: list[tuple[int, ...]] = []
    last: tuple[int, ...] = ()
    for row in requests:
        if row.hash_ids is not None:
            last = row.hash_ids
        elif row.hk is not None and row.hr is not None:
            fresh = [block for start, length in row.hr for block in range(start, start + length)]
            last = (*last[: row.hk], *fresh)
        else:
            message = f"the request at t={row.t} has neither hash_ids nor hk and hr"
            raise ValueError(message)
        found.append(last)
    return found
