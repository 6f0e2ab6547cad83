"""Which base URL a call goes to first, and which after it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence


def order(
    urls: Sequence[str],
    down_until_s: Mapping[str, float],
    now_s: float,
    *,
    home: str | None = None,
    session: str = "",
) -> list[str]:
    """Return the base URLs in the order in which a call tries them. Pure.

    Those not known to be down come first, then the others, the one that has been down
    longest first. Among equals:

    | call | order |
    |---|---|
    | in no session | as given: a URL that has come back from its cool-down is first again |
    | of a session with a home | the home, then by rendezvous |
    | of one without | by rendezvous: each session has an order of its own, and one more or \
one less URL leaves the others in it |

    Args:
        urls: as they were given.
        down_until_s: for URLs that failed, the time at which they have cooled down.
        now_s: on the same clock.
        home: where the session lives.
        session: its id.
    """

    def place(url: str) -> tuple[float, bool, int]:
        weight = _weight(session, url) if session else 0
        return max(down_until_s.get(url, now_s), now_s), url != home, -weight

    return sorted(urls, key=place)


def _weight(session: str, url: str) -> int:
    digest = hashlib.blake2b(f"{session} {url}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


class Routes:
    """The base URLs of a client and its copies, and what is known of them. Thread-safe."""

    def __init__(self, urls: Sequence[str], cooldown_s: float) -> None:
        self.urls = tuple(urls)
        self._cooldown_s = cooldown_s
        self._lock = threading.RLock()
        self._down_until_s: dict[str, float] = {}

    def order(self, now_s: float, *, home: str | None = None, session: str = "") -> list[str]:
        """Return the base URLs in the order in which a call made now tries them."""
        with self._lock:
            return order(self.urls, self._down_until_s, now_s, home=home, session=session)

    def failed(self, url: str, now_s: float) -> None:
        """Avoid `url` until it has cooled down."""
        with self._lock:
            self._down_until_s[url] = now_s + self._cooldown_s

    def answered(self, url: str) -> None:
        """Take `url` as up."""
        if self._down_until_s:
            with self._lock:
                self._down_until_s.pop(url, None)
