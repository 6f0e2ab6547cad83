"""One attempt of a call: its options, its client, and what is done with its stream."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import openai
from openai import AsyncStream, NotGiven, Stream, Timeout

from tenuto import process
from tenuto.retry.streams import guard

_MODEL_ROUTES = ("/chat/completions", "/completions", "/responses")
_TIMEOUTS = ("connect", "read", "write", "pool")


def url_of(client: Any) -> str:
    """Return a client's base URL as this package compares them."""
    return str(client.base_url).rstrip("/")


def prepared(client: Any, options: Any, *, stream: bool) -> Any:
    """Return the options of a logical call, for attempts that are made one by one."""
    options = options.model_copy()
    options.max_retries = 0
    if options.idempotency_key is None and options.method.lower() != "get":
        # As openai does over its own retries: one key for one logical call.
        options.idempotency_key = client._idempotency_key()
    if stream:
        # The one place that also sees the stream that a caller makes of a raw response.
        options.post_parser = _guarding(options.post_parser, options.url in _MODEL_ROUTES)
    return options


def _guarding(parser: Any, of_model: bool) -> Callable[[Any], Any]:
    def parse(parsed: Any) -> Any:
        if not isinstance(parser, NotGiven):
            parsed = parser(parsed)
        if _is_stream(parsed):
            try:
                guard(parsed, of_model=of_model)
            except Exception:
                process.pass_over("watch the stream of")
        return parsed

    return parse


def _is_stream(value: Any) -> bool:
    return isinstance(value, Stream | AsyncStream)


def rewinder(options: Any) -> Callable[[], bool]:
    """Return what makes a call's body ready to be sent again, and tells whether it is.

    openai 3 knows of bodies that can be read once only; openai 2 sends all again as they are.
    """
    internals: Any = vars(openai).get("_base_client")
    replay = getattr(internals, "_RequestBodyReplay", None)
    if replay is None:
        return lambda: True
    rewind: Callable[[], bool] = replay(options).rewind
    return rewind


def timeout_within(left_s: float, asked: Any, default: Any) -> Timeout:
    """Return a call's timeouts, none of them longer than `left_s`.

    Args:
        left_s: seconds left until the deadline.
        asked: the call's own timeout, if one was given.
        default: the client's.
    """
    timeout = default if isinstance(asked, NotGiven) else asked
    limits: dict[str, float] = {}
    for part in _TIMEOUTS:
        # A number or None stands for all four.
        limit: float | None = getattr(timeout, part, timeout)
        limits[part] = left_s if limit is None else min(limit, left_s)
    return Timeout(**limits)


def moved(client: Any, own: str, url: str) -> Any:
    """Return a client that is `client` in all but its base URL, for one attempt."""
    elsewhere = copy.copy(client)
    elsewhere.base_url = url
    endpoint = getattr(client, "_azure_endpoint", None)
    if endpoint is not None:
        # Azure makes the address of routes without a deployment from its endpoint.
        suffix = own.removeprefix(str(endpoint).rstrip("/"))
        elsewhere._azure_endpoint = type(endpoint)(url.removesuffix(suffix))
    return elsewhere
