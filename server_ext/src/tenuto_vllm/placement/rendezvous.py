"""Rendezvous hashing: the same session and number of ranks give the same rank anywhere.

Thaler & Ravishankar, "Using name-based mappings to increase hit rates" (1998).
"""

from __future__ import annotations

import hashlib
import struct


def by_hash(session_id: str, ranks: int) -> int:
    """Return the rank of a session of which nothing else is known; ranks >= 1.

    It is the rank of the highest 32-bit weight. The weights of n ranks are the first n of
    those of n+1 (SHAKE-128 is extendable output), so that a rank added or taken at the end
    moves only its own sessions, and 64 ranks cost one hash.
    """
    digest = hashlib.shake_128(session_id.encode()).digest(4 * ranks)
    weights = struct.unpack(f">{ranks}I", digest)
    return weights.index(max(weights))
