"""One logical call: its session, and its turn from the first marked attempt on."""

from __future__ import annotations

from typing import Any

from tenuto.context import Session, current_session
from tenuto.sessions import OpenTurn
from tenuto.turn import fingerprint, is_mapping, is_turn, phase_of


class Call:
    """A call as openai's options describe it.

    The turn opens with the first attempt that is marked: a call that never gets that
    far, or that the caller gave to another session, takes none.
    """

    __slots__ = ("_options", "_turn", "phase", "session")

    def __init__(self, session: Session, options: Any) -> None:
        self.session = session
        self.phase: str | None = None
        self._turn: OpenTurn | None = None
        self._options: Any = options if is_turn(options.method, options.url) else None

    def turn(self) -> OpenTurn | None:
        """Return the call's turn, the same for each attempt; None for other requests."""
        if self._turn is None and self._options is not None:
            body = _body(self._options)
            known = fingerprint(body)
            if known is None and self._options.idempotency_key is not None:
                # openai's own retries keep it, when nothing else tells calls apart.
                known = hash(self._options.idempotency_key)
            self._turn = self.session.open_turn(known)
            self.phase = phase_of(body, self._turn.n)
            self._options = None
        return self._turn


def open_call(options: Any) -> Call | None:
    """Return the call that is made here, None outside every run."""
    session = current_session()
    return Call(session, options) if session is not None else None


def _body(options: Any) -> Any:
    """Return the body that is sent: JSON with `extra_body` over it, or raw bytes."""
    body, extra = options.json_data, options.extra_json
    if extra and is_mapping(body):
        return {**body, **extra}
    return body if body is not None else extra or getattr(options, "content", None)
