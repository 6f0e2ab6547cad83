"""Telling servers that a session has finished."""

from __future__ import annotations

from tenuto import process
from tenuto.dialects import end_calls
from tenuto.sessions import SessionState


def end_session(session_id: str, state: SessionState) -> None:
    """Tell each server that has answered the session and can be told, once, in the background."""
    if not state.end():
        return
    for origin in state.origins():
        known = process.SERVERS.get(origin)
        if known is None:
            continue
        if known.speaks_protocol:
            process.SERVERS.owe((origin, state.credential), session_id)
        if known.server is None or not process.settings().news:
            continue
        if known.speaks_protocol and known.server.news is not None:
            process.BACKGROUND.put(process.NEWS.ended, known.server, session_id)
        for call in end_calls(known.dialect, (session_id,)):
            process.BACKGROUND.put(process.NEWS.call, known.server, call)
