"""The decision log: what was asked of an engine, when, and what was decided about its blocks.

A trace in the own format of `tenuto` (docs/traces.md), so that `tenuto simulate` and
`tenuto trace` read it: how would another policy, or another size of the cache, have done?
Each line's `extra` holds the decision. It has ids of sessions and numbers of blocks, no text.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tenuto_vllm.retention.hint import Hint, id_of

_FINISHES = {"tool": "tool_calls", "child": "tool_calls", "user": "stop", "end": "stop"}
# Of so many blocks it is remembered which was seen before; then the numbers go on from there.
_MOST_NUMBERS = 4_000_000


class DecisionLog:
    """Appends to one file, and stops for good where that cannot be written.

    Args:
        folder: that the file is made in.
        name: of the file, without its ending.
        block_size: tokens in a block of the request's hashes.
        clock: seconds since 1970.

    Attributes:
        clock: the same.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        block_size: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Whole lines at once, so that whoever looks on sees them and a killed engine leaves them.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file: int | None = os.open(folder / f"{name}.jsonl", flags, 0o600)
        self._block_size = block_size
        self.clock = clock
        self._numbers: dict[bytes, int] = {}
        self._next = int.from_bytes(os.urandom(4), "big") << 20

    def write(
        self, request: Any, hint: Hint | None, cached_tokens: int, decided: dict[str, Any]
    ) -> None:
        """Add the line of a request that has ended; it never raises.

        Args:
            request: vLLM's.
            hint: what was said of its session.
            cached_tokens: of its prompt, found in the cache.
            decided: the decision.
        """
        if self._file is None:
            return
        try:
            line = json.dumps(self._line(request, hint, cached_tokens, decided))
            os.write(self._file, line.encode() + b"\n")
        except Exception:
            self.close()

    def close(self) -> None:
        """End the log."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _line(
        self, request: Any, hint: Hint | None, cached_tokens: int, decided: dict[str, Any]
    ) -> dict[str, Any]:
        prompt: int = request.num_prompt_tokens
        line: dict[str, Any] = {
            "kind": "call",
            "v": 1,
            "run_id": "no-session",
            "input_tokens": prompt,
            "output_tokens": request.num_tokens - prompt,
            "cached_tokens": cached_tokens,
            "block_size": self._block_size,
            "blocks": self._runs(request.block_hashes[: prompt // self._block_size]),
            "block_scope": "global",
            "start_s": request.arrival_time,
            "end_s": self.clock(),
            "extra": decided,
        }
        if hint is None:
            return line
        turn = hint.turn
        session = id_of(hint.session)
        line |= {"run_id": hint.run or session, "session_id": session}
        given = {
            "parent_session_id": id_of(hint.parent) or None,
            "turn": turn.n,
            "attempt": turn.attempt,
            "phase": turn.phase,
            "session_class": turn.kind,
            "finish_reason": _FINISHES.get(turn.next or ""),
        }
        return line | {key: value for key, value in given.items() if value is not None}

    def _runs(self, hashes: Iterable[bytes]) -> list[list[int]]:
        """Return blocks as runs [first number, length]; blocks met together have neighbours."""
        numbers = self._numbers
        if len(numbers) > _MOST_NUMBERS:
            numbers.clear()
        runs: list[list[int]] = []
        for one in hashes:
            number = numbers.setdefault(one, self._next)
            self._next += number == self._next
            if runs and number == runs[-1][0] + runs[-1][1]:
                runs[-1][1] += 1
            else:
                runs.append([number, 1])
        return runs
