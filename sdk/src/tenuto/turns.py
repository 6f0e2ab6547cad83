"""One HTTP try of a call, as the protocol has it: the turn that it belongs to.

This runs on every call, so the `X-Agent-Turn` text is put together here, of values that keep
their limits already; `_wire.encode_turn` checks each and takes as long as all of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tenuto import process
from tenuto.estimate import kept_of, phase, tokens
from tenuto.prompt import read_prompt
from tenuto.session import NO_HINTS, Hints, Session
from tenuto.sessions import Wait
from tenuto.shape import is_object
from tenuto.turn import is_turn

_MAX_INT = 999_999_999


class Try(NamedTuple):
    """A try of a turn.

    Attributes:
        n: the turn's index.
        attempt: the try's index.
        tail: the rest of the `X-Agent-Turn` text, the same for all tries of a turn.
        ttl: seconds that its cache is worth keeping, None when nothing is said.
        size: of the body, bytes; 0 when it is not known.
    """

    n: int
    attempt: int
    tail: str
    ttl: int | None
    size: int

    @property
    def text(self) -> str:
        """The value of `X-Agent-Turn`."""
        return f"n={self.n}, attempt={self.attempt}{self.tail}"


def open_try(session: Session, hints: Hints, options: Any, size: int, now_s: float) -> Try | None:
    """Count a try of the prompt in openai's request options.

    Args:
        session: the session that the call belongs to.
        hints: what the program says of the turn.
        options: openai's `FinalRequestOptions`.
        size: of the body, bytes; 0 when it is not known.
        now_s: a monotonic clock, seconds.

    Returns:
        None for a call that runs no model and so opens no turn.
    """
    if not is_turn(options.method, options.url):
        return None
    body = options.json_data if not options.extra_json else _body(options)
    prompt = read_prompt(body)
    state = session.state
    if state.is_ended:
        process.SERVERS.goes_on(session.session_id)
    opened = state.open_turn(prompt, _key(options) if prompt is None else None)
    n, attempt = opened.n, opened.attempt
    if attempt:
        tail = state.tail(n)
    else:
        # A child that inherits begins with its parent's history.
        may_resume = session.is_resumable and session.fork == "fresh"
        kept = kept_of(prompt, opened)
        opened_by = hints.phase or phase(prompt, opened, kept, body, is_resumable=may_resume)
        said = f", phase={opened_by}" if opened_by is not None else ""
        said += _expected(session, hints)
        if opened.usage is not None:
            said += _tokens(*tokens(prompt, opened, kept, size))
        if hints is not NO_HINTS or session.kind is not None or n == 0:
            said += _declared(session, hints, n)
        tail = state.keep_tail(n, said)
        if not process.BACKGROUND.put(_settle, session, opened.waited, opened_by, now_s):
            state.thin()
        if session.parent is not None:
            session.parent.state.child_ran = True
    return Try(min(n, _MAX_INT), min(attempt, 999), tail, hints.ttl, size)


def _expected(session: Session, hints: Hints) -> str:
    expect = hints.expect
    if expect is None:
        outlook = process.WAITS.outlook(session.agent)
        if outlook is None:
            return ""
        after, gap = outlook
    else:
        after, gap = expect.next, expect.gap_ms
        if gap is None:
            names = (expect.name,) if expect.name else ()
            gap = process.WAITS.gap_ms(session.agent, after, names)
    return f", next={after}" if gap is None else f", next={after}, gap={min(gap, _MAX_INT)}"


def _tokens(append: int | None, prefix: int, keep: int | None) -> str:
    said = f", prefix={min(prefix, _MAX_INT)}"
    if append is not None:
        said += f", append={min(append, _MAX_INT)}"
    return said if keep is None else f"{said}, keep={min(keep, _MAX_INT)}"


def _declared(session: Session, hints: Hints, n: int) -> str:
    said = "" if hints.ttl is None else f", ttl={hints.ttl}"
    if hints.at:
        said += f", at=({' '.join(map(str, hints.at))})"
    if session.kind is not None:
        said += f", class={session.kind}"
    if n == 0 and session.fork == "inherit":
        said += ", fork=inherit"
    return said if hints.prio is None else f"{said}, prio={hints.prio}"


def _settle(session: Session, waited: Wait | None, opened_by: str | None, now_s: float) -> None:
    """Learn how long the wait before a turn was; in the background."""
    session.state.thin()
    if waited is None:
        return
    after, names, since_s = waited
    if opened_by in {"child", "handoff"}:
        after, names = "child", ()
    process.WAITS.note(session.agent, after, names, (now_s - since_s) * 1000)


def _body(options: Any) -> Any:
    """Return the body as openai sends it; the caller's `extra_body` hides what it names."""
    body, extra = options.json_data, options.extra_json
    return {**body, **extra} if is_object(body) else extra


def _key(options: Any) -> int | None:
    """Return what tells a body that cannot be read from others, None when nothing does."""
    content = options.content if options.json_data is None else options.json_data
    if isinstance(content, bytes | str):
        return hash(content)
    # openai's own retries keep the key, when nothing else tells calls apart.
    key = options.idempotency_key
    return hash(key) if key is not None else None
