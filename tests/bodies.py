"""Generators' bodies that note which session they are in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Any

import tenuto
from tenuto.context import current_session

__all__ = ["Bodies", "Seen", "here"]

Seen = list[str | None]


def here() -> str | None:
    session = current_session()
    return session.session_id if session else None


class Bodies:
    """Bodies that note where they are: at each item and in their `finally`."""

    def __init__(self) -> None:
        self.seen: Seen = []
        self.ended: Seen = []

    async def stream(self, own: tenuto.Run | None = None) -> AsyncGenerator[int, Any]:
        async with own or contextlib.nullcontext():
            try:
                for item in range(4):
                    self.seen.append(here())
                    yield item
                    await asyncio.sleep(0)
            finally:
                await asyncio.sleep(0)
                self.ended.append(here())

    def items(self, own: tenuto.Run | None = None) -> Generator[int, Any, str]:
        with own or contextlib.nullcontext():
            try:
                for item in range(4):
                    self.seen.append(here())
                    yield item
            finally:
                self.ended.append(here())
        return "done"
