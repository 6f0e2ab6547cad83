"""Run and session ids: derived, never guessed, never raw (docs/protocol.md, identity rules).

Pure: the key and all randomness are arguments or come from the callers in `context`.
"""

from __future__ import annotations

import hashlib

ID_BYTES = 16


def derive_run_id(user_id: str, key: bytes) -> str:
    """Return the run id of a name that the user gave, such as a ticket number.

    Args:
        user_id: any text; it does not travel and cannot be read back without `key`.
        key: the per-install secret, at most 64 bytes.

    Returns:
        32 hex characters; the same inputs give the same id in every process.
    """
    return _digest(key, "run", user_id)


def derive_session_id(run_id: str, parent_id: str, agent: str, instance: str) -> str:
    """Return the session id of one agent instance in a run.

    Args:
        run_id: the run's id.
        parent_id: the enclosing session's id, "" for the run's root session.
        agent: the role name, "" for the root session.
        instance: tells parallel instances of one agent apart.

    Returns:
        32 hex characters; no clock and no randomness take part, so a replay or a
        restarted process derives the same id.
    """
    return _digest(b"", "session", run_id, parent_id, agent, instance)


def _digest(key: bytes, *parts: str) -> str:
    """Hash length-prefixed parts, so that ("ab", "c") and ("a", "bc") differ."""
    hasher = hashlib.blake2b(key=key, digest_size=ID_BYTES)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        hasher.update(len(raw).to_bytes(8, "big"))
        hasher.update(raw)
    return hasher.hexdigest()
