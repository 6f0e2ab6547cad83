"""A gateway in front of a server as one dialect. Pure.

It sends what the outer one reads, and what the inner one reads as the outer lets it through.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from tenuto import _wire
from tenuto.dialects.model import Dialect, Echo, Marker
from tenuto.errors import ConfigError

T = TypeVar("T", bound=tuple[object, ...])


@functools.lru_cache(maxsize=256)
def compose(outer: Dialect, inner: Dialect) -> Dialect:
    """Return the dialect of `outer` in front of `inner`, the same object for the same two.

    Raises:
        ConfigError: `outer` lets nothing of `inner` through, so that the stack would only
            look like one; or a header's name would be too long.
    """
    name = f"{outer.name},{inner.name}"
    if _is_only_baggage(inner):
        return replace(outer, name=name, baggage=True)
    if _is_only_baggage(outer):
        return replace(inner, name=name, baggage=True)
    prefix, back = outer.passes, outer.returns
    if prefix is None and not outer.passes_body:
        raise ConfigError(f"{outer.name} passes nothing on to {inner.name}; name it last or alone")
    # What is a token of the outer one's own there, the inner one would take for the session:
    # that goes by the protocol's other name, and the token does not go.
    clashing = frozenset(header for header in outer.withholds if header.encode() in inner.identity)
    withheld = outer.withholds | inner.withholds
    through = _through(outer, inner, is_renamed=bool(clashing))
    return replace(
        outer,
        name=name,
        carries=_unique(
            (header, marker)
            for header, marker in (*outer.carries, *through.carries)
            if not _is_withheld(header, marker, prefix, withheld)
        ),
        says=_unique((*outer.says, *through.says)),
        body=_unique((*outer.body, *through.body)),
        echo=_unique(
            each for each in (*outer.echo, *through.echo) if each.request.lower() not in clashing
        ),
        priority=_unique((*outer.priority, *through.priority)),
        final=_unique((*outer.final, *through.final)),
        id_limit=min((n for n in (outer.id_limit, inner.id_limit) if n is not None), default=None),
        speaks_protocol=outer.speaks_protocol or (inner.speaks_protocol and prefix is not None),
        baggage=outer.baggage or inner.baggage,
        passes=None if prefix is None or inner.passes is None else prefix + inner.passes,
        returns=None if back is None or inner.returns is None else back + inner.returns,
        passes_body=outer.passes_body and inner.passes_body,
        withholds=outer.withholds
        | {prefix + each for each in inner.withholds if prefix is not None},
        note=f"`{outer.name}` in front of `{inner.name}`.",
        sources=_unique((*outer.sources, *inner.sources)),
    )


def _through(outer: Dialect, inner: Dialect, *, is_renamed: bool) -> Dialect:
    """Return what `inner` reads in the names by which it gets through `outer`."""
    body = inner.body if outer.passes_body else ()
    prefix, back = outer.passes, outer.returns
    if prefix is None:
        return Dialect(inner.name, body=body)
    carries: tuple[tuple[str, Marker], ...] = inner.carries
    if is_renamed:
        carries = (*carries, (_wire.SESSION_AFFINITY, "session"))
    return Dialect(
        inner.name,
        carries=tuple((prefix + header, marker) for header, marker in carries),
        says=tuple((prefix + header, value) for header, value in inner.says),
        body=body,
        echo=()
        if back is None
        else tuple(Echo(back + answer, prefix + request) for answer, request in inner.echo),
        priority=tuple(each._replace(header=prefix + each.header) for each in inner.priority),
        final=tuple((prefix + header, value) for header, value in inner.final),
    )


def _is_only_baggage(dialect: Dialect) -> bool:
    return dialect.baggage and not (dialect.carries or dialect.body)


def _is_withheld(header: str, marker: str, prefix: str | None, withheld: frozenset[str]) -> bool:
    """Tell whether a header would reach, from either side, one that must not see it."""
    if prefix is None or not header.startswith(prefix):
        return False
    return marker in withheld or header[len(prefix) :].lower() in withheld


def _unique(items: Iterable[T]) -> tuple[T, ...]:
    """Return the first item of each name, whatever the case of its letters."""
    found: dict[str, T] = {}
    for item in items:
        found.setdefault(str(item[0]).lower(), item)
    return tuple(found.values())
