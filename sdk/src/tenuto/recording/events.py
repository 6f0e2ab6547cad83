"""A model call's try as a line of the trace file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tenuto import _wire
from tenuto.recording.answer import Said, read_events, read_whole
from tenuto.recording.body import Asked, Result, kind_of, read_body
from tenuto.session import Session
from tenuto.shape import is_list, is_object
from tenuto.trace import BLOCK_BYTES, CallEvent, Fork, Served, ToolSpan, cut
from tenuto.tries import Tried

Redact = Callable[[str], str]


class Rules(NamedTuple):
    """What a recorder writes.

    Attributes:
        run_id: of calls outside of every run.
        key: of the hash that names blocks.
        text: whether prompts and answers are written.
        redact: what is made of each string in them.
    """

    run_id: str
    key: bytes
    text: bool = False
    redact: Redact | None = None


class Place(NamedTuple):
    """Where in its run a call belongs; fields as in `CallEvent`."""

    run_id: str
    session_id: str | None = None
    parent_session_id: str | None = None
    agent_name: str = ""
    session_class: str | None = None
    fork: Fork | None = None
    turn: int = 0
    attempt: int = 0
    phase: str | None = None


def event_of(
    tried: Tried, asked: Asked, place: Place, rules: Rules, answered_s: float | None = None
) -> CallEvent:
    """Return the event of a try.

    Args:
        tried: a complete one.
        asked: its request's body.
        place: where it belongs.
        rules: what is written.
        answered_s: when the session's last answer was complete, None when that is not known.
    """
    said, first_token_s = _said(tried)
    error = _error(tried, said)
    blocks, size = cut(asked.items, key=rules.key)
    is_over = error is None or (tried.status or 0) >= 400
    return CallEvent(
        **place._asdict(),
        **_text(rules, asked, said),
        model_name=asked.model,
        input_tokens=said.input_tokens,
        output_tokens=said.output_tokens,
        cached_tokens=said.cached_tokens,
        block_bytes=BLOCK_BYTES,
        input_bytes=size,
        blocks=blocks,
        start_s=tried.start_s,
        first_token_s=first_token_s,
        end_s=tried.end_s if is_over else None,
        finish_reason=said.finish_reason,
        error=error,
        tools=tuple(_span(one, answered_s, tried.start_s) for one in asked.results if one.is_last),
        served=_served(tried),
    )


def place_of(tried: Tried, run_id: str) -> Place:
    """Return where a wrapped client's try belongs; `run_id` is of those outside of every run."""
    sent = tried.sent
    if sent is None or sent.attempt is None:
        return Place(run_id)
    session, attempt = sent.session, sent.attempt
    turn = _wire.decode_turn(attempt.text.encode(), [])
    return Place(
        session.run_id,
        session.session_id,
        session.parent.session_id if session.parent is not None else None,
        session.agent,
        turn.kind or session.kind,
        _fork(session, tried.parent_turn),
        attempt.n,
        attempt.attempt,
        turn.phase,
    )


def _fork(session: Session, parent_turn: int | None) -> Fork | None:
    if session.parent is None or parent_turn is None:
        return None
    return Fork(
        session_id=session.parent.session_id,
        turn=parent_turn if parent_turn >= 0 else None,
        inherits=session.fork == "inherit",
    )


def body_of(request: Any) -> Any:
    """Return the JSON of a request's body, None when it cannot be read."""
    try:
        return json.loads(request.content)
    except Exception:
        # One that was sent piece by piece cannot be read again.
        return None


def asked_of(request: Any, body: Any) -> Asked:
    """Return what a request asks for."""
    return read_body(kind_of(request.url.path) or "chat", body)


def _said(tried: Tried) -> tuple[Said, float | None]:
    """Return what the answer says, and when its first piece came."""
    if tried.response is None:
        return Said(), None
    is_events = tried.response.headers.get("content-type", "").startswith("text/event-stream")
    read = read_events if is_events else read_whole
    if not tried.is_streamed:
        return read(tried.content), None
    pieces = _decoded(tried)
    said = read(b"".join(piece for _, piece in pieces))
    at = 0
    for came_s, piece in pieces:
        at += len(piece)
        if said.first_at is not None and at >= said.first_at:
            return said, came_s
    return said, None


def _decoded(tried: Tried) -> list[tuple[float, bytes]]:
    """Return the pieces of an answer as its server wrote them, before they were compressed."""
    encoding = tried.response.headers.get("content-encoding")
    if encoding is None:
        return list(tried.chunks)
    passed: list[float] = []

    def passing() -> Iterator[bytes]:
        for came_s, chunk in tried.chunks:
            passed.append(came_s)
            yield chunk

    pieces: list[tuple[float, bytes]] = []
    head = {"content-encoding": encoding}
    try:
        # The HTTP client's own kind of answer, which knows every encoding that it asks for.
        for piece in type(tried.response)(200, headers=head, content=passing()).iter_bytes():
            pieces.append((passed[-1], piece))
    except Exception:
        # One that was broken off: what came before can be read.
        return pieces
    return pieces


def _error(tried: Tried, said: Said) -> str | None:
    if (tried.status or 0) >= 400:
        return str(tried.status)
    if said.error is not None:
        return said.error
    # A reader that has the end may close, which its transport takes for a failure.
    if said.ended:
        return None
    return tried.error or "Incomplete"


def _span(result: Result, start_s: float | None, end_s: float) -> ToolSpan:
    return ToolSpan(
        name=result.name,
        tool_class=result.tool_class,
        tool_call_id=result.call_id or None,
        start_s=start_s,
        end_s=end_s,
        output_bytes=result.output_bytes,
        is_error=result.is_error,
    )


def _served(tried: Tried) -> Served | None:
    if tried.response is None:
        return None
    server = tried.request.url.netloc.decode("ascii", "replace")
    said = _wire.decode_served(tried.response.headers.get(_wire.SERVED, ""))
    if said is None:
        return Served(server=server)
    return Served(server=server, rank=said.rank, home=said.home, why=said.why)


def _text(rules: Rules, asked: Asked, said: Said) -> dict[str, Any]:
    if not rules.text:
        return {}
    text = {"messages": asked.messages or None, "answer": said.text or None}
    if rules.redact is None:
        return text
    try:
        return {name: _redacted(one, rules.redact) for name, one in text.items()}
    except Exception:
        # What could not be redacted is not written.
        return {}


def _redacted(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return str(redact(value))
    if is_object(value):
        return {name: _redacted(one, redact) for name, one in value.items()}
    return [_redacted(one, redact) for one in value] if is_list(value) else value
