"""Sessions in a request's JSON body, for programs and routers that put them there.

`session_id` is vLLM's own field; `agent_hint` and `vllm_xargs.agentic_context` are those of
vllm-router's program scheduling (its docs/program_scheduling.md at 14d6d81f), whose
`session_params` is the one body field that it hashes on chat. `conversation` and
`previous_response_id` name no session: several of them make one conversation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from tenuto_vllm._wire import Markers, Turn, is_id
from tenuto_vllm.carriers.values import fits, foreign_id, own_markers

Fields = Mapping[str, Any]

_CONTEXT_BYTES = 16 * 1024
# Every carrier in a body holds one of these. JSON within a JSON string, as in a tool's
# arguments, has its quotes escaped and holds neither.
_TRACES = (b'"session_', b'"agentic_context"')


def read_fields(body: bytes) -> Fields:
    """Return a body's fields, or none when it holds no carrier or is no JSON object.

    A body without a carrier is searched and not parsed. Parsing agrees with the server's own,
    so that of two equal keys both take the last.
    """
    if not any(trace in body for trace in _TRACES):
        return {}
    return _object(body)


def read_named(fields: Fields, dropped: list[str]) -> Markers | None:
    """Return the markers of `agent_hint`, `session_id` or `session_params`, in this order."""
    hint, params = _mapping(fields.get("agent_hint")), _mapping(fields.get("session_params"))
    for holder in (hint, fields, params):
        session = _id(holder, ("session_id",), "body.session", dropped)
        if session is not None:
            parents = ("parent_session_id",) if holder is hint else ()
            parent = _id(holder, parents, "body.parent", dropped)
            return Markers(session, parent if parent != session else None)
    return None


def read_xargs(fields: Fields, dropped: list[str]) -> Markers | None:
    """Return the markers in `vllm_xargs`.

    | in it | gives |
    |---|---|
    | `agentic_context.tenuto` | protocol 1: `session`, `parent`, `run`, `turn`, `affinity` |
    | `agentic_context`, the router's words | session, parent, `step_id` as `n`, `kv_retention_ttl_seconds` as `ttl` |
    | `session_id` | a session |
    """  # noqa: E501 - a table row
    xargs = _mapping(fields.get("vllm_xargs"))
    context = _context(xargs.get("agentic_context"), dropped)
    ours = _mapping(context.get("tenuto"))
    if session := ours.get("session"):
        if isinstance(session, str) and is_id(session):
            return own_markers(session, ours, "vllm_xargs", dropped)
        dropped.append("vllm_xargs.session")
    return _program(context, dropped) or _bare(xargs, dropped)


def _context(value: object, dropped: list[str]) -> Fields:
    """Return `agentic_context`, an object or a string of one."""
    if value is None:
        return {}
    if isinstance(value, str):
        # The router's own limit; vLLM takes the string only, since it refuses nested objects.
        value = _object(value) if len(value.encode(errors="replace")) <= _CONTEXT_BYTES else None
    context = _mapping(value)
    if not context:
        dropped.append("vllm_xargs")
    return context


def _program(context: Fields, dropped: list[str]) -> Markers | None:
    task, agent = context.get("task_id"), context.get("agent_id") or "lead"
    if not context.get("program_id") and isinstance(task, str) and isinstance(agent, str) and task:
        # The id that the router derives, and by which a child names its parent.
        context = {**context, "program_id": f"{task}:{agent}"}
    session = _id(context, ("program_id", "session_id"), "vllm_xargs.session", dropped)
    if session is None:
        return None
    parents = ("parent_program_id", "parent_id", "parent_agent_id")
    parent = _id(context, parents, "vllm_xargs.parent", dropped)
    turn = Turn()
    step, ttl_s = context.get("step_id"), context.get("kv_retention_ttl_seconds")
    if step is not None:
        turn = _with(turn, "n", step, dropped)
    if ttl_s is not None:
        whole = isinstance(ttl_s, float) and math.isfinite(ttl_s)
        turn = _with(turn, "ttl", int(ttl_s) if whole else ttl_s, dropped)
    return Markers(session, parent if parent != session else None, turn=turn)


def _with(turn: Turn, key: str, value: Any, dropped: list[str]) -> Turn:
    if fits(Turn(**{key: value})):
        return turn._replace(**{key: value})
    dropped.append(f"vllm_xargs.turn.{key}")
    return turn


def _bare(xargs: Fields, dropped: list[str]) -> Markers | None:
    session = _id(xargs, ("session_id",), "vllm_xargs.session", dropped)
    return Markers(session) if session is not None else None


def _id(holder: Fields, names: tuple[str, ...], kind: str, dropped: list[str]) -> str | None:
    """Return the id under the first name that is there; null and "" count as absent."""
    for name in names:
        value = holder.get(name)
        if value is None or value == "":
            continue
        good = foreign_id(value)
        if good is None:
            dropped.append(kind)
        return good
    return None


def _mapping(value: object) -> Fields:
    return cast("Fields", value) if isinstance(value, dict) else {}


def _object(text: str | bytes) -> Fields:
    try:
        return _mapping(json.loads(text))
    except (ValueError, RecursionError):
        return {}
