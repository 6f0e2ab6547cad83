"""`wrap(client)`: the one seam with openai's clients.

The client's class is swapped in place for a subclass that overrides three methods, so that
the object, its type for a type checker, copies (`with_options`, `copy`), raw and streaming
responses and openai's own retries all keep working, and other wrappers compose in either
order:

* `_build_request` runs per attempt and marks the finished HTTP request, where every
  header of the caller, of the client and of its HTTP client is already there to win;
* `_process_response` reads the answer;
* `request` makes a call again without a body field of ours that the server refuses.

Each of ours ends in the original, and an error of ours is logged and passed over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from openai import BadRequestError, UnprocessableEntityError
from openai._base_client import AsyncAPIClient, SyncAPIClient

from tenuto import dialects, observer, process, tries
from tenuto.answered import learn_answer, learn_head
from tenuto.dialects import Choice, Dialect, rejected_fields
from tenuto.errors import ConfigError
from tenuto.redirects import Sent, sent_with
from tenuto.stamp import marked

_REFUSALS = (BadRequestError, UnprocessableEntityError)
C = TypeVar("C", bound="SyncAPIClient | AsyncAPIClient")


def wrap(client: C, *, dialect: Choice | None = None) -> C:
    """Mark the calls of an openai client with the session they are made in.

    Args:
        client: `OpenAI`, `AsyncOpenAI`, `AzureOpenAI`, `AsyncAzureOpenAI` or a
            subclass. It is changed in place; clients made from it by `with_options`
            or `copy` are marked too. Wrapping twice changes nothing.
        dialect: the kind of server (docs/dialects.md), or several from the outermost
            gateway inwards; by default `TENUTO_DIALECT`, or else chosen by the host that a
            request goes to.

    Returns:
        The same object.

    Raises:
        ConfigError: `client` is not an openai client, or the dialect is unknown.
    """
    kind: type[Any] = type(client)
    if not issubclass(kind, SyncAPIClient | AsyncAPIClient):
        raise ConfigError(
            f"wrap() takes an openai client such as OpenAI() or AsyncOpenAI(), got {kind.__name__}"
        )
    chosen = dialects.named(dialect) if dialect is not None else None
    if chosen is not None or not hasattr(kind, "__tenuto_dialect__"):
        base = kind.__dict__.get("__tenuto_base__", kind)
        try:
            client.__class__ = _marked_class(base, chosen)
        except TypeError as error:
            raise ConfigError(f"wrap() cannot subclass {base.__name__}: {error}") from error
        _look_past_wrapper(client)
        client.__dict__.pop("_tenuto_place", None)
    return client


def _look_past_wrapper(client: Any) -> None:
    """Stand before another wrapper's `request` too, which hides the class's."""
    theirs = client.__dict__.get("request")
    if theirs is not None and not hasattr(theirs, "__tenuto_request__"):
        ours: Any = _forgoing(theirs, isinstance(client, AsyncAPIClient))
        ours.__tenuto_request__ = True
        client.__dict__["request"] = ours


@functools.lru_cache(maxsize=64)
def _marked_class(base: type[Any], dialect: Dialect | None) -> type[Any]:
    # The names stay: openai's User-Agent is made of the class's own.
    body: dict[str, Any] = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__tenuto_base__": base,
        "__tenuto_dialect__": dialect,
    }
    if not hasattr(base, "__tenuto_dialect__"):
        body |= _seams(base)
    return type(base.__name__, (base,), body)


def _seams(base: type[Any]) -> dict[str, Any]:
    is_async = issubclass(base, AsyncAPIClient)

    def build(self: Any, options: Any, *args: Any, **given: Any) -> Any:
        request = marked(self, options, lambda one: base._build_request(self, one, *args, **given))
        if tries.sinks:
            tries.begin(self, options, request)
        if observer.observers:
            observer.sending(self, options, request)
        return request

    def read(self: Any, *args: Any, **given: Any) -> Any:
        sent = _learn_head(self, given.get("response"))
        if tries.sinks:
            tries.answered(given.get("response"))
        value = base._process_response(self, *args, **given)
        return value if sent is None else _learned(sent, value, given["response"])

    async def read_async(self: Any, *args: Any, **given: Any) -> Any:
        sent = _learn_head(self, given.get("response"))
        if tries.sinks:
            tries.answered(given.get("response"))
        value = await base._process_response(self, *args, **given)
        return value if sent is None else _learned(sent, value, given["response"])

    def late(*args: Any, **given: Any) -> Any:
        # Looked up when it is called: other wrappers may replace the class's later.
        return base.request(*args, **given)

    return {
        "_build_request": build,
        "_process_response": read_async if is_async else read,
        "request": _forgoing(late, is_async),
    }


def _forgoing(request: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
    """Return `request`, which makes a call again without a field of ours that is refused."""

    def call(*args: Any, **given: Any) -> Any:
        made = functools.partial(tries.watch, request) if tries.sinks else request
        while True:
            try:
                return made(*args, **given)
            except _REFUSALS as error:
                if not _forgo(error):
                    raise

    async def call_async(*args: Any, **given: Any) -> Any:
        made = functools.partial(tries.watch_async, request) if tries.sinks else request
        while True:
            try:
                return await made(*args, **given)
            except _REFUSALS as error:
                if not _forgo(error):
                    raise

    return call_async if is_async else call


def _learn_head(client: Any, response: Any) -> Sent | None:
    """Read an answer's headers for the session that asked; return what was sent, if marked."""
    try:
        if response is None:
            return None
        sent = sent_with(response.request)
        if sent is not None:
            learn_head(sent, client, response)
            watched = observer.watched_with(response.request)
            if watched is not None:
                watched.headed(response)
        return sent
    except Exception:
        process.pass_over("read the answer of")
        return None


def _learned(sent: Sent, value: Any, response: Any) -> Any:
    """Return an answer, read for the session that asked."""
    try:
        learn_answer(sent, value, response)
    except Exception:
        process.pass_over("read the answer of")
    return value


def _forgo(error: BadRequestError | UnprocessableEntityError) -> bool:
    """Tell whether an error is about a body field of ours, and send that field no more."""
    try:
        sent = sent_with(error.response.request)
        if sent is None or not sent.fields:
            return False
        refused = rejected_fields(sent.dialect, error.status_code, error.response.text)
        refused &= set(sent.fields)
        if refused - process.forgone(sent.dialect.name):
            process.forgo(sent.dialect.name, refused)
        # Another call may have learned it first: this one was made with the field all the same.
        return bool(refused)
    except Exception:
        process.pass_over("look at the refusal of")
    return False
