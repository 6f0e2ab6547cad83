"""Which of our body fields an error names: a server that refuses one is not sent it again.

Servers word it in many ways, and an error may also quote the prompt. So a field counts as
refused where a list of validation errors locates it, where the error's `param` is it, or
where it stands beside a word of refusal; what an error quotes of the request is not looked at.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import re
from collections.abc import Iterator
from typing import Any

from tenuto.dialects.model import BodyField, Dialect
from tenuto.shape import is_list, is_object

_STATUSES = frozenset({400, 422})
# More than any server says of its own accord.
_MAX_CHARS = 65_536
_MAX_DEPTH = 16
# Members under which servers quote the request.
_QUOTED = frozenset({"input", "input_value", "value", "ctx", "doc", "body", "url"})
_QUOTES_IN_TEXT = re.compile(r"""(?:['"]?\binput(?:_value)?['"]?\s*[=:]|,\s*value\s*:).*""")
_BEFORE = (
    r"\b(?:unknown|unrecognized|unexpected|unsupported|extra|additional|invalid|disallowed"
    r"|not (?:allowed|permitted|supported|recognized))\b"
    # Words up to the name, but none that begin a list of the names there are.
    r"(?:(?!\bexpected\b|\bone of\b|\bvalid\b)[\w\s,:(\[-]){0,48}"
)
_AFTER = (
    r"[\s:,)\]]{0,4}(?:[\w.'\"`]+\s+){0,3}?(?:is|was|are|were)?\s*"
    r"(?:unknown|unrecognized|unexpected|unsupported|invalid|forbidden|disallowed|too long"
    r"|not (?:\w+ )?(?:allowed|permitted|supported|recognized|valid)"
    r"|extra (?:inputs|fields)|extra_forbidden|must\b|should\b|exceeds|requires)"
)


def rejected_fields(dialect: Dialect, status: int, error: str) -> frozenset[str]:
    """Return the paths of the dialect's body fields that an error names.

    Args:
        dialect: whom the request was for.
        status: the answer's status; only 400 and 422 are looked at.
        error: the answer's body as text.
    """
    if status not in _STATUSES or not dialect.body or not error:
        return frozenset()
    said = list(_parts(_parsed(error[:_MAX_CHARS]), ""))
    return frozenset(
        each.path for each in dialect.body if any(_names(each, kind, value) for kind, value in said)
    )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _parts(value: Any, key: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield what the server itself says: ("loc" | "param" | "text", value)."""
    if key == "loc" and is_list(value):
        yield "loc", [str(step) for step in value]
    elif isinstance(value, str):
        yield ("param" if key in {"param", "field"} else "text"), value
    if depth < _MAX_DEPTH:
        for name, inner in _members(value, key):
            yield from _parts(inner, name, depth + 1)


def _members(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if is_object(value):
        yield from ((str(name), inner) for name, inner in value.items() if name not in _QUOTED)
    elif is_list(value) and key != "loc":
        yield from ((key, inner) for inner in value)
    elif isinstance(value, str):
        # vLLM and NVIDIA print Python's list of errors into the message.
        for line in value.splitlines():
            if line.lstrip().startswith(("{", "[")):
                with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                    yield key, ast.literal_eval(line.strip())


def _names(each: BodyField, kind: str, value: Any) -> bool:
    steps = each.path.split(".")
    if kind == "loc":
        located = value[1:] if value[:1] == ["body"] else value
        # The field itself or what holds it; what is inside it too, as in (…, "str").
        return bool(located) and located[: len(steps)] == steps[: len(located)]
    if kind == "param":
        named = value.removeprefix("body.")
        return named == steps[0] or f"{named}.".startswith(f"{each.path}.")
    return _patterns(each).search(_QUOTES_IN_TEXT.sub("", value)) is not None


@functools.lru_cache(maxsize=64)
def _patterns(each: BodyField) -> re.Pattern[str]:
    steps = each.path.split(".")
    words = {each.path, steps[0], steps[-1], *each.aka}
    either = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    name = rf"(?<![\w.-])(?:body\.)?(?:{either})(?![\w-]|\.\w)['\"`]?"
    return re.compile(rf"{_BEFORE}['\"`]?{name}|{name}{_AFTER}", re.IGNORECASE)
