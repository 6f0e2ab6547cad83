"""A request's hint, from whichever carrier brought it. Imports nothing of vLLM."""

from __future__ import annotations

from typing import Any

from tenuto_vllm.retention.hint import ACTION, Hint, id_of, unpack
from tenuto_vllm.retention.waits import LEAST_LEASE_S

# Of requests that end so nothing is kept.
WORTHLESS = frozenset({"FINISHED_ABORTED", "FINISHED_ERROR", "FINISHED_IGNORED"})


class Asked:
    """What is known of a request; it hangs on vLLM's own.

    Attributes:
        hint: what was said of its session; None where nothing was.
        stats: that has vLLM's count of the tokens found cached.
        wanted: tokens found cached, and the boundaries to be kept behind them.
        adopted: ids of the checkpoints that it has left to its session.
    """

    __slots__ = ("adopted", "hint", "stats", "wanted")

    def __init__(self, hint: Hint | None, stats: Any) -> None:
        self.hint = hint
        self.stats = stats
        self.wanted: tuple[int, tuple[int, ...]] = (-1, ())
        self.adopted: list[int] = []

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that were in this engine's cache."""
        # What a connector brought was not.
        cached = getattr(self.stats, "num_local_cached_tokens", None)
        return max(0, getattr(self.stats, "num_cached_tokens", 0) if cached is None else cached)


def asked_of(request: Any) -> Asked | None:
    """Return what is known of a request; None where that is nothing."""
    asked: Asked | None = getattr(request, "tenuto", None)
    return asked


def may_have_stopped(request: Any) -> bool:
    """Return whether an aborted request may have ended well: at a text of its `stop`.

    vLLM's API process finds the text, and aborts the request in the engine.
    """
    stop = getattr(request.sampling_params, "stop", None)
    return bool(stop) and request.num_output_tokens > 0


def shortest(hint: Hint) -> Hint:
    """Return a hint that asks for a lease of the shortest kind at most."""
    ttl_s = round(LEAST_LEASE_S)
    asked_s = hint.turn.ttl
    return hint._replace(
        turn=hint.turn._replace(ttl=ttl_s if asked_s is None else min(asked_s, ttl_s))
    )


def take_hint(request: Any) -> Hint | None:
    """Return what is said of a request's session, and give the request its clean session id.

    | carrier | vLLM |
    |---|---|
    | an action `tenuto.turn` in `kv_hints` | from 0.31 |
    | the session id, packed | before; later a client could write one into its body |
    """
    if hasattr(request, "kv_hints"):
        for action in request.kv_hints.actions if request.kv_hints is not None else ():
            if action.action_type == ACTION:
                return unpack(action.payload.get("hint"))
        return None
    packed = getattr(request, "session_id", None)
    if not packed or ";" not in packed:
        return None
    hint = unpack(packed)
    if hint is not None:
        request.session_id = id_of(hint.session)
    return hint
