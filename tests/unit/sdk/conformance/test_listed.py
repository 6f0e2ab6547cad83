"""The kit knows every requirement of the protocol, and says where each can be seen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tenuto.conformance.dialects import DIALECTS
from tenuto.conformance.requirements import ALL, REQUIREMENTS, RULES, Check, Elsewhere

ROOT = Path(__file__).parents[4]


def test_every_requirement_of_the_protocol_is_checked_or_listed_with_its_reason() -> None:
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    assert set(re.findall(r'<a id="([a-z0-9-]+)"></a>\*\*', text)) == set(REQUIREMENTS)
    for name, requirement in ALL.items():
        said = requirement.why if isinstance(requirement, Elsewhere) else requirement.how
        assert len(said) > 15, name


def test_what_a_server_is_asked_for_is_not_counted_against_a_client() -> None:
    server = {n for n, one in ALL.items() if isinstance(one, Elsewhere) and one.status == "server"}
    assert {name for name in ALL if name.startswith("place-")} <= server
    assert not {name for name in ALL if name.startswith(("id-", "wire-"))} & server


@pytest.mark.parametrize("name", [n for n, one in ALL.items() if isinstance(one, Check)])
def test_what_comes_first_is_itself_checked(name: str) -> None:
    requirement = ALL[name]
    assert isinstance(requirement, Check)
    assert all(isinstance(ALL[one], Check) for one in requirement.after)
    assert name not in requirement.after


@pytest.mark.parametrize("name", list(RULES))
def test_the_page_of_the_kit_states_each_rule_that_the_protocol_gives_no_id(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs/conformance.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_each_dialect_has_a_source_a_session_and_headers_in_lower_case(dialect: object) -> None:
    assert dialect.source.startswith("https://") or "docs/protocol.md" in dialect.source  # type: ignore[attr-defined]
    assert "session" in dialect.roles  # type: ignore[attr-defined]
    names = [carrier.name for carrier in dialect.carriers]  # type: ignore[attr-defined]
    assert [name for name in names if name != name.lower()] == []
    page = (ROOT / "docs/conformance.md").read_text(encoding="utf-8")
    assert f"`{dialect.name}`" in page  # type: ignore[attr-defined]
