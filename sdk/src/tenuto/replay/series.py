"""Playing the same traces several times, on several servers, each of which has a result file."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from openai import AsyncOpenAI

from tenuto import results
from tenuto.openai import wrap
from tenuto.replay.ask import Ask, Route
from tenuto.replay.dense import dense
from tenuto.replay.drive import replay
from tenuto.replay.reach import Reach
from tenuto.replay.schedule import Schedule
from tenuto.results import Header, TurnResult
from tenuto.results.file import differing
from tenuto.trace.model import Trace

_RESET_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class How:
    """What a result file's header does not say of how traces are played.

    Attributes:
        route: see `Ask`.
        vocab: see `Ask`.
        cache_bust: each repeat's prompts share nothing with another's.
        reset: empty the server's prefix cache before each repeat.
        fail_fast: stop at the first error.
        new_connections: a connection for each call, so that balancers choose each time.
        timeout_s: of a call.
        api_key: for the server.
    """

    route: Route = "completions"
    vocab: int | None = None
    cache_bust: bool = True
    reset: bool = False
    fail_fast: bool = False
    new_connections: bool = False
    timeout_s: float = 600.0
    api_key: str = "none"


@dataclass(slots=True)
class Side:
    """One server and its result file.

    Attributes:
        header: of the file; the traces are played as it says.
        url: root of the server.
        path: of the file.
        block_size: tokens in a block of the server's cache; None where it is the traces'.
        place: index among the sides of a series.
        kept: results of an earlier start that count, of traces that were played whole.
        done: results of this start.
        offset_s: where this start's clock begins: times of one file do not overlap.
    """

    header: Header
    url: str
    path: Path
    block_size: int | None = None
    place: int = 0
    kept: list[TurnResult] = field(default_factory=list[TurnResult])
    done: list[TurnResult] = field(default_factory=list[TurnResult])
    offset_s: float = 0.0

    def take_up(self, traces: Sequence[Trace]) -> None:
        """Go on where the file ends.

        Raises:
            ValueError: the file is of another run, or cannot be read.
            OSError: it cannot be read.
        """
        before = results.read(self.path)
        if names := differing(before.header, self.header):
            told = ", ".join(names)
            raise ValueError(f"{self.path.name} cannot be taken up: it differs in {told}")
        self.header = self.header.model_copy(update={"resumed": before.header.resumed + 1})
        whole = {trace.id: trace.requests for trace in traces}
        good: dict[tuple[int, str], list[TurnResult]] = {}
        for turn in before.turns:
            if turn.error is None:
                good.setdefault((turn.repeat, turn.trace), []).append(turn)
        for (_, trace), turns in good.items():
            if len(turns) == whole[trace]:
                self.kept += turns
        self.offset_s = max((turn.end_s for turn in before.turns), default=0.0)

    def missing(self, traces: Sequence[Trace], repeat: int) -> list[Trace]:
        """Return the traces that a repeat has still to play."""
        kept = {turn.trace for turn in self.kept if turn.repeat == repeat}
        return [trace for trace in traces if trace.id not in kept and trace.requests]


async def play_series(
    traces: Sequence[Trace],
    sides: Sequence[Side],
    how: How,
    on_turn: Callable[[Side, TurnResult], None],
) -> None:
    """Play traces on each side, repeat by repeat: 0 on all, then 1 on all.

    Every result is in its side's file when `on_turn` is told of it.

    Raises:
        ValueError: the traces cannot be played so.
        OSError: a file cannot be written, or a cache cannot be reset.
        openai.OpenAIError: with `fail_fast`, what a call raised.
    """
    numbered = dense(traces)
    async with AsyncExitStack() as stack:
        players = [_Player(side, how, stack, on_turn) for side in sides]
        for repeat in range(max(side.header.repeats for side in sides)):
            for player in players:
                await player.play(player.side.missing(numbered, repeat), repeat)


class _Player:
    def __init__(
        self,
        side: Side,
        how: How,
        stack: AsyncExitStack,
        on_turn: Callable[[Side, TurnResult], None],
    ) -> None:
        self.side = side
        self._how = how
        self._on_turn = on_turn
        self._stack = stack
        self._reach = Reach(side.block_size)
        self._client: AsyncOpenAI | None = None
        self._file = stack.enter_context(results.write(side.path, append=side.header.resumed > 0))
        self._file.header(side.header)
        self._began_s = time.monotonic() - side.offset_s
        self._ask = Ask(side.header.model, how.route, how.vocab, side.header.max_output_tokens)

    async def play(self, traces: Sequence[Trace], repeat: int) -> None:
        if not traces:
            return
        header, how = self.side.header, self._how
        if how.reset:
            await asyncio.to_thread(_reset, self.side.url)
        if how.reset or how.cache_bust:
            self._reach = Reach(self.side.block_size)
        # Sides may be two ways to one server, which must not take one for the other.
        part = f"/{header.seed}/{repeat}/{header.resumed}" + "+" * self.side.place
        await replay(
            traces,
            await self._connected(),
            ask=self._ask,
            schedule=Schedule(
                traces,
                mode=header.mode,
                time_scale=header.time_scale,
                gap_cap_s=header.gap_cap_s,
                live_sessions=header.live_sessions,
            ),
            clock=lambda: time.monotonic() - self._began_s,
            marked=header.identity is not None,
            part=part,
            cache_bust=how.cache_bust,
            reach=self._reach,
            concurrency=header.concurrency,
            repeat=repeat,
            fail_fast=how.fail_fast,
            on_turn=self._note,
        )

    async def _connected(self) -> AsyncOpenAI:
        if self._client is None:
            self._client = await self._stack.enter_async_context(
                AsyncOpenAI(
                    base_url=f"{self.side.url}/v1",
                    api_key=self._how.api_key,
                    max_retries=0,
                    timeout=self._how.timeout_s,
                    default_headers={"Connection": "close"} if self._how.new_connections else None,
                )
            )
            if self.side.header.identity is not None:
                wrap(self._client, dialect=self.side.header.identity)
        return self._client

    def _note(self, result: TurnResult) -> None:
        self._file.add(result)
        self.side.done.append(result)
        self._on_turn(self.side, result)


def _reset(url: str) -> None:
    request = urllib.request.Request(f"{url}/reset_prefix_cache", data=b"", method="POST")
    with urllib.request.urlopen(request, timeout=_RESET_LIMIT_S):
        pass
