"""A value that fits a JSON schema, made of a word: arguments of tool calls, structured answers.

The word is no command, no address and no existing file, so that a tool that is really run
with it finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tenuto.conformance.shapes import record, sequence, text

_MAX_DEPTH = 8
# Where nothing is required, what an agent is told to do matters most.
_TASKS = frozenset({"task", "prompt", "message", "instructions", "query", "input", "text"})
_FORMATS = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "email": "nobody@tenuto.invalid",
    "uri": "http://tenuto.invalid/",
}


def sample(schema: Any, word: str) -> Any:
    """Return a value for a schema; its free texts are `word`."""
    return _Sampler(record(schema), word).value(record(schema), 0)


class _Sampler:
    def __init__(self, root: dict[str, Any], word: str) -> None:
        self._root = root
        self._word = word

    def value(self, schema: dict[str, Any], depth: int) -> Any:
        schema = self._resolved(schema)
        for name in ("const", "default"):
            if schema.get(name) is not None:
                return schema[name]
        if choices := sequence(schema.get("enum")):
            return choices[0]
        if depth > _MAX_DEPTH:
            return None
        if (branch := _branch(schema)) is not None:
            return self.value(branch, depth + 1)
        return self._made.get(_kind(schema), _Sampler._text)(self, schema, depth)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = record(schema.get("properties"))
        wanted = [text(name) for name in sequence(schema.get("required"))]
        wanted = wanted or [name for name in properties if name in _TASKS][:1]
        return {
            name: self.value(record(properties.get(name)), depth + 1)
            for name in (wanted or list(properties)[:1])
        }

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        item = self.value(record(schema.get("items")), depth + 1)
        return [item] * max(1, int(schema.get("minItems") or 1))

    def _number(self, schema: dict[str, Any], depth: int) -> Any:
        del depth
        above = schema.get("exclusiveMinimum")
        return schema.get("minimum", above + 1 if isinstance(above, int | float) else 1)

    def _flag(self, schema: dict[str, Any], depth: int) -> bool:
        del schema, depth
        return False

    def _text(self, schema: dict[str, Any], depth: int) -> str:
        del depth
        return _FORMATS.get(text(schema.get("format")), self._word)

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        for _ in range(_MAX_DEPTH):
            target = text(schema.get("$ref"))
            if not target.startswith("#/"):
                break
            found: Any = self._root
            for part in target[2:].split("/"):
                found = record(found).get(part)
            schema = record(found)
        return schema

    _made: ClassVar[dict[str, Callable[[Any, dict[str, Any], int], Any]]] = {
        "object": _object,
        "array": _array,
        "integer": _number,
        "number": _number,
        "boolean": _flag,
        "string": _text,
    }


def _branch(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema that a choice of several is met by."""
    for name in ("anyOf", "oneOf", "allOf"):
        if choices := [record(one) for one in sequence(schema.get(name))]:
            return next((one for one in choices if one.get("type") != "null"), choices[0])
    return None


def _kind(schema: dict[str, Any]) -> str:
    given = schema.get("type")
    kinds = [given] if isinstance(given, str) else [text(one) for one in sequence(given)]
    named = next((one for one in kinds if one not in {"", "null"}), None)
    return named or ("object" if "properties" in schema else "string")
