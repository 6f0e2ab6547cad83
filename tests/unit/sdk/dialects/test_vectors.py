"""Golden vectors: what each dialect is sent, byte for byte, and where each fact is from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenuto import _wire, dialects
from tenuto.dialects.body import body_patch, end_calls
from tenuto.dialects.headers import echoes, fixed, heard, varying

DATA = json.loads((Path(__file__).parent / "vectors.json").read_text("utf-8"))
GIVEN = DATA["given"]
VECTORS = {vector["dialect"]: vector for vector in DATA["vectors"]}
ROUTES = ("chat", "completions", "responses", "messages", "embeddings")
TURN = _wire.decode_turn(GIVEN["turn"].encode(), [])
ANSWER = {name.lower(): value for name, value in GIVEN["answer"].items()}


def of(name: str) -> dialects.Dialect:
    return dialects.named(name)


def markers(affinity: str | None = None) -> _wire.Markers:
    return _wire.Markers(GIVEN["session"], GIVEN["parent"], GIVEN["run"], TURN, affinity)


@pytest.mark.parametrize("name", VECTORS)
def test_a_request_gets_exactly_these_headers(name: str) -> None:
    dialect = of(name)
    kept = dict(heard(dialect, lambda lower: ANSWER.get(lower.decode())))
    assert kept == VECTORS[name]["kept"]
    items = [
        *fixed(dialect, markers()),
        *varying(dialect, GIVEN["turn"].encode(), GIVEN["prio"], is_final=GIVEN["is_final"]),
        *echoes(dialect, kept.get),
    ]
    sent = [[written.decode(), value.decode()] for written, _, value in items]
    assert sent == VECTORS[name]["headers"]
    assert all(written.lower() == lower for written, lower, _ in items)
    assert {lower for _, lower, _ in items} <= dialect.sends


@pytest.mark.parametrize("name", VECTORS)
def test_a_body_gets_exactly_these_fields_on_each_route(name: str) -> None:
    said = markers(GIVEN["answer"]["X-Agent-Affinity"])
    patches = {
        route: patch
        for route in ROUTES
        if (patch := body_patch(of(name), said, GIVEN["turn"], route, root=GIVEN["root"]))
    }
    assert patches == VECTORS[name]["body"]
    assert body_patch(of(name), said, GIVEN["turn"], None, root=GIVEN["root"]) == {}


@pytest.mark.parametrize("name", VECTORS)
def test_the_end_of_a_session_is_told_by_exactly_these_calls(name: str) -> None:
    calls = [
        {key: value for key, value in call._asdict().items() if value is not None}
        for call in end_calls(of(name), (GIVEN["session"],))
    ]
    assert calls == VECTORS[name]["end"]


@pytest.mark.parametrize("name", VECTORS)
def test_limits_and_sources_are_the_recorded_ones(name: str) -> None:
    vector, dialect = VECTORS[name], of(name)
    assert [list(source) for source in dialect.sources] == vector["sources"]
    assert dialect.id_limit == vector["id_limit"]
    assert list(dialect.watches) == vector.get("watches", [])
    assert dialect.baggage == ("baggage" in vector)


def facts(dialect: dialects.Dialect) -> set[str]:
    """Name everything that a row claims of its system."""
    named = [name for name, _ in (*dialect.carries, *dialect.says, *dialect.final)]
    named += [each.path for each in dialect.body]
    named += [echo.answer for echo in dialect.echo] + [echo.request for echo in dialect.echo]
    named += [priority.header for priority in dialect.priority]
    named += dialect.watches
    claims = {
        "end": bool(dialect.end),
        "limit": dialect.id_limit is not None,
        "passes": dialect.passes is not None,
        "returns": dialect.returns is not None,
        "nothing": not named,
    }
    return {*named, *(claim for claim, made in claims.items() if made)}


@pytest.mark.parametrize("name", dialects.DIALECTS)
def test_every_dialect_has_a_vector_and_every_fact_a_source(name: str) -> None:
    assert name in VECTORS
    sources: dict[str, Any] = dict(of(name).sources)
    assert facts(of(name)) - set(sources) == set()
    assert all(
        where.startswith(("https://", "docs/protocol.md", "measured on ", "for hosts "))
        for where in sources.values()
    )
