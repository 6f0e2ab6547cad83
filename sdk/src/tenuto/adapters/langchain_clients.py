"""The openai clients of a LangChain model, and of what is built around one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

# Of a bound model, one with fallbacks, a sequence, and one of several.
_INNER = ("bound", "runnable", "first", "last", "default")
_INNERS = ("fallbacks", "middle", "alternatives", "steps__")


def clients_of(model: Any) -> Iterator[Any]:
    """Yield the openai clients of a model, or of those in a runnable; none of anything else."""
    held: dict[str, Any] = getattr(model, "__dict__", {})
    own = [held.get(name) for name in ("root_client", "root_async_client")]
    if "root_client" not in held:
        # Resources of openai clients, of models that keep no client.
        own = [getattr(held.get(name), "_client", None) for name in ("client", "async_client")]
    yield from (client for client in own if client is not None)
    inner: list[Any] = [held.get(name) for name in _INNER]
    for name in _INNERS:
        several: Any = held.get(name) or ()
        is_named = isinstance(several, Mapping)
        inner += cast("Mapping[Any, Any]", several).values() if is_named else several
    for one in inner:
        if one is not None:
            yield from clients_of(one)
