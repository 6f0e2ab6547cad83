"""vLLM's own header for the rank of a request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tenuto_vllm.asgi.types import Scope

_RANK = b"x-data-parallel-rank"
_ASCII_RANK = re.compile(rb"[0-9]{1,5}")


def put_rank(scope: Scope, rank: int) -> None:
    """Write a rank into a request's headers, the list of which is left as it is."""
    scope["headers"] = [*scope["headers"], (_RANK, b"%d" % rank)]


def take_rank(scope: Scope) -> tuple[Scope, Sequence[bytes]]:
    """Return the request without its rank headers, the same object if it has none, and those."""
    given = [value for name, value in scope["headers"] if name == _RANK]
    if not given:
        return scope, given
    kept = [header for header in scope["headers"] if header[0] != _RANK]
    return {**scope, "headers": kept}, given


def read_rank(given: Sequence[bytes], ranks: int) -> int | None:
    """Return a rank that is single, in ASCII digits and one of `ranks`."""
    if len(given) != 1 or _ASCII_RANK.fullmatch(given[0]) is None:
        return None
    rank = int(given[0])
    return rank if rank < ranks else None
