"""The report fits the terminal and says what is needed."""

from __future__ import annotations

import json
import re

import pytest

from tenuto.conformance import Proof, Ran, Report, Result
from tenuto.conformance.report import SCHEMA
from tenuto.conformance.table import table
from tenuto.conformance.verdicts import failed, passed

REPORT = Report(
    (
        Result("id-turn", "pass", "good", (Proof(3, "x-agent-turn n", "0"),)),
        Result("id-context", "fail", "bad " * 30, (Proof(1, "x", "a"), Proof(2, "x", "", 2))),
        Result("wire-redirect", "not seen", "nobody", how="redirect somebody"),
        Result("parent-named", "not expressible", "no word"),
        Result("place-home", "server", "elsewhere"),
        Result("fail-private", "hidden", "logs"),
    ),
    ("litellm", "vllm"),
    (Ran(0, 1.25, 12, 9), Ran(None, 60.0, 3, 2, "", ("429",))),
)


@pytest.mark.parametrize("width", [20, 60, 80, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = table(REPORT, width=width).splitlines()
    assert max(map(len, lines)) <= max(width, 60)


def test_every_result_is_there_with_its_proof_and_its_remedy() -> None:
    text = " ".join(table(REPORT).split())
    for part in (
        "dialect: litellm + vllm",
        "run: 9 model calls of 12 requests in 1.2 s, exit 0",
        "ended at the time limit, without 429",
        "#3 x-agent-turn n: 0",
        "#1 x: a · #2 of run 2 x: (none)",
        "to see it: redirect somebody",
        "of a server: place-home",
        "not on the wire: fail-private",
        "1 pass, 1 fail, 1 not seen, 1 not expressible",
    ):
        assert part in text
    assert str(REPORT) == table(REPORT)


def test_colour_is_asked_for_and_changes_nothing_else() -> None:
    plain, coloured = table(REPORT), table(REPORT, colour=True)
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert coloured != plain


def test_the_json_tells_its_schema_and_all_results() -> None:
    said = json.loads(REPORT.as_json())
    assert (said["schema"], said["ok"]) == (SCHEMA, False)
    assert said["dialects"] == ["litellm", "vllm"]
    assert said["results"][0] == {
        "id": "id-turn",
        "status": "pass",
        "why": "good",
        "proof": [{"request": 3, "what": "x-agent-turn n", "value": "0", "run": 1}],
        "how": "",
    }
    assert said["runs"][1]["exit_status"] is None
    assert REPORT.failed == ("id-context",)
    assert REPORT.not_seen == ("wire-redirect",)
    assert REPORT["id-turn"].status == "pass"
    with pytest.raises(KeyError):
        REPORT["id-none"]


def test_values_are_cut_to_what_tells_them_apart() -> None:
    def values(*given: str) -> list[str]:
        return [p.value for p in failed("", *(Proof(1, "x", one) for one in given)).proof]

    assert values("a" * 32, "b" * 32) == ["aaaaaaaa…", "bbbbbbbb…"]
    assert values("a" * 32, "a" * 32) == ["aaaaaaaa…"] * 2
    assert values("a" * 10 + "b" * 22, "a" * 32) == ["a" * 10 + "bb…", "a" * 12 + "…"]
    assert values("short", "") == ["short", ""]
    assert values("a" * 60 + "b" * 99, "a" * 60 + "c") == [
        f"{'a' * 60}… (159 characters)",
        "a" * 60 + "c",
    ]
    # What a peer sends is shown and not obeyed.
    assert passed("", Proof(1, "x", "\x1b[2Jé")).proof[0].value == "\\x1b[2J\\xe9"
