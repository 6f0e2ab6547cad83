"""Where the calls of a program belong of which only the requests are seen.

Markers of any dialect say it. Where there are none, a prompt that begins with the whole of
an earlier one is the next turn of that session, and an equal one is the turn tried again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tenuto.conformance.captured import Request
from tenuto.conformance.reading import Said, detect, read
from tenuto.recording.body import Asked
from tenuto.recording.events import Place
from tenuto.trace import Fork
from tenuto.tries import Tried

_MAX_SESSIONS = 16_384
_CREDENTIALS = ("authorization", "x-api-key", "api-key")


@dataclass(slots=True)
class _Session:
    """What is known of a session: its run, and the last turn with its prompt and tries."""

    run_id: str
    session_id: str
    prompt: bytes = b""
    turn: int = -1
    attempt: int = 0


class Placing:
    """Places calls in the order in which they end; remembers a bounded number of sessions."""

    def __init__(self, key: bytes, limit: int = _MAX_SESSIONS) -> None:
        self._key = key
        self._limit = limit
        self._begun = 0
        # By the digest of the last prompt, and by the id that a marker gives.
        self._by_prompt: OrderedDict[bytes, _Session] = OrderedDict()
        self._by_id: OrderedDict[str, _Session] = OrderedDict()

    def __call__(self, tried: Tried, body: Any, asked: Asked) -> Place:
        """Return where a call belongs."""
        request = tried.request
        raw = [(name.lower(), value) for name, value in request.headers.raw]
        seen = Request(0, "first", 0, 0.0, "POST", request.url.path, "", tuple(raw), body)
        said = read(seen, detect([seen]))
        seed = [asked.model or "", *(request.headers.get(name, "") for name in _CREDENTIALS)]
        prompts = list(self._prompts(asked, "\n".join(seed)))
        if said.session is not None:
            return self._marked(said, said.session, prompts[-1])
        return self._continued(prompts)

    def _prompts(self, asked: Asked, seed: str) -> Iterator[bytes]:
        """Yield the digest of each beginning of a prompt, the whole one last."""
        state = hashlib.blake2b(seed.encode(), digest_size=16, key=self._key)
        yield state.digest()
        for item in asked.items:
            state.update(b"%d:" % len(item))
            state.update(item)
            yield state.digest()

    def _marked(self, said: Said, session_id: str, prompt: bytes) -> Place:
        known = self._by_id.get(session_id)
        if known is None:
            parent = self._by_id.get(said.parent) if said.parent is not None else None
            root = parent.run_id if parent is not None else said.parent or session_id
            known = self._by_id[session_id] = _Session(said.run or root, session_id)
        self._by_id.move_to_end(session_id)
        if len(self._by_id) > self._limit:
            self._by_id.popitem(last=False)
        _next(known, prompt)
        known.turn = known.turn if said.n is None else said.n
        known.attempt = known.attempt if said.attempt is None else said.attempt
        fork = None
        if said.parent is not None and said.fork is not None:
            fork = Fork(session_id=said.parent, inherits=said.fork == "inherit")
        return Place(
            known.run_id,
            session_id,
            said.parent,
            session_class=said.kind,
            fork=fork,
            turn=known.turn,
            attempt=known.attempt,
        )

    def _continued(self, prompts: list[bytes]) -> Place:
        # The first stands for no prompt at all, which nothing goes on from.
        for prompt in reversed(prompts[1:]):
            known = self._by_prompt.pop(prompt, None)
            if known is not None:
                break
        else:
            self._begun += 1
            name = hashlib.blake2b(
                prompts[-1] + b"%d" % self._begun, digest_size=16, key=self._key
            ).hexdigest()
            known = _Session(name, name)
        _next(known, prompts[-1])
        self._by_prompt[prompts[-1]] = known
        if len(self._by_prompt) > self._limit:
            self._by_prompt.popitem(last=False)
        return Place(known.run_id, known.session_id, turn=known.turn, attempt=known.attempt)


def _next(session: _Session, prompt: bytes) -> None:
    """Count a call of a session: a prompt that is the last one is its turn tried again."""
    if session.prompt == prompt:
        session.attempt += 1
        return
    session.prompt = prompt
    session.turn += 1
    session.attempt = 0
