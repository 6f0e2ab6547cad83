from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm.embedded.words import words

PROMPTS = st.lists(st.integers(0, 2**32 - 1), max_size=8)


@given(PROMPTS, st.integers(0, 200))
def test_an_answer_is_lowercase_words_of_exactly_the_asked_length(prompt: list[int], length: int):
    text = words(prompt, length)
    assert len(text) == length
    assert re.fullmatch(r"([a-z]+( [a-z]+)* ?)?", text)


@given(PROMPTS, st.integers(0, 100), st.integers(0, 100))
def test_a_shorter_answer_starts_a_longer_one(prompt: list[int], one: int, other: int):
    short, long = sorted((one, other))
    assert words(prompt, long).startswith(words(prompt, short))


def test_other_prompts_get_other_answers():
    assert len({words([n], 40) for n in range(100)}) == 100
