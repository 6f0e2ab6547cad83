"""Which base URL a call goes to first, and which after it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence


def order(urls: Sequence[str], down_until_s: Mapping[str, float], now_s: float) -> list[str]:
    """Return the base URLs in the order in which a call tries them. Pure.

    Those not known to be down come first, in the order they were given in, so that a URL
    that has come back from its cool-down is the home again; then the others, the one that
    has been down longest first.

    Args:
        urls: as they were given.
        down_until_s: for URLs that failed, the time at which they have cooled down.
        now_s: on the same clock.
    """
    return sorted(urls, key=lambda url: max(down_until_s.get(url, now_s), now_s))


class Routes:
    """The base URLs of a client and its copies, and what is known of them. Thread-safe."""

    def __init__(self, urls: Sequence[str], cooldown_s: float) -> None:
        self.urls = tuple(urls)
        self._cooldown_s = cooldown_s
        self._lock = threading.RLock()
        self._down_until_s: dict[str, float] = {}

    def order(self, now_s: float) -> list[str]:
        """Return the base URLs in the order in which a call made now tries them."""
        with self._lock:
            return order(self.urls, self._down_until_s, now_s)

    def failed(self, url: str, now_s: float) -> None:
        """Avoid `url` until it has cooled down."""
        with self._lock:
            self._down_until_s[url] = now_s + self._cooldown_s

    def answered(self, url: str) -> None:
        """Take `url` as up."""
        if self._down_until_s:
            with self._lock:
                self._down_until_s.pop(url, None)
