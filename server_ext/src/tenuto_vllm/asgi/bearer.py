"""The token of an `Authorization` header."""

_SCHEME = b"bearer "


def bearer(value: bytes) -> bytes | None:
    """Return the token of `Bearer TOKEN` (RFC 6750), None for a value of another scheme."""
    if value[: len(_SCHEME)].lower() != _SCHEME:
        return None
    return value[len(_SCHEME) :].strip()
