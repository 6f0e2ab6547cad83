"""The example of the retry layer runs and shows what it says."""

from __future__ import annotations

from tests.server.test_examples import output_of


def test_the_example_moves_a_call_tells_of_a_broken_stream_and_spends_no_quota() -> None:
    said = output_of("retrying.py").splitlines()
    assert [line.split(":")[0].strip() for line in said if ": '" in line] == [
        *("home", "spare", "spare", "spare", "spare")
    ]
    sessions = {line.split("session ")[1][:8] for line in said if "session " in line}
    assert len(sessions) == 1
    assert "  broken off, with 'Rome was ' in 2 chunks" in said
    assert said[-1] == "  insufficient_quota"
