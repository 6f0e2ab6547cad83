"""What vLLM's own span of a request says of its turn. Pure.

The names are those that `tenuto` puts on the client's spans, wherever both say the same thing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from tenuto_vllm import _wire

Value = str | int | float | bool
Attributes = Mapping[str, Value]

CONVERSATION = "gen_ai.conversation.id"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
RUN = "tenuto.run.id"
SESSION = "tenuto.session.id"
PARENT_SESSION = "tenuto.session.parent.id"
TURN = "tenuto.turn.index"
ATTEMPT = "tenuto.turn.attempt"
PHASE = "tenuto.turn.phase"
NEXT = "tenuto.turn.next"
CLASS = "tenuto.turn.class"
TTL_S = "tenuto.turn.ttl_s"
RANK = "tenuto.served.rank"
HOME = "tenuto.served.home"
WHY = "tenuto.served.why"
LEASE_S = "tenuto.served.lease_s"
CACHED_SHARE = "tenuto.prompt.cached_share"
LEASE = "tenuto.lease.decision"
LEASE_WAIT_S = "tenuto.lease.wait_s"
LEASE_LASTS_S = "tenuto.lease.lasts_s"

CARRIER = "tenuto-decided"
"""The key beside `traceparent` under which an engine sends its decision back."""

_DECIDED = {"decision": LEASE, "wait_s": LEASE_WAIT_S, "lasts_s": LEASE_LASTS_S}


def attributes(markers: _wire.Markers, served: _wire.Served) -> dict[str, Value]:
    """Return what an API process knows of a request; what is not known is left out.

    Args:
        markers: what the request said.
        served: what it was answered, or would be.
    """
    turn = markers.turn
    known = {
        CONVERSATION: markers.session,
        SESSION: markers.session,
        RUN: markers.run,
        PARENT_SESSION: markers.parent,
        TURN: turn.n,
        ATTEMPT: turn.attempt,
        PHASE: turn.phase,
        NEXT: turn.next,
        CLASS: turn.kind,
        TTL_S: turn.ttl,
        RANK: served.rank,
        HOME: served.home,
        WHY: served.why,
        LEASE_S: served.lease,
    }
    return {name: value for name, value in known.items() if value is not None}


def cached(tokens: int, prompt_tokens: int) -> dict[str, Value]:
    """Return what was found in the cache of a prompt."""
    share = min(max(tokens / prompt_tokens, 0.0), 1.0) if prompt_tokens else 0.0
    return {CACHED_TOKENS: tokens, CACHED_SHARE: share}


def pack(decided: Mapping[str, object]) -> str:
    """Return an engine's decision as a text; `decided` is that of its decision log."""
    said = ((name, decided.get(key)) for key, name in _DECIDED.items())
    return json.dumps({name: value for name, value in said if value is not None})


def unpack(text: object) -> dict[str, Value]:
    """Read what `pack` wrote; nothing of anything else."""
    try:
        said: Any = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    if not isinstance(said, dict):
        return {}
    found = cast("dict[str, Any]", said)
    return {name: found[name] for name in _DECIDED.values() if isinstance(found.get(name), Value)}
