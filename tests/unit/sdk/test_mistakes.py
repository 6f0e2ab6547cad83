"""Mistakes with scopes and dialects are named, or do no harm."""

from __future__ import annotations

from typing import Any

import openai
import pytest

import tenuto


@pytest.mark.parametrize("name", ["", "  ", None])
def test_a_run_without_a_name_is_a_run_of_its_own(name: str | None) -> None:
    assert tenuto.run(name).run_id != tenuto.run(name).run_id


@pytest.mark.parametrize("fork", ["inherited", 3, [], None])
def test_an_unknown_fork_is_refused_by_name(fork: Any) -> None:
    with pytest.raises(tenuto.ConfigError, match="inherit"):
        tenuto.run().agent("x", fork=fork)


@pytest.mark.parametrize("kind", [tenuto.Run, tenuto.Agent])
def test_a_scope_made_by_hand_is_refused_with_the_way_out(kind: Any) -> None:
    with pytest.raises(tenuto.ConfigError, match=r"tenuto\.run"):
        kind("ticket-4711")


@pytest.mark.parametrize("dialect", ["vlm", "", [], 3])
def test_an_unknown_dialect_is_refused(dialect: Any) -> None:
    with pytest.raises(tenuto.ConfigError, match="generic, silent, vllm"):
        tenuto.wrap(openai.OpenAI(api_key="k"), dialect=dialect)


def test_a_client_whose_class_refuses_subclasses_is_refused() -> None:
    class Final(openai.OpenAI):
        def __init_subclass__(cls, *, permit: bool) -> None:
            super().__init_subclass__()

    with pytest.raises(tenuto.ConfigError, match="Final"):
        tenuto.wrap(Final(api_key="k"))
