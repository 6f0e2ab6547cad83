"""What a request says of itself, read by the table of dialects. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from tenuto import _wire
from tenuto.conformance.captured import Request
from tenuto.conformance.dialects import DIALECTS, Carrier, Dialect, Role
from tenuto.conformance.shapes import record
from tenuto.errors import ConfigError

_BODY = "body:"


class Said(NamedTuple):
    """The markers of one request, None where it says nothing; `names` holds what said them."""

    session: str | None = None
    parent: str | None = None
    run: str | None = None
    n: int | None = None
    attempt: int | None = None
    kind: str | None = None
    fork: str | None = None
    names: tuple[tuple[Role, str], ...] = ()

    def name_of(self, role: Role) -> str:
        """Return the header or field that a role was read from, as a reader knows it."""
        return next((name for said, name in self.names if said == role), role)


def named(names: Iterable[str]) -> tuple[Dialect, ...]:
    """Return the dialects of these names, in the table's order.

    Raises:
        ConfigError: one is not in the table; the message lists those that are.
    """
    wanted = set(names)
    known = {dialect.name for dialect in DIALECTS}
    if unknown := sorted(wanted - known):
        raise ConfigError(
            f"dialect {unknown[0]!r} is not known; choose of {', '.join(sorted(known))}"
        )
    return tuple(dialect for dialect in DIALECTS if dialect.name in wanted)


def detect(requests: Sequence[Request]) -> tuple[Dialect, ...]:
    """Return the dialects that the requests speak; a gateway in front of a router is two."""
    present = {
        name
        for dialect in DIALECTS
        for tell in dialect.tells
        for name in tell
        if any(value_of(request, name) for request in requests)
    }
    taken: set[str] = set()
    found: list[Dialect] = []
    for dialect in DIALECTS:
        if any(set(tell) <= present - taken for tell in dialect.tells):
            found.append(dialect)
            taken |= {carrier.name for carrier in dialect.carriers}
    return tuple(found)


def says_session(request: Request) -> bool:
    """Tell whether a request carries a session in any dialect."""
    return any(
        value_of(request, carrier.name)
        for dialect in DIALECTS
        if dialect.tells
        for carrier in dialect.carriers
        if carrier.role == "session"
    )


def read(request: Request, dialects: Sequence[Dialect]) -> Said:
    """Return what a request says in these dialects, the first that says it."""
    found: dict[Role, tuple[str, Any]] = {}
    for carrier in (carrier for dialect in dialects for carrier in dialect.carriers):
        if carrier.role not in found and (value := _carried(request, carrier)) is not None:
            found[carrier.role] = (carrier.name, value)
    n, attempt = (found.get(role, ("", None))[1] for role in ("n", "attempt"))
    texts = {
        role: str(found[role][1]) if role in found else None
        for role in ("session", "parent", "run", "class", "fork")
    }
    return Said(
        texts["session"],
        texts["parent"] if texts["parent"] != "" else None,
        texts["run"],
        n if type(n) is int else None,
        attempt if type(attempt) is int else None,
        texts["class"],
        texts["fork"],
        tuple((role, name.removeprefix(_BODY)) for role, (name, _) in found.items()),
    )


def _carried(request: Request, carrier: Carrier) -> Any:
    if carrier.given is not None and not value_of(request, carrier.given):
        return None
    value = value_of(request, carrier.name)
    return value if value not in ("", None) else None


def value_of(request: Request, name: str) -> Any:
    """Return what stands at a name of the table, None when nothing does."""
    if name.startswith(_BODY):
        value = request.body
        for part in name.removeprefix(_BODY).split("."):
            value = _object(value).get(part)
        return value
    header, _, member = name.partition("#")
    text = request.header(header)
    if not member or text is None:
        return text
    if header == _wire.TURN.lower():
        return _in_turn(turn_of(request), member)
    if header == "baggage":
        pairs = (pair.split(";")[0].partition("=") for pair in text.split(","))
        return {key.strip(): unquote(value.strip()) for key, _, value in pairs}.get(member)
    return _object(text).get(member)


def _object(value: Any) -> dict[str, Any]:
    """Return an object that travels as itself or as its JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return record(value)


def turn_of(request: Request) -> _wire.Turn:
    """Return what a request's `X-Agent-Turn` says."""
    name = _wire.TURN.lower().encode()
    lines = [value for key, value in request.headers if key == name]
    return _wire.decode_turn(b", ".join(lines), [])


def _in_turn(turn: _wire.Turn, member: str) -> Any:
    return getattr(turn, "kind" if member == "class" else member, None)
