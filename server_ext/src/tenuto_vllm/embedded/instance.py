"""A small JSON value that a JSON schema accepts. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

# A schema may ask for a value of any size, or refer to itself: past these it is refused.
_MOST_NODES = 2_000
_MOST_DEPTH = 40
_MOST_CHARACTERS = 10_000

_OF_FORMAT = {
    "date": "2025-01-01",
    "date-time": "2025-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "PT0S",
    "email": "a@example.com",
    "hostname": "example.com",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "uri": "http://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def json_instance(schema: object) -> str:
    """Return ASCII JSON text of a small value that a schema accepts.

    | schema says             | value                                         |
    |-------------------------|-----------------------------------------------|
    | `const`, `enum`         | that, the first of them                       |
    | `$ref`, `allOf`         | of what is referred to, of all merged         |
    | `anyOf`, `oneOf`        | of the alternative with the shortest text     |
    | object, array           | only required members, only `minItems` items  |
    | string                  | its `format` or empty, padded to `minLength`  |
    | integer, number         | 0, or one near it that the bounds allow       |
    | boolean, null, anything | `false`, `null`, `null`                       |

    `pattern`, `not` and conditions are not looked at.

    Args:
        schema: decoded JSON: an object, or True.

    Raises:
        ValueError: the schema allows no value, refers to nothing, or asks for one too large.
    """
    return json.dumps(_Maker(schema).make(schema, 0), allow_nan=False)


class _Maker:
    """One walk over one schema, with a bound on its size."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._nodes = 0

    def make(self, schema: object, depth: int) -> object:
        node = self._resolve(schema, depth)
        if "const" in node:
            return node["const"]
        if "enum" in node:
            return _list(node, "enum", least=1)[0]
        for choice in ("anyOf", "oneOf"):
            if choice in node:
                return self._shortest(node, choice, depth)
        return self._typed(node, depth)

    def _typed(self, node: Mapping[str, Any], depth: int) -> object:
        match _type(node):
            case "object":
                return self._object(node, depth)
            case "array":
                return self._array(node, depth)
            case "string":
                return _string(node)
            case "integer" | "number" as kind:
                return _near_zero(node, whole=kind == "integer")
            case "boolean":
                return False
            case _:
                return None

    def _resolve(self, schema: object, depth: int) -> Mapping[str, Any]:
        """Replace `$ref` by what it names and merge `allOf` into its parent."""
        self._nodes += 1
        if self._nodes > _MOST_NODES or depth > _MOST_DEPTH:
            raise ValueError("the schema's smallest value is too large, or refers to itself")
        if schema is True:
            return {}
        if not isinstance(schema, Mapping):
            raise ValueError("the schema, or a part of it, allows no value")
        node = cast("Mapping[str, Any]", schema)
        parts = _list(node, "allOf")
        if "$ref" in node:
            parts = [self._find(node["$ref"]), *parts]
        merged = {key: value for key, value in node.items() if key not in ("$ref", "allOf")}
        for part in parts:
            _merge(merged, self._resolve(part, depth + 1))
        return merged

    def _find(self, reference: object) -> object:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise ValueError("the schema refers outside of itself")
        target = self._root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, Mapping) or key not in target:
                raise ValueError(f"the schema has no {reference}")
            target = cast("Mapping[str, Any]", target)[key]
        return target

    def _shortest(self, node: Mapping[str, Any], choice: str, depth: int) -> object:
        rest = {key: value for key, value in node.items() if key != choice}
        values: list[object] = []
        for alternative in _list(node, choice, least=1):
            both = dict(rest)
            try:
                _merge(both, self._resolve(alternative, depth + 1))
                values.append(self.make(both, depth + 1))
            except ValueError:
                # Another may do: a linked list ends only with its null alternative.
                continue
        if not values:
            raise ValueError(f"the schema's {choice} allows no value")
        return min(values, key=lambda value: len(json.dumps(value)))

    def _object(self, node: Mapping[str, Any], depth: int) -> object:
        members: object = node.get("properties", {})
        if not isinstance(members, Mapping):
            raise ValueError("the schema's properties are not an object")
        schemas = cast("Mapping[str, Any]", members)
        required = [name for name in _list(node, "required") if isinstance(name, str)]
        names = [*(name for name in schemas if name in required), *required]
        return {n: self.make(schemas.get(n, True), depth + 1) for n in dict.fromkeys(names)}

    def _array(self, node: Mapping[str, Any], depth: int) -> object:
        count = _size(node, "minItems", _MOST_NODES)
        first = _list(node, "prefixItems")[:count]
        rest = [node.get("items", True)] * (count - len(first))
        return [self.make(item, depth + 1) for item in (*first, *rest)]


def _type(node: Mapping[str, Any]) -> object:
    kind: object = node.get("type")
    if isinstance(kind, list):
        kinds = cast("list[object]", kind)
        return "null" if "null" in kinds or not kinds else kinds[0]
    if kind is None and ("properties" in node or "required" in node):
        return "object"
    return kind


def _string(node: Mapping[str, Any]) -> str:
    length = _size(node, "minLength", _MOST_CHARACTERS)
    return _OF_FORMAT.get(str(node.get("format")), "").ljust(length, "a")


def _near_zero(node: Mapping[str, Any], *, whole: bool) -> float:
    low, high = _number(node, "minimum", -math.inf), _number(node, "maximum", math.inf)
    over = _number(node, "exclusiveMinimum", -math.inf)
    under = _number(node, "exclusiveMaximum", math.inf)
    step = _number(node, "multipleOf", 1)
    ends = [end for end in (max(low, over), min(high, under)) if math.isfinite(end)]
    candidates: list[float] = [0]
    for end in ends:
        below = math.floor(end / step) * step
        candidates += [end, below, below + step, below - step]
    candidates += [sum(ends) / 2]
    for value in candidates:
        inside = low <= value <= high and over < value < under
        stepped = "multipleOf" not in node or value % step == 0
        if inside and stepped and not (whole and value % 1):
            return int(value) if value % 1 == 0 else value
    raise ValueError("the schema's bounds allow no number")


def _number(node: Mapping[str, Any], key: str, default: float) -> float:
    value = node.get(key, default)
    # Past 2**53 a float steps over whole numbers.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the schema's {key} is not a number")
    if (key in node and not abs(value) <= 2**53) or (key == "multipleOf" and value <= 0):
        raise ValueError(f"the schema's {key} is out of range")
    return value


def _size(node: Mapping[str, Any], key: str, most: int) -> int:
    value = _number(node, key, 0)
    if not 0 <= value <= most:
        raise ValueError(f"the schema's {key} is {value}; the engine makes up to {most}")
    return int(value)


def _list(node: Mapping[str, Any], key: str, *, least: int = 0) -> list[Any]:
    value: object = node.get(key, [])
    if not isinstance(value, list) or len(cast("list[Any]", value)) < least:
        raise ValueError(f"the schema's {key} is not a list of at least {least}")
    return cast("list[Any]", value)


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        present: object = into.get(key)
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            into[key] = {**cast("Mapping[str, Any]", present), **cast("Mapping[str, Any]", value)}
        elif key == "required" and isinstance(present, list) and isinstance(value, list):
            into[key] = cast("list[Any]", present) + cast("list[Any]", value)
        else:
            into.setdefault(key, value)
