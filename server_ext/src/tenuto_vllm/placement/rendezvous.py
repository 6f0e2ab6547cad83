"""Rendezvous hashing: the same session and number of ranks give the same rank anywhere.

Thaler & Ravishankar, "Using name-based mappings to increase hit rates" (1998).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence


def by_hash(session_id: str, ranks: int, among: Sequence[int] | None = None) -> int:
    """Return the rank of a session of which nothing else is known; ranks >= 1.

    `among` narrows the choice to some of them.

    It is the rank of the highest 32-bit weight. The weights of n ranks are the first n of
    those of n+1 (SHAKE-128 is extendable output), so that a rank added or taken at the end
    moves only its own sessions, and 64 ranks cost one hash.
    """
    digest = hashlib.shake_128(session_id.encode()).digest(4 * ranks)
    weights = struct.unpack(f">{ranks}I", digest)
    if among is None:
        return weights.index(max(weights))
    return max(among, key=weights.__getitem__)
