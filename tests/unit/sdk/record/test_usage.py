"""Tokens are counted alike, whichever way an API says what came from its cache."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenuto.recording.answer import read_whole


@pytest.mark.parametrize(
    ("usage", "input_tokens", "cached"),
    [
        ({"input_tokens": 10, "cache_read_input_tokens": 50}, 60, 50),
        ({"input_tokens": 10, "cache_creation_input_tokens": 100}, 110, None),
        (
            {
                "input_tokens": 10,
                "cache_creation_input_tokens": 100,
                "cache_read_input_tokens": None,
            },
            110,
            None,
        ),
        # Gateways that say both count all of it in the one.
        ({"prompt_tokens": 60, "cache_read_input_tokens": 50}, 60, 50),
        ({"prompt_tokens": None, "input_tokens": 7}, 7, None),
    ],
)
def test_the_whole_prompt_is_counted(usage: Any, input_tokens: int, cached: int | None) -> None:
    said = read_whole(json.dumps({"type": "message", "usage": usage}).encode())
    assert (said.input_tokens, said.cached_tokens) == (input_tokens, cached)
