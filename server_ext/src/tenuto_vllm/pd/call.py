"""One call: its stages in order, their deadline, and what is done where one of them fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time

from tenuto_vllm import logs
from tenuto_vllm.asgi.types import Send
from tenuto_vllm.pd import answer, outcome, stages
from tenuto_vllm.pd.answer import Whole
from tenuto_vllm.pd.desk import Desk, Lost, Request
from tenuto_vllm.pd.fleet import Server
from tenuto_vllm.pd.handing import Handed, hand_over
from tenuto_vllm.pd.load import Load
from tenuto_vllm.pd.planner import Plan
from tenuto_vllm.pd.upstream import Answer, Unreachable

_ANSWERED = 200
_FAILED = 500
_FULL = 429
_BUSY = frozenset({_FULL, 503})
_CHAT = "/v1/chat/completions"
_KIND, _EVENTS = b"content-type", b"text/event-stream"
_BAD = "transfer_failed"
_HUNG = "transfer_hung"
# Longer than any model takes for a token.
_TOKEN_S = 1.0


class Call:
    """One call under way."""

    def __init__(self, desk: Desk, request: Request, plan: Plan, send: Send) -> None:
        self._desk = desk
        self._request = request
        self._asked = request.asked
        self._plan = plan
        self._send = send
        self._handed: Handed | None = None
        self._fallback = ""
        self._has_begun = False
        # We ask for the event that tells the usage.
        self._is_ours = request.asked.is_stream and request.asked.may_split

    async def run(self) -> None:
        """Serve it: an answer, or an error of a server's that is the client's to see.

        Raises:
            Lost: no decode server gave an answer, twice, or one broke off.
        """
        decision, fleet = self._plan.decision, self._desk.fleet
        target = fleet.of(decision.decode)
        if decision.prefill is not None:
            source = fleet.of(decision.prefill)
            self._handed = await hand_over(
                self._desk, self._request, self._plan, source, self._gave_up
            )
        try:
            await self._decode(target, self._handed)
        except Lost as lost:
            if self._has_begun:
                raise
            self._gave_up(str(lost))
            # The rest of the context is on the first server, and only the transfer was bad.
            is_fit = str(lost) in {_BAD, _HUNG} and target.is_up
            await self._decode(target if is_fit else fleet.another(target), None)

    async def _decode(self, target: Server, handed: Handed | None) -> None:
        desk, asked, decision = self._desk, self._asked, self._plan.decision
        left_s = 0.0
        if handed is not None:
            left_s = handed.ended_s + (decision.deadline_s or 0.0) - time.monotonic()
            if left_s <= 0.0:
                self._gave_up("deadline")
                handed = None
        body = stages.decode(
            self._request.body,
            asked.fields,
            None if handed is None else handed.transfer,
            time.time() + left_s,
            is_stream=self._is_ours,
        )
        url = target.url + self._request.path
        new = 0 if handed is not None else decision.new_tokens
        work_s = desk.options.costs.prefill(new, decision.prompt_tokens - new)
        desk.planner.sent(self._plan, target.url)
        with Load(target, new, work_s, is_stream=asked.is_stream) as load:
            try:
                async with (
                    asyncio.timeout(self._limit_s(left_s, handed)) as limit,
                    desk.upstreams.asked("POST", url, self._request.headers, body) as got,
                ):
                    if handed is not None and (got.status >= _FAILED or got.status == _FULL):
                        raise Lost("decode_refused" if got.status in _BUSY else _BAD)
                    await self._pass(got, target, handed, load, limit)
            except TimeoutError as error:
                if handed is not None:
                    desk.watch.doubt(desk.fleet.of(handed.source))
                raise Lost(_HUNG) from error
            except Unreachable as error:
                if self._has_begun:
                    raise Lost("broken_off") from error
                desk.watch.down(target)
                raise Lost("decode_down") from error
            finally:
                if not self._has_begun:
                    desk.planner.failed(self._plan, target.url)

    def _limit_s(self, left_s: float, handed: Handed | None) -> float | None:
        """Return how long the first of an answer is waited for; None for any time.

        Of an answer that is no stream it comes with the last.
        """
        if handed is None:
            return None
        asked, limit_s = self._asked, left_s + self._desk.options.stage_most_s
        if not asked.is_stream:
            most = math.inf if asked.output_tokens is None else asked.output_tokens
            limit_s += most * _TOKEN_S
        return None if math.isinf(limit_s) else limit_s

    async def _pass(
        self,
        got: Answer,
        target: Server,
        handed: Handed | None,
        load: Load,
        limit: asyncio.Timeout,
    ) -> None:
        """Pass an answer on; nothing of it goes out before it is known to be one."""
        asked = self._asked
        is_answer = got.status == _ANSWERED
        # The server decides: it takes more for true than we do.
        if not (is_answer and dict(got.headers).get(_KIND, b"").startswith(_EVENTS)):
            body = b"".join([part async for part in got.parts])
            limit.reschedule(None)
            if is_answer:
                load.first_token()
                told = answer.whole(body)
            else:
                self._desk.planner.failed(self._plan, target.url)
                told = Whole(None, None, None, body)
            await self._begin(got, body_bytes=len(told.body))
            await self._send({"type": "http.response.body", "body": told.body})
            if is_answer:
                self._learn(told, target, handed)
            return
        # Of a chat the first event names the role, and comes with the second.
        holds = 0 if handed is None else 1 + (asked.path == _CHAT)
        wants = asked.wants_usage or not self._is_ours
        stream = answer.Stream(wants_usage=wants, holds=holds)
        try:
            async for part in got.parts:
                limit.reschedule(None)
                load.first_token()
                out = stream.feed(part)
                if stream.failed:
                    raise Lost(_BAD)
                if out:
                    await self._events(got, out)
            await self._events(got, stream.end(), more=False)
        finally:
            # A client that leaves has had its prompt computed all the same.
            if self._has_begun:
                self._learn(Whole(stream.usage, None, None, b""), target, handed)

    async def _events(self, got: Answer, body: bytes, *, more: bool = True) -> None:
        if not self._has_begun:
            await self._begin(got, body_bytes=None)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def _begin(self, got: Answer, *, body_bytes: int | None) -> None:
        self._has_begun = True
        headers = [one for one in got.headers if one[0] != b"content-length"]
        if body_bytes is not None:
            headers.append((b"content-length", b"%d" % body_bytes))
        await self._send({"type": "http.response.start", "status": got.status, "headers": headers})

    def _learn(self, told: Whole, target: Server, handed: Handed | None) -> None:
        # The answer is the client's already.
        with contextlib.suppress(Exception):
            usage, back, written, _ = told
            done = outcome.Done(target.url, self._handed, usage, back, written, self._fallback)
            outcome.learn(self._desk, self._plan, self._asked, done, is_handed=handed is not None)

    def _gave_up(self, why: str) -> None:
        self._fallback = why
        self._desk.numbers.gave_up(why)
        logs.tell(logging.WARNING, "no_transfer", why=why)
