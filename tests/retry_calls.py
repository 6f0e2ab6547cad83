"""One call of a retrying client, sync or async, as one function each."""

from __future__ import annotations

import asyncio
from typing import Any

import openai

from tenuto.retry import retrying
from tests.calls import make

__all__ = ["ASKS", "USER", "no_wait"]

USER = [{"role": "user", "content": "hi"}]


def no_wait(_: Any) -> float:
    return 0.0


def ask_sync(url: str, call: dict[str, Any] | None = None, **options: Any) -> Any:
    """Make one chat call, with `call` among its arguments, and `options` for `retrying`.

    Returns:
        The answer; of a stream its items.
    """
    with make(openai.OpenAI, url) as plain:
        client = retrying(plain, **{"wait": no_wait, **options})
        answer = client.chat.completions.create(**_arguments(call))
        return list(answer) if isinstance(answer, openai.Stream) else answer


def ask_async(url: str, call: dict[str, Any] | None = None, **options: Any) -> Any:
    """Do the same with an async client, in a loop of its own."""

    async def work() -> Any:
        async with make(openai.AsyncOpenAI, url) as plain:
            client = retrying(plain, **{"wait": no_wait, **options})
            answer: Any = await client.chat.completions.create(**_arguments(call))
            if isinstance(answer, openai.AsyncStream):
                return [item async for item in answer]
            return answer

    return asyncio.run(work())


def _arguments(call: dict[str, Any] | None) -> dict[str, Any]:
    return {"messages": USER, "model": "m", **(call or {})}


ASKS = {"sync": ask_sync, "async": ask_async}
