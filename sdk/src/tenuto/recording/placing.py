"""Where the calls of a program belong of which only the requests are seen.

Markers of any dialect say it. Where there are none, a prompt that begins with the whole of
an earlier one is the next turn of that session. An equal one is the turn tried again when that
failed, and else a turn of its own.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tenuto.conformance.captured import Request
from tenuto.conformance.reading import Said, detect, read, turn_of
from tenuto.recording.body import Asked
from tenuto.recording.events import Place
from tenuto.recording.heard import Heard
from tenuto.trace import Fork
from tenuto.tried import Tried

_MAX_SESSIONS = 16_384
# A child's first call is placed when it has ended; its parent may have gone on by then.
_MAX_ENDED = 64
_CREDENTIALS = ("authorization", "x-api-key", "api-key")


@dataclass(slots=True)
class _Session:
    """What is known of a session: its run, and the last turn with its prompt and tries.

    Attributes:
        is_answered: the last turn was.
        ended: (when its answer was complete, turn) of the last turns.
    """

    run_id: str
    session_id: str
    prompt: bytes = b""
    turn: int = -1
    attempt: int = 0
    is_answered: bool = False
    ended: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_MAX_ENDED))

    def count(self, prompt: bytes, *, is_answered: bool) -> None:
        """Count a call: one with the last one's prompt, which failed, is its turn tried again."""
        if self.prompt == prompt and not self.is_answered:
            self.attempt += 1
        else:
            self.turn, self.attempt = self.turn + 1, 0
        self.prompt, self.is_answered = prompt, is_answered

    def turn_at(self, at_s: float) -> int | None:
        """Return the last turn that was answered before a time."""
        return max((turn for end_s, turn in self.ended if end_s <= at_s), default=None)


class Placing:
    """Places calls in the order in which they end; remembers a bounded number of sessions."""

    def __init__(self, key: bytes, limit: int = _MAX_SESSIONS) -> None:
        self._key = key
        self._limit = limit
        # Sessions that another process begins with the same prompt are others.
        self._begun, self._salt = 0, secrets.token_bytes(16)
        # By the digest of the last prompt, and by the id that a marker gives.
        self._by_prompt: OrderedDict[bytes, _Session] = OrderedDict()
        self._by_id: OrderedDict[str, _Session] = OrderedDict()

    def __call__(self, tried: Tried, body: Any, asked: Asked, heard: Heard) -> Place:
        """Return where a call belongs."""
        request = tried.request
        raw = [(name.lower(), value) for name, value in request.headers.raw]
        seen = Request(0, "first", 0, 0.0, "POST", request.url.path, "", tuple(raw), body)
        said = read(seen, detect([seen]))
        seed = [asked.model or "", *(request.headers.get(name, "") for name in _CREDENTIALS)]
        if asked.is_partial:
            seed.append(asked.after or "")
        prompts = list(self._prompts(asked, "\n".join(seed)))
        if said.session is None:
            known = self._continued(prompts)
            place = Place(known.run_id, known.session_id)
        else:
            known, place = self._marked(said, said.session, tried.start_s)
            place = place._replace(phase=turn_of(seen).phase)
        known.count(prompts[-1], is_answered=heard.error is None)
        if said.session is not None:
            known.turn = known.turn if said.n is None else said.n
            known.attempt = known.attempt if said.attempt is None else said.attempt
        if heard.error is None and tried.end_s is not None:
            known.ended.append((tried.end_s, known.turn))
        return place._replace(turn=known.turn, attempt=known.attempt)

    def _prompts(self, asked: Asked, seed: str) -> Iterator[bytes]:
        """Yield the digest of each beginning of a prompt, the whole one last."""
        state = hashlib.blake2b(digest_size=16, key=self._key)
        state.update(seed.encode("utf-8", "surrogatepass"))
        yield state.digest()
        for item in asked.items:
            state.update(b"%d:" % len(item))
            state.update(item)
            yield state.digest()

    def _marked(self, said: Said, session_id: str, start_s: float) -> tuple[_Session, Place]:
        known, fork = self._by_id.get(session_id), None
        parent = self._by_id.get(said.parent) if said.parent is not None else None
        if said.parent is not None and (known is None or said.n == 0):
            fork = _fork(said, said.parent, parent, start_s)
        if known is None:
            root = parent.run_id if parent is not None else said.parent or session_id
            known = self._by_id[session_id] = _Session(said.run or root, session_id)
        self._by_id.move_to_end(session_id)
        if len(self._by_id) > self._limit:
            self._by_id.popitem(last=False)
        return known, Place(
            known.run_id, session_id, said.parent, session_class=said.kind, fork=fork
        )

    def _continued(self, prompts: list[bytes]) -> _Session:
        # The first stands for no prompt at all, which nothing goes on from.
        for prompt in reversed(prompts[1:]):
            known = self._by_prompt.pop(prompt, None)
            if known is not None:
                break
        else:
            self._begun += 1
            seed = self._salt + prompts[-1] + b"%d" % self._begun
            name = hashlib.blake2b(seed, digest_size=16, key=self._key).hexdigest()
            known = _Session(name, name)
        self._by_prompt[prompts[-1]] = known
        if len(self._by_prompt) > self._limit:
            self._by_prompt.popitem(last=False)
        return known


def _fork(said: Said, parent_id: str, parent: _Session | None, start_s: float) -> Fork | None:
    """Return where a session began that is seen for the first time, None when that is not known."""
    turn = parent.turn_at(start_s) if parent is not None else None
    is_late = said.n not in {None, 0}
    is_beside = parent is not None and turn is None
    inherits = said.fork == "inherit"
    if (is_late or is_beside) and not inherits:
        return None
    return Fork(session_id=parent_id, turn=turn, inherits=inherits)
