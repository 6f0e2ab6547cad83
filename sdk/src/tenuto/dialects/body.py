"""Which fields the JSON body gets, and how they join what the caller has said. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenuto import _wire
from tenuto.dialects.agentic import agentic_context
from tenuto.dialects.model import BodyField, Dialect, EndCall, Route
from tenuto.shape import is_object

_ENDINGS: tuple[tuple[str, Route], ...] = (
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
    ("/responses", "responses"),
    ("/messages", "messages"),
    ("/embeddings", "embeddings"),
)
_PLAIN: dict[str, Route] = dict(_ENDINGS)
_NONE: frozenset[str] = frozenset()


def route_of(url: str) -> Route | None:
    """Return which API a request's URL or path belongs to, None for any other."""
    plain = _PLAIN.get(url)
    if plain is not None:
        return plain
    path = url.split("?", 1)[0]
    return next((route for ending, route in _ENDINGS if path.endswith(ending)), None)


def body_patch(
    dialect: Dialect,
    markers: _wire.Markers,
    turn: str,
    route: Route | None,
    *,
    root: str | None = None,
    without: frozenset[str] = _NONE,
) -> dict[str, Any]:
    """Return the fields for one request, nested as the body is; empty when there are none.

    Args:
        dialect: whom they are for.
        markers: what the request says of itself, its turn's `n` and `ttl` too.
        turn: the `X-Agent-Turn` text, empty for none.
        route: where the request goes.
        root: the session at the root of the run, where it is known.
        without: paths that the server has refused (`rejected_fields`).
    """
    patch: dict[str, Any] = {}
    for each in dialect.body:
        if route not in each.routes or each.path in without:
            continue
        value = _value(each, markers, turn, root)
        if value is None:
            continue
        outer, _, inner = each.path.partition(".")
        if inner:
            patch.setdefault(outer, {})[inner] = value
        else:
            patch[outer] = value
    return patch


def _value(each: BodyField, markers: _wire.Markers, turn: str, root: str | None) -> str | None:
    if each.carries == "context":
        return agentic_context(markers, turn, root)
    return turn or None if each.carries == "turn" else getattr(markers, each.carries)


def merge(patch: Mapping[str, Any], json_data: Any, extra_json: Any) -> dict[str, Any] | None:
    """Return the `extra_json` that adds `patch` to an openai request, None to change nothing.

    openai sends `{**json_data, **extra_json}` less the values that are `Omit`. A key that the
    caller has in either stays as it is, whatever its value; an object of the caller's is
    extended by the keys that it lacks. Nothing of the caller's is changed in place.

    Args:
        patch: what `body_patch` returned.
        json_data: the request's body as the client method made it.
        extra_json: the caller's `extra_body`.
    """
    if not patch or (json_data is None and extra_json is None):
        return None
    said: Any = {} if json_data is None else json_data
    extra: Any = {} if extra_json is None else extra_json
    if not is_object(said) or not is_object(extra):
        return None
    added: dict[str, Any] = {}
    for key, ours in patch.items():
        # What stands in `extra_json` hides what stands in `json_data`.
        if key in extra:
            theirs = extra[key]
        elif key in said:
            theirs = said[key]
        else:
            added[key] = ours
            continue
        if is_object(ours) and is_object(theirs):
            joined = {**ours, **theirs}
            if len(joined) > len(theirs):
                added[key] = joined
    return {**extra, **added} if added else None


def end_calls(dialect: Dialect, session_ids: tuple[str, ...]) -> list[EndCall]:
    """Return the calls that tell a server that sessions have ended, one for each session.

    Whatever they are answered proves nothing: vllm-router says `ok` to an unknown id.
    """
    calls: list[EndCall] = []
    for rule in dialect.end:
        for session in session_ids:
            named = {rule.key: session}
            query, json = (named, None) if rule.place == "query" else (None, named)
            calls.append(EndCall("POST", rule.path, query, json))
    return calls
