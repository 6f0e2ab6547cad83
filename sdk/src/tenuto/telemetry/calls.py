"""What the span of a model call is given as the call goes on: its turn, its tries, its answer."""

from __future__ import annotations

import json
from typing import Any
from weakref import WeakValueDictionary

from openai._base_client import AsyncAPIClient
from opentelemetry import trace

from tenuto import _wire, process, raw_headers
from tenuto.observer import watched_with
from tenuto.redirects import Sent
from tenuto.session import Session
from tenuto.telemetry import names
from tenuto.telemetry.processor import attributes_of, conversation_of, ids_of, last_begun, put
from tenuto.telemetry.tools import ToolWaits, phase_of
from tenuto.turns import Try

_SERVED = _wire.SERVED.lower().encode()
# A raw answer over this size is not looked through.
_MAX_RAW_BYTES = 1 << 20


class Call:
    """One HTTP try, the span that it is told on, and how it was answered."""

    __slots__ = ("__weakref__", "_waits", "is_told", "sent", "span", "status")

    def __init__(self, span: Any, sent: Sent, waits: ToolWaits | None, *, is_told: bool) -> None:
        self.span = span
        self._waits = waits
        self.sent = sent
        self.is_told = is_told
        self.status: int | None = None

    def headed(self, response: Any) -> None:
        """Tell where the call was served."""
        try:
            text = raw_headers.value(response.headers, _SERVED)
            served = _wire.decode_served(text) if text is not None else None
            if served is not None:
                said = (
                    (names.RANK, served.rank),
                    (names.HOME, served.home),
                    (names.WHY, served.why),
                    (names.LEASE_S, served.lease),
                )
                self._tell({name: value for name, value in said if value is not None})
        except Exception:
            process.pass_over("trace")

    def take(self, value: Any) -> None:
        """Tell how much of the prompt was cached, from an answer or the piece that has it."""
        try:
            share = _cached_share(value)
            if share is not None:
                self._tell({names.CACHED_SHARE: share})
        except Exception:
            process.pass_over("trace")

    def closed(self, tools: tuple[str, ...]) -> None:
        """Begin the wait for these tools."""
        if self._waits is not None and self.sent.attempt is not None:
            self._waits.begin(self.sent, self.span, tools)

    def _tell(self, said: dict[str, Any]) -> None:
        # A stream's may have ended with the call that opened it.
        if self.is_told and self.span.is_recording():
            self.span.set_attributes(said)


def span_of_call() -> Any:
    """Return the span of the call that is made here: the current one, or one begun for it."""
    current = trace.get_current_span()
    return last_begun(current) or current


class Calls:
    """The calls that go on: the last try of each is known as long as openai keeps its request."""

    def __init__(self) -> None:
        self._tries: WeakValueDictionary[str, Call] = WeakValueDictionary()

    def begin(
        self, client: Any, options: Any, sent: Sent, span: Any, waits: ToolWaits | None
    ) -> Call:
        """Return a try of a marked call, with its span told what it is."""
        is_told = span.is_recording() and _is_of(span, sent.session)
        if is_told:
            _annotate(span, sent.session, sent.attempt)
        call = Call(span, sent, waits, is_told=is_told)
        if sent.attempt is not None:
            before = self._tries.get(options.idempotency_key or "")
            if sent.attempt.attempt:
                _tell_retry(span, sent, sent.attempt, before)
            elif waits is not None:
                waits.end(sent)
            if options.idempotency_key:
                self._tries[options.idempotency_key] = call
            _watch_status(client)
        return call


def _is_of(span: Any, session: Session) -> bool:
    """Tell whether a call's turn is said of a span: not of one that stands for more than it."""
    there = attributes_of(span)
    if there.get(names.OPERATION) in {names.INVOKE_AGENT, names.INVOKE_WORKFLOW}:
        return False
    return there.get(names.SESSION, session.session_id) == session.session_id


def _annotate(span: Any, session: Session, attempt: Try | None) -> None:
    there = attributes_of(span)
    said = ids_of(session)
    if names.is_model_call(there) or names.is_gen_ai("", there):
        said |= conversation_of(session)
    put(span, said)
    if attempt is not None:
        turn: dict[str, Any] = {names.TURN: attempt.n, names.ATTEMPT: attempt.attempt}
        if phase := phase_of(attempt):
            turn[names.PHASE] = phase
        span.set_attributes(turn)


def _tell_retry(span: Any, sent: Sent, attempt: Try, before: Call | None) -> None:
    if not span.is_recording():
        return
    said: dict[str, Any] = {names.TURN: attempt.n, names.ATTEMPT: attempt.attempt}
    # A call that the program makes again is another call; why is for it to know.
    if before is not None and before.sent.session.session_id == sent.session.session_id:
        said[names.RETRY_REASON] = str(before.status or "Unanswered")
    span.add_event(names.RETRY, said)


def _watch_status(client: Any) -> None:
    hooks = client._client.event_hooks["response"]
    hook = _headed_async if isinstance(client, AsyncAPIClient) else _headed
    if hook not in hooks:
        hooks.append(hook)


def _headed(response: Any) -> None:
    call = watched_with(response.request)
    if isinstance(call, Call):
        call.status = response.status_code


async def _headed_async(response: Any) -> None:
    _headed(response)


def _cached_share(value: Any) -> float | None:
    """Return the part of a prompt that its server had in its cache, None where it says none."""
    usage = _get(value, "usage") or _get(_get(value, "response"), "usage")
    if usage is None and isinstance(content := getattr(value, "content", None), bytes):
        # An HTTP answer, that no one has parsed yet.
        if len(content) > _MAX_RAW_BYTES or not content.startswith(b"{"):
            return None
        usage = _get(json.loads(content), "usage")
    details = _get(usage, "prompt_tokens_details") or _get(usage, "input_tokens_details")
    cached = _get(details, "cached_tokens")
    prompt = _get(usage, "prompt_tokens") or _get(usage, "input_tokens")
    if type(cached) is not int or type(prompt) is not int or prompt < 1:
        return None
    return min(max(cached / prompt, 0.0), 1.0)


def _get(value: Any, name: str) -> Any:
    return value.get(name) if value.__class__ is dict else getattr(value, name, None)
