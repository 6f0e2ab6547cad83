"""One streamed answer, measured: who served it, what was cached, when it came."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from openai import AsyncStream
from openai.types import Completion, CompletionChoice
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import Choice

from tenuto import _wire

Stream = AsyncStream[ChatCompletionChunk] | AsyncStream[Completion]

_RANK = "X-Engine-Rank"


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What one turn met at the server.

    Attributes:
        workload: name of the set of runs that the turn belongs to.
        session: label of the session, unique in its workload.
        agent: role name of the session.
        turn: index in the session, from 0.
        rank: data-parallel rank that served it; None when the server did not say.
        prompt_tokens: length of the prompt, in tokens, by the server's count.
        cached_tokens: how many of them came from the rank's cache.
        output_tokens: tokens of the answer.
        ttft_s: seconds from the call to the answer's first token.
        start_s: when the call was made, in seconds on the measurement's clock.
        end_s: when the answer was complete, on the same clock.
    """

    workload: str
    session: str
    agent: str
    turn: int
    rank: int | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft_s: float
    start_s: float
    end_s: float


async def observe(
    call: Awaitable[Stream],
    *,
    workload: str,
    session: str,
    agent: str,
    turn: int,
    clock: Callable[[], float],
) -> tuple[TurnResult, str]:
    """Make a streaming call, read it to its end, and return what it met and its text.

    Args:
        call: a `create(stream=True, stream_options={"include_usage": True})` of
            completions or chat completions, not awaited yet.
        workload: see `TurnResult`.
        session: see `TurnResult`.
        agent: see `TurnResult`.
        turn: see `TurnResult`.
        clock: current time in seconds; one clock for all turns that are compared.

    Raises:
        RuntimeError: when the stream ends without usage, which the measurement needs.
        openai.OpenAIError: as the client raises it.
    """
    start_s = clock()
    first_s: float | None = None
    text: list[str] = []
    usage = None
    stream = await call
    async for chunk in stream:
        for choice in chunk.choices:
            first_s = clock() if first_s is None else first_s
            text.append(_said(choice))
        usage = chunk.usage or usage
    end_s = clock()
    if usage is None:
        message = f"turn {turn} of {session}: the server's stream ended without usage"
        raise RuntimeError(message)
    details = usage.prompt_tokens_details
    result = TurnResult(
        workload=workload,
        session=session,
        agent=agent,
        turn=turn,
        rank=rank_of(stream.response.headers),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=(details.cached_tokens or 0) if details is not None else 0,
        output_tokens=usage.completion_tokens,
        ttft_s=(end_s if first_s is None else first_s) - start_s,
        start_s=start_s,
        end_s=end_s,
    )
    return result, "".join(text)


def _said(choice: CompletionChoice | Choice) -> str:
    return choice.delta.content or "" if isinstance(choice, Choice) else choice.text


def rank_of(headers: Mapping[str, str]) -> int | None:
    """Return the rank that a response names: `X-Engine-Rank`, else `X-Agent-Served`.

    Returns:
        None when neither header is there and readable.
    """
    said = headers.get(_RANK, "")
    if said.isascii() and said.isdigit():
        return int(said)
    served = _wire.decode_served(headers.get(_wire.SERVED, ""))
    return served.rank if served is not None else None
