"""Playing the same traces several times, on several servers, each of which has a result file."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from openai import AsyncOpenAI

from tenuto import results
from tenuto.openai import wrap
from tenuto.replay.ask import Ask
from tenuto.replay.dense import dense
from tenuto.replay.drive import replay
from tenuto.replay.failure import failure_text
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
        fail_fast: stop at the first error.
        timeout_s: of a call.
        api_key: for the server.
    """

    fail_fast: bool = False
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
        first_error: of this start, in words; None without one.
    """

    header: Header
    url: str
    path: Path
    block_size: int | None = None
    place: int = 0
    kept: list[TurnResult] = field(default_factory=list[TurnResult])
    done: list[TurnResult] = field(default_factory=list[TurnResult])
    offset_s: float = 0.0
    first_error: str | None = None

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
        for player in players:
            player.check(numbered)
        for player in players:
            player.open()
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
        self._file: results.ResultWriter | None = None
        self._began_s = 0.0
        header = side.header
        self._ask = Ask(header.model, header.route, header.vocab, header.max_output_tokens)

    def check(self, traces: Sequence[Trace]) -> None:
        """Make the first prompts for nothing, so that what cannot be played leaves no file."""
        for due in self._schedule(traces).start(0.0):
            trace = traces[due.ref.trace]
            turn = trace.sessions[due.ref.session].turns[due.ref.turn]
            self._ask.prompt(turn, trace.block_size, salt=trace.space, call=0)

    def open(self) -> None:
        header = self.side.header
        self._file = self._stack.enter_context(
            results.write(self.side.path, append=header.resumed > 0)
        )
        self._file.header(header)
        self._began_s = time.monotonic() - self.side.offset_s

    def _schedule(self, traces: Sequence[Trace]) -> Schedule:
        header = self.side.header
        return Schedule(
            traces,
            mode=header.mode,
            time_scale=header.time_scale,
            gap_cap_s=header.gap_cap_s,
            live_sessions=header.live_sessions,
        )

    async def play(self, traces: Sequence[Trace], repeat: int) -> None:
        if not traces:
            return
        header = self.side.header
        if header.reset:
            await asyncio.to_thread(reset, self.side.url)
        if header.reset or header.cache_bust:
            self._reach = Reach(self.side.block_size)
        # Sides may be two ways to one server, which must not take one for the other.
        part = f"/{header.seed}/{repeat}/{header.resumed}" + "+" * self.side.place
        await replay(
            traces,
            await self._connected(),
            ask=self._ask,
            schedule=self._schedule(traces),
            clock=lambda: time.monotonic() - self._began_s,
            marked=header.identity is not None,
            part=part,
            cache_bust=header.cache_bust,
            reach=self._reach,
            concurrency=header.concurrency,
            repeat=repeat,
            fail_fast=self._how.fail_fast,
            on_turn=self._note,
            on_error=self._note_error,
        )

    async def _connected(self) -> AsyncOpenAI:
        if self._client is None:
            self._client = await self._stack.enter_async_context(
                AsyncOpenAI(
                    base_url=f"{self.side.url}/v1",
                    api_key=self._how.api_key,
                    max_retries=0,
                    timeout=self._how.timeout_s,
                    default_headers=(
                        {"Connection": "close"} if self.side.header.new_connections else None
                    ),
                )
            )
            if self.side.header.identity is not None:
                wrap(self._client, dialect=self.side.header.identity)
        return self._client

    def _note(self, result: TurnResult) -> None:
        if self._file is not None:
            self._file.add(result)
        self.side.done.append(result)
        self._on_turn(self.side, result)

    def _note_error(self, error: Exception) -> None:
        if self.side.first_error is None:
            self.side.first_error = failure_text(error)


def reset(url: str) -> None:
    """Empty the prefix cache of a server.

    Raises:
        OSError: it does not, which is told with the URL.
    """
    place = f"{url}/reset_prefix_cache"
    request = urllib.request.Request(place, data=b"", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=_RESET_LIMIT_S):
            pass
    except urllib.error.HTTPError as error:
        with error:
            raise OSError(
                f"{place} answers {error.code}, so the cache cannot be emptied (--reset): "
                "vLLM serves it only with VLLM_SERVER_DEV_MODE=1"
            ) from error
    except OSError as error:
        raise OSError(f"{place}: {getattr(error, 'reason', error)}") from error
