"""At which of several base URLs a session lives: the server there holds its cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tenuto.session import Session
from tenuto.sessions import Origin


@dataclass(frozen=True, slots=True)
class Homes:
    """Reads and writes the home that a session's state remembers.

    Attributes:
        origins: the base URLs of a client, each with the origin of its server.
    """

    origins: Mapping[str, Origin]

    def of(self, session: Session) -> str | None:
        """Return the base URL that a session's calls prefer, None for one that begins.

        It is where the session was served last, else what gave its newest token, as after
        a restart of the program; for an inheriting child without either its parent's.
        """
        states = [session.state]
        if session.fork == "inherit" and session.parent is not None:
            states.append(session.parent.state)
        for state in states:
            if state.home_url in self.origins:
                return state.home_url
            for origin, _, _ in reversed(state.tokens()):
                for url, known in self.origins.items():
                    if known == origin:
                        return url
        return None

    def settle(self, session: Session, url: str) -> None:
        """Remember that a session lives at `url`, one of these, from this answer on."""
        state, origin = session.state, self.origins[url]
        state.home_url = url
        tokens = state.tokens()
        if tokens and tokens[-1][0] != origin:
            # What carries the session elsewhere says its home by the newest token.
            for known, name, token in tokens:
                if known == origin:
                    state.keep_token(origin, token, name)
