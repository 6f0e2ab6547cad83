"""The token that names a home, `<instance>.<rank>` and the epoch of the rank's cache.

It is opaque to the client. The epoch is absent while the cache has lived as long as the server.
"""

from __future__ import annotations

from tenuto_vllm._wire import affinity_token


def token_of(instance: str, rank: int, epoch: int) -> str:
    """Return the token of a home."""
    token = affinity_token(instance, rank)
    return f"{token}.{epoch}" if epoch else token


def is_cold(token: str, epoch: int) -> bool:
    """Whether a rank's cache was emptied after it gave this token; `epoch` is its last one."""
    said = token.split(".")[2:]
    return (said[0] if said else "0") != str(epoch)
