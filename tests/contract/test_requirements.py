"""Every requirement of the protocol has a test, and every claim of a test is a requirement."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contract.requirements import REQUIREMENTS

ROOT = Path(__file__).parents[2]


def test_the_protocol_and_the_list_of_requirements_name_the_same_ids() -> None:
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    anchors = re.findall(r'<a id="([a-z0-9-]+)"></a>\*\*([a-z0-9-]+)\*\*', text)
    assert [one for one, two in anchors if one != two] == []
    assert [one for one, _ in anchors] == list(REQUIREMENTS)


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_each_named_test_exists(requirement: str) -> None:
    for path, name in REQUIREMENTS[requirement]:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE)
