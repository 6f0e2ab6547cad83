"""What a request's headers tell the engine's policies."""

from __future__ import annotations

import pytest

from tenuto_vllm.embedded import EngineSettings
from tenuto_vllm.embedded.asked import Asked, asked


def headers(turn: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"x-session-id", b"session-1"),
        (b"x-parent-session-id", b"session-0"),
        (b"x-agent-run-id", b"run-00001"),
        (b"x-agent-turn", turn.encode()),
    ]


def test_all_that_the_policies_go_by_is_read() -> None:
    assert asked(headers("n=3, next=tool, gap=1500, fork=inherit")) == Asked(
        session="session-1",
        run="run-00001",
        parent="session-0",
        turn=3,
        inherits=True,
        wait="tool",
        gap_s=1.5,
    )


@pytest.mark.parametrize(
    ("next_", "wait", "is_final"),
    [
        ("tool", "tool", False),
        ("child", "tool", False),
        ("user", "user", False),
        ("end", "unknown", True),
        ("unknown", "unknown", False),
    ],
)
def test_what_follows_decides_the_wait(next_: str, wait: str, is_final: bool) -> None:
    told = asked(headers(f"next={next_}"))
    assert (told.wait, told.is_final) == (wait, is_final)


def test_a_session_without_a_run_is_a_run_by_itself() -> None:
    assert asked([(b"x-session-id", b"session-1")]).run == "session-1"


def test_what_cannot_be_read_says_nothing() -> None:
    assert asked([(b"x-session-id", b"\xff"), (b"x-agent-turn", b"((((")]) == Asked()


@pytest.mark.parametrize("policy", [{"placement": "user-hash"}, {"retention": "belady"}])
def test_a_policy_that_needs_what_no_request_says_is_refused(policy: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="needs what no request says"):
        EngineSettings(**policy)
