"""One streamed answer, measured: who served it, what was cached, when it came."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from openai import AsyncStream
from openai.types import Completion, CompletionChoice
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import Choice

from tenuto import _wire
from tenuto.results import TurnResult

Stream = AsyncStream[ChatCompletionChunk] | AsyncStream[Completion]

_RANK = "X-Engine-Rank"


async def observe(
    call: Awaitable[Stream],
    *,
    trace: str,
    session: str,
    agent: str,
    turn: int,
    clock: Callable[[], float],
    due_s: float | None = None,
    repeat: int = 0,
) -> tuple[TurnResult, str]:
    """Make a streaming call, read it to its end, and return what it met and its text.

    Args:
        call: a `create(stream=True, stream_options={"include_usage": True})` of
            completions or chat completions, not awaited yet.
        trace: see `TurnResult`.
        session: see `TurnResult`.
        agent: see `TurnResult`.
        turn: see `TurnResult`.
        clock: current time in seconds; one clock for all turns that are compared.
        due_s: see `TurnResult`; when the call is made if None.
        repeat: see `TurnResult`.

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
    cached = details.cached_tokens if details is not None else None
    result = TurnResult(
        trace=trace,
        session=session,
        agent=agent,
        turn=turn,
        rank=rank_of(stream.response.headers),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=cached or 0,
        output_tokens=usage.completion_tokens,
        due_s=start_s if due_s is None else due_s,
        start_s=start_s,
        first_token_s=end_s if first_s is None else first_s,
        end_s=end_s,
        repeat=repeat,
        cached_known=cached is not None,
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
