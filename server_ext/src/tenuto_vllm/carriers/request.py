"""The order of the carriers of one request."""

from __future__ import annotations

from collections.abc import Iterable

from tenuto_vllm import _wire
from tenuto_vllm.carriers.aliases import read_aliases
from tenuto_vllm.carriers.baggage import read_baggage
from tenuto_vllm.carriers.body import read_fields, read_named, read_xargs
from tenuto_vllm.carriers.said import Said

Headers = Iterable[tuple[bytes, bytes]]


def in_headers(headers: Headers) -> Said:
    """Read the headers of protocol 1 and, where they give no session, the aliases.

    Args:
        headers: (name, value) pairs as ASGI gives them, names in lower case, any bytes.
    """
    decoded = _wire.decode(headers)
    if decoded.markers is not None:
        return Said(decoded.markers, decoded.dropped)
    dropped = list(decoded.dropped)
    return Said(read_aliases(headers, dropped), tuple(dropped), "alias")


def in_body(body: bytes, headers: Headers) -> Said:
    """Read the carriers of a request whose headers gave no session: the body, then baggage.

    Clients that lose their headers to a router send the bare id as a second copy, which is
    all that the engine reads. So the first carrier's session stands, and of the carriers that
    name that session the first with a turn or a token is taken.

    Args:
        body: the request's body, whole, any bytes; empty when it could not be read.
        headers: as in `in_headers`; only `baggage` is looked at.
    """
    dropped: list[str] = []
    fields = read_fields(body)
    carried = (
        Said(read_named(fields, dropped), carrier="body"),
        Said(read_xargs(fields, dropped), carrier="vllm_xargs"),
        Said(read_baggage(headers, dropped), carrier="baggage"),
    )
    found = [said for said in carried if said.markers is not None]
    if not found:
        return Said(None, tuple(dropped))
    best = next((one for one in found if one.says_more_than(found[0])), found[0])
    return best._replace(dropped=tuple(dropped))


def is_json(headers: Headers) -> bool:
    """Tell whether a request's body calls itself JSON."""
    for name, value in headers:
        if name == b"content-type":
            kind = value.partition(b";")[0].strip().lower()
            return kind == b"application/json" or kind.endswith(b"+json")
    return False
