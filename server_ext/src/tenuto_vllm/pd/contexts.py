"""What is remembered of each session's last turn, to tell the length of the next."""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from tenuto_vllm.pd.asked import Asked

_EARLY_S = 5.0
_TOKENS_PER_CHARACTER = 0.25
_NEWEST = 0.1


class Back(NamedTuple):
    """What a decode server gave to fetch its blocks, and of which context they are.

    Attributes:
        params: `kv_transfer_params` of its answer.
        known: tokens of the prompt and of the answer.
        digest: of these tokens.
        asked_of: model and salt of the cache.
        until_s: how long it keeps them, monotonic.
    """

    params: Mapping[str, Any]
    known: int
    digest: bytes
    asked_of: tuple[Any, Any]
    until_s: float


class _Last(NamedTuple):
    tokens: int
    size: int
    back: Back | None


class Contexts:
    """Bounded; the longest unseen sessions are forgotten first.

    Args:
        sessions: that are remembered.
        ttl_s: for which a decode server keeps what a prefill server may fetch, seconds;
            vLLM's `decoder_kv_blocks_ttl`.
    """

    def __init__(self, sessions: int = 8192, ttl_s: float = 480.0) -> None:
        self._most = sessions
        self._ttl_s = ttl_s
        self._last: OrderedDict[str, _Last] = OrderedDict()
        self._ratio = _TOKENS_PER_CHARACTER

    def tokens(self, session: str, asked: Asked) -> int:
        """Return the length of a prompt, exact where it was sent as tokens."""
        if asked.is_tokens:
            return asked.size
        last = self._last.get(session)
        if last is not None and last.size and asked.size >= last.size:
            ratio = last.tokens / last.size
            return last.tokens + round((asked.size - last.size) * ratio)
        ratio = last.tokens / last.size if last is not None and last.size else self._ratio
        return max(1, round(asked.size * ratio))

    def answered(
        self,
        session: str,
        asked: Asked,
        tokens: int,
        back: Mapping[str, Any] | None = None,
        written: Sequence[Any] | None = None,
    ) -> None:
        """Learn from an answer how long its prompt was.

        Args:
            session: whose; empty for none.
            asked: what was asked.
            tokens: of its prompt.
            back: from a decode server with bidirectional transfer.
            written: tokens of the whole answer; None where they are not known.
        """
        if asked.size and not asked.is_tokens:
            self._ratio += _NEWEST * (tokens / asked.size - self._ratio)
        if not session:
            return
        kept = None
        # A prompt that was cut is not the one that was asked.
        if back and written is not None and asked.tokens and len(asked.tokens) == tokens:
            context = [*asked.tokens, *written]
            if digest := _digest(context):
                until_s = time.monotonic() + self._ttl_s - _EARLY_S
                kept = Back(back, len(context), digest, _asked_of(asked), until_s)
        self._last[session] = _Last(tokens, asked.size, kept)
        self._last.move_to_end(session)
        if len(self._last) > self._most:
            self._last.popitem(last=False)

    def back(self, session: str, asked: Asked) -> Mapping[str, Any] | None:
        """Return what a prefill server may fetch from the decode server of the last turn, once.

        vLLM takes what it fetches for the blocks of the prompt, whatever they are of. None but
        for a prompt of tokens that goes on where that answer ended.
        """
        last = self._last.get(session)
        if last is None or last.back is None:
            return None
        back, tokens = last.back, asked.tokens
        self._last[session] = last._replace(back=None)
        is_same = (
            tokens is not None
            and _asked_of(asked) == back.asked_of
            and _digest(tokens[: back.known]) == back.digest
        )
        return back.params if is_same and time.monotonic() < back.until_s else None

    def forget(self, session: str) -> None:
        """Forget a session: it has ended."""
        self._last.pop(session, None)


def _asked_of(asked: Asked) -> tuple[Any, Any]:
    return asked.fields.get("model"), asked.fields.get("cache_salt")


def _digest(tokens: Sequence[Any]) -> bytes:
    """Return a digest of tokens; empty where they are none."""
    try:
        return blake2b(array("q", tokens).tobytes()).digest()
    except (TypeError, OverflowError):
        return b""
