"""A model call's try as a line of the trace file."""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple

from tenuto import _wire
from tenuto.recording.answer import Said
from tenuto.recording.body import Asked, Result, kind_of, read_body
from tenuto.recording.heard import Heard, heard_of
from tenuto.recording.text import Redact, redacted
from tenuto.session import Session
from tenuto.trace import BLOCK_BYTES, CallEvent, Fork, Served, ToolSpan, cut
from tenuto.tried import Tried

_MAX_BODY_BYTES = 64 << 20
# Either of gzip and zlib, as the first bytes say.
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


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
    tried: Tried,
    asked: Asked,
    place: Place,
    rules: Rules,
    answered_s: float | None = None,
    *,
    heard: Heard | None = None,
) -> CallEvent:
    """Return the event of a try.

    Args:
        tried: a complete one.
        asked: its request's body.
        place: where it belongs.
        rules: what is written.
        answered_s: when the session's last answer was complete, None when that is not known.
        heard: what became of it, where that has been read before.
    """
    said, first_token_s, error = heard or heard_of(tried)
    # Blocks of a part of a prompt would be those of another.
    blocks, size = ((), None) if asked.is_partial else cut(asked.items, key=rules.key)
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
        output_bytes=said.output_bytes,
        blocks=blocks,
        start_s=tried.start_s,
        first_token_s=first_token_s,
        end_s=tried.end_s if is_over else None,
        finish_reason=said.finish_reason,
        error=error,
        tools=tuple(_span(one, answered_s, tried.start_s) for one in asked.results if one.is_last),
        served=_served(tried),
        extra={"prompt": "partial"} if asked.is_partial else None,
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
        content = request.content
        if request.headers.get("content-encoding", "identity") in {"gzip", "deflate"}:
            unpacking = zlib.decompressobj(_GZIP_OR_ZLIB)
            content = unpacking.decompress(content, _MAX_BODY_BYTES)
        return json.loads(content)
    except Exception:
        # One that was sent piece by piece cannot be read again.
        return None


def asked_of(request: Any, body: Any) -> Asked:
    """Return what a request asks for."""
    try:
        return read_body(kind_of(request.url.path) or "chat", body)
    except RecursionError:
        return Asked()


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
        return {name: redacted(one, rules.redact) for name, one in text.items()}
    except BaseException:
        # What could not be redacted is not written. On this thread nothing else may end it.
        return {}
