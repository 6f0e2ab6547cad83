"""`POST /tenuto/place`: the decision for a router that sends the requests itself.

The shapes are in docs/prefill-decode.md, Placing for a router.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from tenuto_vllm._wire import is_id
from tenuto_vllm.pd.fleet import Fleet
from tenuto_vllm.pd.planner import Plan
from tenuto_vllm.pd.words import ENGINES, words
from tenuto_vllm.placement.split import Copies, Turn

PATH = "/tenuto/place"
SHAPE = (
    'The body must be an object with a session and its prompt: {"session": "ID", '
    '"prompt_tokens": 8000}.'
)

_MOST = 999_999_999
_ITEMS = ("prompt_tokens", "keep", "prefix", "append", "output_tokens")
_PROMISES = ("slo_ttft_s", "slo_itl_s")


class BadShape(ValueError):
    """A body that says nothing that can be placed; the message says why, or is empty."""


def told_of(body: bytes) -> Mapping[str, Any]:
    """Return the fields of a body.

    Raises:
        BadShape: it is of another shape.
    """
    try:
        told: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadShape from error
    if not isinstance(told, dict):
        raise BadShape
    fields = cast("dict[str, Any]", told)
    session = fields.get("session")
    if not isinstance(session, str) or not is_id(session):
        raise BadShape
    return fields


def turn_of(fields: Mapping[str, Any], copies: Copies, promised: Callable[[Turn], Turn]) -> Turn:
    """Return the turn that is to be placed, and bring its session's copies up to it.

    Args:
        fields: of the body.
        copies: what is cached where.
        promised: adds to a turn what is promised to all.

    Raises:
        BadShape: it is of another shape.
    """
    said = {name: fields[name] for name in _ITEMS if fields.get(name) is not None}
    given: dict[str, Any] = {name: _count(value) for name, value in said.items()}
    given |= {name: _seconds(fields[name]) for name in _PROMISES if name in fields}
    turn = promised(Turn(fields["session"]))._replace(**given)
    if turn.prompt_tokens < 1 and turn.append is None:
        raise BadShape
    parent = fields.get("parent")
    if isinstance(parent, str) and not copies.of(turn.session):
        copies.forked(turn.session, parent, turn.keep)
    elif turn.keep is not None:
        copies.edited(turn.session, turn.keep)
    return turn


def loads_of(fields: Mapping[str, Any]) -> dict[str, dict[str, float | int]]:
    """Return what a router says of the servers: `queued_s` and `running`, by name.

    Raises:
        BadShape: it is of another shape.
    """
    loads: dict[str, dict[str, float | int]] = {}
    for name, load in _mapping(fields.get("loads", {}), "loads").items():
        said = _mapping(load, "loads")
        loads[name] = {"running": _count(said.get("running", 0))}
        if queued_s := said.get("queued_s", 0):
            loads[name]["queued_s"] = _seconds(queued_s) or 0.0
    return loads


def learn(fields: Mapping[str, Any], copies: Copies, fleet: Fleet) -> None:
    """Note what came of a turn.

    Raises:
        BadShape: it is of another shape, or of a server that is not there.
    """
    session, answered = fields["session"], fields["answered"]
    if not isinstance(answered, dict):
        raise BadShape
    said = cast("dict[str, Any]", answered)
    decode, prefill = said.get("decode"), said.get("prefill")
    known = {one.url for one in fleet.all()}
    if decode not in known or (prefill is not None and prefill not in known):
        raise BadShape("It was answered by a server that is not one of those here.")
    prompt, output = _count(said.get("prompt_tokens")), _count(said.get("output_tokens", 0))
    if said.get("cached_tokens") is not None:
        copies.reported(session, prefill or decode, _count(said["cached_tokens"]))
    if prefill is not None:
        copies.prefilled(session, prefill, prompt)
    copies.decoded(session, decode, prompt, output)


def shown(plan: Plan, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decision as JSON holds it, and in the words of the engine that is named.

    Raises:
        BadShape: there is no such engine, or an id is missing that it is to be told.
    """
    decision = plan.decision
    told = {**decision._asdict(), "predicted": dict(decision.predicted)}
    engine = fields.get("for")
    if engine is None:
        return told
    if engine not in ENGINES:
        raise BadShape(f'"for" is one of {", ".join(ENGINES)}.')
    ids = {name: _count(value) for name, value in _mapping(fields.get("ids", {}), "ids").items()}
    try:
        return {**told, **words(engine, decision, plan.session, ids)}
    except KeyError as missing:
        raise BadShape('"ids" lacks a server that was chosen.') from missing


def _mapping(value: object, name: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise BadShape(f'"{name}" is an object: something of each server.')


def _count(value: object) -> int:
    if type(value) is int and 0 <= value <= _MOST:
        return value
    raise BadShape


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MOST:
        return float(value)
    raise BadShape("Times are seconds above 0; a promise may be null, for none.")
