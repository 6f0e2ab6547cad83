from __future__ import annotations

import json
from enum import Enum
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from tenuto_vllm.embedded.instance import json_instance


class Colour(Enum):
    red = "red"
    blue = "blue"


class Leaf(BaseModel):
    kind: Literal["leaf"]
    size: int = Field(ge=3, multiple_of=4)
    ratio: float = Field(gt=0.5, lt=0.75)


class Node(BaseModel):
    name: str = Field(min_length=3)
    colour: Colour
    children: list[Leaf] = Field(min_length=2)
    next: Node | None
    either: Leaf | bool
    table: dict[str, int]
    pair: tuple[int, str]
    aside: str = "default"


def test_a_pydantic_model_accepts_the_instance_of_its_schema():
    node = Node.model_validate_json(json_instance(Node.model_json_schema()))
    assert node.children[0].size == 4
    assert node.next is None


NUMBERS = st.integers(-20, 20)


@given(NUMBERS, NUMBERS, st.booleans(), st.booleans(), st.integers(1, 4))
def test_bounded_integers_satisfy_their_bounds(low, high, open_low, open_high, step):
    keys = ("exclusiveMinimum" if open_low else "minimum", low)
    ends = ("exclusiveMaximum" if open_high else "maximum", high)
    schema = {"type": "integer", keys[0]: low, ends[0]: high, "multipleOf": step}
    inside = [v for v in range(low + open_low, high + 1 - open_high) if v % step == 0]
    if inside:
        assert json.loads(json_instance(schema)) in inside
    else:
        with pytest.raises(ValueError, match="allow no number"):
            json_instance(schema)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (True, "null"),
        ({}, "null"),
        ({"type": "object"}, "{}"),
        ({"type": ["string", "null"]}, "null"),
        ({"enum": ["é", 1]}, '"\\u00e9"'),
        ({"const": {"a": 1}}, '{"a": 1}'),
        ({"type": "number", "minimum": 1.5}, "1.5"),
        ({"type": "string", "format": "date"}, '"2025-01-01"'),
        ({"required": ["b", "a"], "properties": {"a": {"type": "boolean"}}},
         '{"a": false, "b": null}'),
        ({"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "integer"}}}]}, '{"a": 0}'),
        ({"type": "array", "minItems": 2, "prefixItems": [{"const": 1}], "items": {"const": 2}},
         "[1, 2]"),
    ],
)  # fmt: skip
def test_a_schema_gets_its_smallest_value(schema: object, text: str):
    assert json_instance(schema) == text


@pytest.mark.parametrize(
    "schema",
    [
        False,
        7,
        {"enum": []},
        {"$ref": "#/$defs/missing"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#"},
        {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}},
        {"type": "array", "minItems": 10**9},
        {"type": "string", "minLength": 10**9},
        {"type": "integer", "minimum": "a"},
        {"type": "number", "multipleOf": 0},
        {"const": float("inf")},
    ],
)
def test_a_schema_without_a_reasonable_value_is_refused(schema: object):
    with pytest.raises(ValueError, match=r"\w"):
        json_instance(schema)


def test_a_schema_that_doubles_at_every_level_is_refused_soon():
    levels = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(18)}
    levels["l18"] = {"type": "null"}
    with pytest.raises(ValueError, match="too large"):
        json_instance({"$ref": "#/$defs/l0", "$defs": levels})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "properties", "required", "items", "anyOf", "allOf", "enum", "$ref", "minimum",
             "maximum", "minItems", "minLength", "multipleOf", "format", "prefixItems"]
        ),
        inner | st.sampled_from(["object", "array", "string", "integer", "#", "#/properties"]),
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_any_schema_gives_json_or_a_value_error(schema: object):
    try:
        text = json_instance(schema)
    except ValueError:
        return
    assert text.isascii()
    TypeAdapter(object).validate_json(text)
