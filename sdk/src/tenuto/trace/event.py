"""The trace file: JSON lines, one event for each model call, checked by pydantic.

Names follow the field where it has one: ATIF 1.8 (`session_id`, `agent_name`, `model_name`,
`cached_tokens`, `tool_call_id`) and OpenTelemetry's GenAI conventions (input and output tokens,
finish reason); the rest are docs/protocol.md's words. Times are seconds on one clock: since
1970 where a recorder wrote them, since the run's start where a format says no more. No text is
in a trace unless it was asked for.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

VERSION = 1

MOST = 2**53
"""The largest count and, in seconds, time: JSON has no larger number that is exact."""
MOST_TOKENS = 2**31
"""The longest prompt or answer; what is beyond would take memory without end."""
MOST_BLOCKS = 2**24
"""The most blocks in a run of ids."""

Count = Annotated[int, Field(ge=0, le=MOST)]
Tokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Seconds = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
BlockSize = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
BlockId = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Guessed = Literal["input_tokens", "output_tokens"]
Run = tuple[BlockId, Annotated[int, Field(ge=1, le=MOST_BLOCKS)]]
"""A run of block ids: (first id, how many), each id one more than the one before."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Fork(_Frozen):
    """Where a session began.

    Attributes:
        session_id: of the parent.
        turn: index of the parent's turn whose answer it began after; None before its first.
        inherits: whether it begins with the parent's context.
    """

    session_id: str
    turn: Count | None = None
    inherits: bool = False


class ToolSpan(_Frozen):
    """A tool whose result a call's prompt brings; it ran between two calls of a session.

    Attributes:
        name: of the tool; empty when it is not known.
        tool_class: what kind of tool it is, as the source calls it (`function`, `mcp`, ...).
        tool_call_id: the model's id of the call.
        start_s: when it was called; of tools that ran at once, when the answer was complete.
        end_s: when its result was there, at the latest when the next call was made.
        output_bytes: of its result.
        is_error: whether the program said that it failed.
    """

    name: str = ""
    tool_class: str | None = None
    tool_call_id: str | None = None
    start_s: Seconds | None = None
    end_s: Seconds | None = None
    output_bytes: Count | None = None
    is_error: bool = False


class Served(_Frozen):
    """Who served a call: server, data-parallel rank, the session's home there, and why."""

    server: str | None = None
    rank: Count | None = None
    home: Count | None = None
    why: str | None = None


class CallEvent(_Frozen):
    """One model call. Lines stand for themselves: any may be lost, repeated or out of order.

    Attributes:
        kind: `call`.
        v: version of the format.
        run_id: of the run.
        session_id: of the session; unique in its run. None: a call in no session.
        parent_session_id: of the session's parent; None at the root.
        agent_name: role name of the session.
        session_class: `main`, `subagent`, `workflow`, `compaction` or `auxiliary`.
        fork: where the session began; on any of its calls, most usefully the first.
        joins: sessions of the run whose end this call waited for.
        turn: index in the session.
        attempt: index of the try of the turn.
        phase: what opened the turn, one of docs/protocol.md's phases.
        model_name: as requested.
        input_tokens: of the prompt, cached ones included; None where it was not said.
        output_tokens: of the answer.
        cached_tokens: prompt tokens that came from a cache, by the server's account.
        block_size: tokens in a block; None where `block_bytes` counts instead.
        block_bytes: bytes of the prompt in a block, where the recorder saw no tokens.
        input_bytes: of the prompt as the recorder cut it; with `block_bytes`.
        output_bytes: of the answer's text, reasoning and arguments of its calls of tools.
        guessed: which counts of tokens are no more than a guess from bytes.
        blocks: ids of the prompt's full blocks, as runs. Equal ids are equal prompts up to
            the block's end. They mean nothing outside of their run, unless `block_scope`
            is `global`.
        block_scope: `run` or `global`: where else an id means the same.
        start_s: when the call was made.
        first_token_s: when its first token came; None when it was not streamed.
        end_s: when the answer was complete; None when it never was.
        finish_reason: of the answer, as the API says it.
        error: kind of the failure, such as `APITimeoutError` or `429`; None on success.
        tools: what ran since the session's last call.
        served: who served it.
        messages: the prompt, where text was asked for.
        answer: the answer, where text was asked for.
        extra: what a source has and this format has no word for.
    """

    kind: Literal["call"] = "call"
    v: Literal[1] = VERSION
    run_id: str
    session_id: str | None = None
    parent_session_id: str | None = None
    agent_name: str = ""
    session_class: str | None = None
    fork: Fork | None = None
    joins: tuple[str, ...] = ()
    turn: Count = 0
    attempt: Count = 0
    phase: str | None = None
    model_name: str | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    block_size: BlockSize | None = None
    block_bytes: BlockSize | None = None
    input_bytes: Count | None = None
    output_bytes: Count | None = None
    guessed: tuple[Guessed, ...] = ()
    blocks: tuple[Run, ...] = ()
    block_scope: Literal["run", "global"] = "run"
    start_s: Seconds
    first_token_s: Seconds | None = None
    end_s: Seconds | None = None
    finish_reason: str | None = None
    error: str | None = None
    tools: tuple[ToolSpan, ...] = ()
    served: Served | None = None
    messages: Any = None
    answer: Any = None
    extra: dict[str, Any] | None = None


class SessionNote(_Frozen):
    """What is known of a session beside its calls; needed for one without calls."""

    session_id: str
    parent_session_id: str | None = None
    agent_name: str = ""
    fork: Fork | None = None
    extra: dict[str, Any] | None = None


class RunEvent(_Frozen):
    """What is known of a run beside its calls: optional, before the first of them.

    Attributes:
        kind: `run`.
        v: version of the format.
        run_id: of the run.
        source: name of the format that it was read from; None when it was recorded. With a
            source, times count from the run's start already.
        clock: which rule gave the times, where a format has two.
        calls: how many call lines of this run follow; a reader may then let go of it.
        sessions: in the order of the trace.
        extra: what a source has and this format has no word for.
    """

    kind: Literal["run"] = "run"
    v: Literal[1] = VERSION
    run_id: str
    source: str | None = None
    clock: str | None = None
    block_size: BlockSize | None = None
    calls: Count | None = None
    sessions: tuple[SessionNote, ...] = ()
    extra: dict[str, Any] | None = None


Event = Annotated[CallEvent | RunEvent, Field(discriminator="kind")]
