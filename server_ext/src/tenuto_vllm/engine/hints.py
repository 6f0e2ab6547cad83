"""A request's hint, from whichever carrier brought it. Imports nothing of vLLM."""

from __future__ import annotations

from typing import Any

from tenuto_vllm.retention.hint import ACTION, Hint, unpack


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
        request.session_id = hint.session.rpartition(".")[2]
    return hint
