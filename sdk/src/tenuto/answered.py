"""Reading an answer for its session: where it was served, its tokens, what follows it."""

from __future__ import annotations

import sys
import time
from typing import Any

from openai import AsyncStream, Stream
from openai._legacy_response import LegacyAPIResponse
from openai._response import BaseAPIResponse

from tenuto import _wire, observer, process, raw_headers
from tenuto.answers import NOTHING, Answer, read_answer, read_raw
from tenuto.dialects import heard
from tenuto.news import Server, server_of
from tenuto.redirects import Sent
from tenuto.servers import Known
from tenuto.sessions import Usage, Wait, origin_of
from tenuto.streams import observe

_SERVED = _wire.SERVED.lower().encode()
_STREAMS = (Stream, AsyncStream)
_RAW = (LegacyAPIResponse, BaseAPIResponse)


def learn_head(sent: Sent, client: Any, response: Any) -> None:
    """Keep what an answer's headers give the session for its next call to the same origin."""
    origin = origin_of(response.url)
    if origin == sent.origin:
        # The client's own, which all its sessions keep.
        origin = sent.origin
    state = sent.session.state
    given = heard(sent.dialect, lambda lower: raw_headers.value(response.headers, lower))
    for name, value in given:
        if state.token(origin, name) != value:
            state.keep_token(origin, sys.intern(value), name)
    if sent.dialect.end:
        state.visit(origin)
    elif process.SERVERS.speaks_protocol(origin):
        return
    speaks = raw_headers.value(response.headers, _SERVED) is not None
    if speaks or sent.dialect.end:
        server = _server(sent, response) if is_stock(client) else None
        process.SERVERS.learn(origin, Known(server, sent.dialect, speaks))


def _server(sent: Sent, response: Any) -> Server:
    # A dialect without the protocol was chosen before the server had shown that it has it.
    news = sent.dialect.news if sent.dialect.speaks_protocol else "batch"
    return server_of(response.url, response.request.headers.get("authorization"), news)


def is_stock(client: Any) -> bool:
    """Tell whether an openai client reaches its server as anyone would.

    Through a transport, socket or proxy of its own it may reach another server than the one
    that its URL names to others.
    """
    http = client._client
    transport = http._transport
    module = type(transport).__module__.partition(".")[0]
    return (
        module in {"httpx", "httpx2"}
        and type(transport).__name__ in {"HTTPTransport", "AsyncHTTPTransport"}
        and getattr(transport._pool, "_uds", None) is None
        and not any(mounted is not None for mounted in http._mounts.values())
    )


def learn_answer(sent: Sent, value: Any, response: Any) -> None:
    """Read the answer when it is there whole, or as it is streamed to its caller.

    Args:
        sent: what was sent with the request.
        value: what openai's client gives to its caller.
        response: the HTTP answer that it was made from.
    """
    if sent.attempt is None:
        return
    if isinstance(value, _STREAMS):
        follow(sent, value, response)
        return
    if isinstance(value, _RAW):
        # Raw: the caller may never parse it, or parse it into something else.
        kind = response.headers.get("content-type", "")
        if response.is_closed and not kind.startswith("text/event-stream"):
            _close(sent, read_raw(response.content, kind), response)
            if (watched := observer.watched_with(response.request)) is not None:
                watched.take(response)
        return
    if (watched := observer.watched_with(response.request)) is not None:
        watched.take(value)
    _close(sent, read_answer(value), response)


def follow(sent: Sent, stream: Any, response: Any) -> None:
    """Read a stream as it passes, and close the turn when it ends."""
    answer = NOTHING
    watched = observer.watched_with(response.request)

    def on_item(item: Any) -> None:
        nonlocal answer
        answer = read_answer(item, answer)
        if watched is not None:
            watched.take(item)

    def on_end(finished: bool, saw_done: bool) -> None:
        if finished and not saw_done and answer.finish is None:
            process.warn_once(
                "stream without an end",
                "a stream ended without [DONE] and without a finish reason: what it carried may be"
                " cut off; further ones are counted in tenuto.diagnose()",
            )
        _close(sent, answer, response)

    observe(stream, on_item, on_end)


def _close(sent: Sent, answer: Answer, response: Any) -> None:
    """Close a turn with what its answer said."""
    if sent.attempt is None or answer is NOTHING:
        return
    state = sent.session.state
    usage = wait = None
    if answer.prompt_tokens is not None:
        usage = Usage(answer.prompt_tokens, answer.output_tokens or 0, sent.attempt.size)
    after = answer.next
    if after is not None:
        wait = Wait(after, answer.tools, time.monotonic())
        process.BACKGROUND.put(_tell, sent, after, answer.tools, response)
    state.answered(sent.attempt.n, usage, wait)
    if (watched := observer.watched_with(response.request)) is not None:
        watched.closed(answer.tools)


def _tell(sent: Sent, after: Any, tools: tuple[str, ...], response: Any) -> None:
    """Learn what follows an agent's answers, and tell the server; in the background."""
    session = sent.session
    process.WAITS.followed(session.agent, after)
    known = process.SERVERS.get(sent.origin)
    if known is None or known.server is None or not known.speaks_protocol:
        return
    server = _server(sent, response)
    if server != known.server:
        # Credentials are renewed, and tenants may share a process.
        process.SERVERS.learn(sent.origin, known._replace(server=server))
    if server.news is None or not process.settings().news:
        return
    said: dict[str, Any] = {"session": session.session_id, "next": after}
    gap_ms = process.WAITS.gap_ms(session.agent, after, tools)
    if gap_ms is not None:
        said["gap"] = gap_ms
    ttl = sent.attempt.ttl if sent.attempt is not None else None
    if ttl is not None:
        said["ttl"] = ttl
    process.NEWS.turn(server, said)
