"""One model call under way: its place, its answer and its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import lru_cache, partial

from tenuto_vllm import _wire, spans
from tenuto_vllm.asgi.finish import Finish, finish_of
from tenuto_vllm.asgi.leases import Leases
from tenuto_vllm.asgi.news_desk import NewsDesk
from tenuto_vllm.asgi.placer import Placer
from tenuto_vllm.asgi.routes import path_of
from tenuto_vllm.asgi.types import Message, Scope, Send
from tenuto_vllm.asgi.visit import Visit
from tenuto_vllm.carriers import Said
from tenuto_vllm.engine.seam import RankBox
from tenuto_vllm.news import News, TurnNews
from tenuto_vllm.retention.waits import MOST_LEASE_S

_AFFINITY = _wire.AFFINITY.lower().encode()
_SERVED = _wire.SERVED.lower().encode()
_FAILURE = 400
_LONG_WAIT_S = 0.5
_MOST_LEASE_S = int(MOST_LEASE_S)


class Call:
    """Adds two headers to the answer of a placed call and passes all else through untouched.

    An answer with an error status was served by no rank, so it gets none, and neither does
    one without a session.

    Args:
        scope: the request's own; its rank is written into it.
        trusted: the rank that the request came with, if it is to be trusted.
        box: where vLLM's choice of an engine finds the rank, and leaves its own.
        send: the server's.
    """

    __slots__ = (
        *("_box", "_by_tokens", "_desk", "_due", "_expected", "_finish", "_has_arrived"),
        *("_has_begun", "_is_good", "_is_over", "_is_silent", "_last", "_lease", "_leases"),
        *("_placer", "_scope", "_send", "_then", "_trusted", "_visit"),
    )

    def __init__(
        self,
        placer: Placer,
        desk: NewsDesk,
        leases: Leases,
        *,
        scope: Scope,
        trusted: int | None,
        box: RankBox,
        send: Send,
    ) -> None:
        self._placer = placer
        self._desk = desk
        self._leases = leases
        self._scope = scope
        self._trusted = trusted
        self._box = box
        self._send = send
        self._visit: Visit | None = None
        self._expected = 0
        self._due: asyncio.TimerHandle | None = None
        self._by_tokens: tuple[Sequence[int], int | None] | None = None
        self._last: str | None = None
        self._then: TurnNews | None = None
        self._lease: int | None = None
        self._finish: Finish | None = None
        self._is_over = False
        self._is_silent = placer.is_shadow
        self._is_good = False
        self._has_begun = False
        self._has_arrived = False

    def place(self, said: Said) -> None:
        """Choose the rank; called once, before the application has read the whole request."""
        if self._is_over:
            # A task that the application left behind reads on; nobody would give the load back.
            return
        if said.markers is not None:
            self._box.known = partial(self._known, said.markers)
            self._hint(said.markers)
        visit = self._placer.visit(self._scope, said, self._trusted)
        if visit is None:
            if said.markers is None and self._placer.reads_content:
                self._box.choose = self._by_content
            return
        self._begin(visit)
        if not self._placer.is_shadow:
            self._box.wanted = visit.placement.rank
        if said.markers is not None:
            turn = said.markers.turn
            if turn.drop:
                self._desk.hear(self._scope, News(ended=turn.drop))
            if turn.next == "end":
                self._last = said.markers.session

    def _hint(self, markers: _wire.Markers) -> None:
        """Give the engine the markers, and see to what they leave open."""
        turn = markers.turn
        if not self._leases.hand(self._scope, markers, self._box) or turn.kind == "auxiliary":
            return
        if turn.next != "end":
            self._lease = min(turn.ttl or 0, _MOST_LEASE_S) or None
        if turn.next in {None, "unknown"}:
            self._then = TurnNews(markers.session, None, turn.gap, turn.ttl)
            self._finish = finish_of(path_of(self._scope))

    def _begin(self, visit: Visit) -> None:
        traffic = self._placer.traffic
        traffic.begin(visit)
        self._visit, self._expected = visit, visit.expected
        self._box.measured = self._measured
        # An answer that is not streamed tells of no first token; its prompt is computed by then.
        wait_s = traffic.pending.wait_s(visit.placement.rank)
        if wait_s > _LONG_WAIT_S:
            with contextlib.suppress(RuntimeError):
                loop = asyncio.get_running_loop()
                self._due = loop.call_later(2.0 * wait_s, self._arrived)

    def _measured(self, tokens: int) -> None:
        if self._visit is not None and not self._has_arrived:
            traffic = self._placer.traffic
            self._expected = traffic.measured(self._visit, self._expected, tokens)

    def _by_content(self, tokens: Sequence[int] | None) -> int | None:
        """Choose the rank of one of the call's prompts; the first stands for the call."""
        if tokens is None or self._is_over:
            return None
        # Of `n` answers to one prompt each asks.
        if self._by_tokens is not None and self._by_tokens[0] == tokens:
            return self._by_tokens[1]
        visit = self._placer.content(self._scope, tokens)
        if visit is not None and self._visit is None:
            self._is_silent = True
            self._placer.told_by_content(visit)
            self._begin(visit)
        is_wish = visit is not None and not self._placer.is_shadow
        self._by_tokens = tokens, visit.placement.rank if visit is not None and is_wish else None
        return self._by_tokens[1]

    def end(self) -> None:
        """Give the load back, and say so if the session has ended with this turn."""
        self._is_over = True
        if self._visit is not None:
            self._arrived()
            self._placer.traffic.over(self._visit)
        if self._last is not None and self._is_good:
            self._desk.hand_on(News(ended=(self._last,)))
        self._tell_what_follows()

    def _tell_what_follows(self) -> None:
        """Tell the engine what the answer ended with, where the client did not say it before."""
        if self._finish is None or self._then is None or not self._is_good:
            return
        if wait := self._finish.wait():
            rank = None if self._box.spread else self._box.served
            news = News(turns=(self._then._replace(next=wait),))
            self._leases.tell(self._scope, news, rank)

    async def send(self, message: Message) -> None:
        """Pass one ASGI message on."""
        # Nothing of ours may stand between an answer and its client.
        with contextlib.suppress(Exception):
            message = self._noted(message)
        await self._send(message)

    def _noted(self, message: Message) -> Message:
        if message["type"] == "http.response.start":
            self._is_good = message["status"] < _FAILURE
            if self._finish is not None and _is_encoded(message):
                self._finish = None
            visit = self._visit
            if self._is_good and visit is not None and visit.session and not self._is_silent:
                headers = [*message.get("headers", ()), *self._headers(visit)]
                return {**message, "headers": headers}
        elif self._is_good and (body := message.get("body")):
            if self._finish is not None:
                self._finish.feed(body)
            if not self._has_begun:
                self._note_first(is_stream=bool(message.get("more_body")))
        return message

    def _note_first(self, *, is_stream: bool) -> None:
        visit, box = self._visit, self._box
        # Events before the engine was chosen, as of a response, are of no token.
        if not box.prompt_tokens:
            return
        self._has_begun = True
        self._arrived()
        rank = box.served if box.served is not None else visit and visit.placement.rank
        if rank is not None:
            traffic = self._placer.traffic
            traffic.served(visit, rank, box.prompt_tokens, is_stream=is_stream)

    def _arrived(self) -> None:
        """Take the prompt off what waits for its first token, once."""
        if self._visit is not None and not self._has_arrived:
            self._has_arrived = True
            if self._due is not None:
                self._due.cancel()
            self._placer.traffic.pending.end(self._visit.placement.rank, self._expected)

    def _headers(self, visit: Visit) -> list[tuple[bytes, bytes]]:
        told = _SERVED, _served_value(self._served(visit))
        return [told] if visit.token is None else [(_AFFINITY, visit.token.encode()), told]

    def _served(self, visit: Visit) -> _wire.Served:
        # A stream starts before the engine is chosen; then the choice stands for it.
        served, (home, why) = self._box.served, (visit.placement.rank, visit.placement.why)
        rank = home if served is None else served
        if visit.token is None:
            return _wire.Served(rank, None, why)
        return _wire.Served(rank, home, why, self._lease)

    def _known(self, markers: _wire.Markers) -> spans.Attributes:
        """Return what the spans of its engine requests are to say."""
        served = _wire.Served() if self._visit is None else self._served(self._visit)
        if self._box.spread:
            served = served._replace(rank=None)
        return spans.attributes(markers, served)


# Few differ: pairs of ranks, reasons and the leases that clients ask for.
@lru_cache(maxsize=1024)
def _served_value(served: _wire.Served) -> bytes:
    return _wire.encode_served(served).encode()


def _is_encoded(start: Message) -> bool:
    given = (value for name, value in start.get("headers", ()) if name == b"content-encoding")
    return any(value.lower() != b"identity" for value in given)
