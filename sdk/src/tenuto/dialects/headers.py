"""Which headers a request gets. Pure; `fixed` once per session, the rest on every call."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from tenuto import _wire
from tenuto.dialects.model import Dialect, Raw

# Room for llm-d's base64 of a Kubernetes namespace and name, 424 characters at most.
_TOKEN = re.compile(r"[\x21-\x7e]{1,512}")


def fixed(dialect: Dialect, markers: _wire.Markers) -> tuple[Raw, ...]:
    """Return the headers that are the same on every request of a session.

    Args:
        dialect: whom they are for.
        markers: its `session`, `parent` and `run`. An invalid parent or run is left out, and
            so is a parent that is the session itself; an invalid session leaves out all.
    """
    if not _wire.is_id(markers.session):
        return ()
    values = {"session": markers.session}
    if markers.parent is not None and markers.parent != markers.session:
        values["parent"] = markers.parent
    if markers.run is not None:
        values["run"] = markers.run
    carried = [
        (name, values[marker])
        for name, marker in dialect.carries
        if marker in values and _wire.is_id(values[marker])
    ]
    # A session keeps them, so that what many have alike is there once.
    return tuple((*_name(name), _value(value)) for name, value in (*carried, *dialect.says))


@functools.lru_cache(maxsize=1024)
def _name(name: str) -> tuple[bytes, bytes]:
    return name.encode(), name.lower().encode()


@functools.lru_cache(maxsize=1024)
def _value(value: str) -> bytes:
    return value.encode()


def varying(
    dialect: Dialect, turn: bytes = b"", prio: int | None = None, *, is_final: bool = False
) -> list[Raw]:
    """Return the headers of one turn.

    Args:
        dialect: whom they are for.
        turn: the `X-Agent-Turn` text; empty for a request that is no turn.
        prio: the priority, higher is more urgent.
        is_final: the request is known to be the session's last.
    """
    items = [(*name, turn) for name in dialect.turn_names] if turn else []
    if prio is not None:
        for priority in dialect.priority:
            header = priority.header.encode()
            items.append((header, header.lower(), priority.value(prio).encode()))
    if is_final:
        items.extend(dialect.final_items)
    return items


def echoes(dialect: Dialect, kept: Callable[[str], str | None]) -> list[Raw]:
    """Return the headers that give back what the request's origin gave the session.

    Args:
        dialect: whom they are for.
        kept: what was kept under the name of an answer's header.
    """
    items: list[Raw] = []
    for answer, _, name, lower in dialect.echo_names:
        value = kept(answer)
        if value is not None:
            items.append((name, lower, value.encode()))
    return items


def heard(dialect: Dialect, value: Callable[[bytes], str | None]) -> list[tuple[str, str]]:
    """Return what an answer gives to keep: (name of the answer's header, value).

    Args:
        dialect: who answered.
        value: the answer's header of a name in lower case.
    """
    found: list[tuple[str, str]] = []
    for answer, lower, _, _ in dialect.echo_names:
        given = value(lower)
        if given is not None and _TOKEN.fullmatch(given):
            found.append((answer, given))
    return found
