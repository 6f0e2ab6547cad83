"""News as it comes in: by the two routes and in the markers of model calls."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from tenuto_vllm.asgi.answers import answer_json, read_body, refuse, refuse_method
from tenuto_vllm.asgi.leases import Leases
from tenuto_vllm.asgi.types import Receive, Scope, Send
from tenuto_vllm.metrics import Counters
from tenuto_vllm.news import News, NewsError, read_news

OnNews = Callable[[News], None]


class NewsDesk:
    """Counts news and hands it on; what a listener raises costs nobody an answer.

    Args:
        counters: of this process.
        leases: told of all but a turn that says itself to be the last: that may be wrong.
        listeners: told of all.
    """

    def __init__(self, counters: Counters, leases: Leases, *listeners: OnNews | None) -> None:
        self._counters = counters
        self._leases = leases
        self._listeners = [listener for listener in listeners if listener is not None]

    def hand_on(self, news: News) -> None:
        """Count what was told, and tell whoever listens."""
        self._counters.news["turns"] += len(news.turns)
        self._counters.news["ended"] += len(news.ended)
        if not (news.turns or news.ended):
            return
        for listener in self._listeners:
            try:
                listener(news)
            except Exception:
                self._counters.drop("on_news")

    def hear(self, scope: Scope, news: News) -> None:
        """Hand on what a request has said."""
        self._leases.tell(scope, news)
        self.hand_on(news)

    async def answer(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request to one of the two routes.

        | request | answer |
        |---|---|
        | `POST` with news | 200 `{"accepted": items, "dropped": values}` |
        | `POST` of another shape | 400 |
        | `POST` of over 64 KiB | 413 |
        | another method | 405 |
        """
        if scope["method"] != "POST":
            await refuse_method(send, path, "POST")
            return
        body = await read_body(receive, send)
        if body is None:
            return
        dropped: list[str] = []
        try:
            news = read_news(path, body, dropped)
        except NewsError as error:
            await refuse(send, HTTPStatus.BAD_REQUEST, str(error))
            return
        for kind in dropped:
            self._counters.drop(kind)
        self.hear(scope, news)
        accepted = len(news.turns) + len(news.ended)
        await answer_json(send, {"accepted": accepted, "dropped": len(dropped)})
