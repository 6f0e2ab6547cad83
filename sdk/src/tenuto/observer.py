"""Who is told of calls and scopes as they happen: nobody, unless `tenuto.telemetry` is set up."""

from __future__ import annotations

from typing import Any, Protocol

_KEY = "tenuto.watched"


class Watched(Protocol):
    """One HTTP try of a call, as who is told of it keeps it."""

    def headed(self, response: Any) -> None:
        """Take the head of its answer."""
        ...

    def take(self, value: Any) -> None:
        """Take its answer, or a piece of it, as openai's object or as JSON."""
        ...

    def closed(self, tools: tuple[str, ...]) -> None:
        """Take what its whole answer is followed by: these tools, or none."""
        ...


class Observer(Protocol):
    """What is told of each call and scope. It must not raise, nor wait."""

    def sending(self, client: Any, options: Any, request: Any) -> Watched | None:
        """Take an HTTP try that is about to be sent; return who is told of its answer."""
        ...

    def entered(self, entry: Any) -> None:
        """Take a scope that was entered."""
        ...

    def left(self, entry: Any, error: BaseException | None) -> None:
        """Take a scope that was left, and the error that it was left by."""
        ...


# Replaced as a whole, so that a call sees the one or the other.
observers: tuple[Observer, ...] = ()


def add(observer: Observer) -> None:
    """Have `observer` told of what happens after this."""
    global observers  # noqa: PLW0603 - one attribute is all that a call looks at
    observers = (*observers, observer)


def remove(observer: Observer) -> None:
    """Have `observer` told of nothing more."""
    global observers  # noqa: PLW0603
    observers = tuple(one for one in observers if one is not observer)


def sending(client: Any, options: Any, request: Any) -> None:
    """Tell of an HTTP try, and have its answer told to who wants it."""
    for observer in observers:
        watched = observer.sending(client, options, request)
        if watched is not None:
            request.extensions[_KEY] = watched


def watched_with(request: Any) -> Watched | None:
    """Return who is told of a request's answer, None when nobody is."""
    watched: Watched | None = request.extensions.get(_KEY)
    return watched


def entered(entry: Any) -> None:
    """Tell of a scope that was entered."""
    for observer in observers:
        observer.entered(entry)


def left(entry: Any, error: BaseException | None) -> None:
    """Tell of a scope that was left."""
    for observer in observers:
        observer.left(entry, error)
