"""Dictionaries of structured fields (RFC 9651 §3.2), as far as protocol 1 reads them.

Standard library only, and the same bytes in `tenuto` and `tenuto_vllm`.
"""

from __future__ import annotations

import base64
import re
from typing import Any
from urllib.parse import unquote_to_bytes

_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")
_OWS = re.compile(r"[ \t]*")
_COMMA = re.compile(r",[ \t]*")
_SEMICOLON = re.compile(r"; *")
_SPACES = re.compile(r" *")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]*)?")
_STRING = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_WORD = re.compile(r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*")
_BYTES = re.compile(r":([A-Za-z0-9+/=]*):")
_BOOL = re.compile(r"\?([01])")
_DATE = re.compile(r"@(-?[0-9]{1,15})(?![0-9.])")
_DISPLAY = re.compile(r'%"((?:[\x20\x21\x23\x24\x26-\x7e]|%[0-9a-f]{2})*)"')
_ESCAPE = re.compile(r"\\(.)")


class Token(str):
    """An RFC 9651 token, apart from a string, which is a plain `str`."""

    __slots__ = ()


def parse_dictionary(text: str) -> dict[str, Any]:
    """Parse an RFC 9651 dictionary; parameters are checked and left out.

    Returns:
        Values are int, float, bool, `str` (string or display string), `Token`, `bytes`
        or a list of these (inner list). A date is its int.

    Raises:
        ValueError: the text is not a dictionary; then no part of it counts (§4.2).
    """
    end = len(text.rstrip(" "))
    at = len(text) - len(text.lstrip(" "))
    items: dict[str, Any] = {}
    while at < end:
        key, at = _take(_KEY, text, at)
        if text.startswith("=", at):
            value, at = _member(text, at + 1)
        else:
            value = True
        at = _parameters(text, at)
        items[key] = value
        at = _skip(_OWS, text, at)
        if at >= end:
            return items
        _, at = _take(_COMMA, text, at)
        if at >= end:
            raise ValueError("trailing comma")
    return items


def _take(pattern: re.Pattern[str], text: str, at: int) -> tuple[str, int]:
    found = pattern.match(text, at)
    if found is None:
        raise ValueError(f"malformed at {at}")
    return found[found.lastindex or 0], found.end()


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    return _take(pattern, text, at)[1]


def _member(text: str, at: int) -> tuple[Any, int]:
    if not text.startswith("(", at):
        return _bare(text, at)
    items: list[Any] = []
    at = _skip(_SPACES, text, at + 1)
    while not text.startswith(")", at):
        value, at = _bare(text, at)
        at = _parameters(text, at)
        items.append(value)
        if not text.startswith((" ", ")"), at):
            raise ValueError(f"malformed inner list at {at}")
        at = _skip(_SPACES, text, at)
    return items, at + 1


def _parameters(text: str, at: int) -> int:
    while text.startswith(";", at):
        _, at = _take(_SEMICOLON, text, at)
        _, at = _take(_KEY, text, at)
        if text.startswith("=", at):
            _, at = _bare(text, at + 1)
    return at


def _bare(text: str, at: int) -> tuple[Any, int]:  # noqa: PLR0911 - one return a type
    first = text[at : at + 1]
    if first == '"':
        raw, at = _take(_STRING, text, at)
        return _ESCAPE.sub(r"\1", raw), at
    if first == ":":
        raw, at = _take(_BYTES, text, at)
        return base64.b64decode(raw + "=" * (-len(raw) % 4), validate=True), at
    if first == "?":
        raw, at = _take(_BOOL, text, at)
        return raw == "1", at
    if first == "@":
        raw, at = _take(_DATE, text, at)
        return int(raw), at
    if first == "%":
        raw, at = _take(_DISPLAY, text, at)
        return unquote_to_bytes(raw).decode("utf-8"), at
    if first == "-" or first.isdigit():
        raw, at = _take(_NUMBER, text, at)
        return _number(raw), at
    raw, at = _take(_WORD, text, at)
    return Token(raw), at


def _number(raw: str) -> int | float:
    whole, dot, fraction = raw.lstrip("-").partition(".")
    if not dot and len(whole) <= 15:
        return int(raw)
    if dot and len(whole) <= 12 and 1 <= len(fraction) <= 3:
        return float(raw)
    raise ValueError("number out of range")
