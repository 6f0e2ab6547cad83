"""Sessions told by their prompts, where clients say nothing of them."""

from __future__ import annotations

import random
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm.placement.content import BLOCK, COMMON, Content


def words(seed: int, count: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(50_000) for _ in range(count)]


SYSTEM = words(0, 20 * BLOCK + 7)


def test_sessions_of_one_system_prompt_are_told_apart_once_it_is_known_to_be_shared() -> None:
    content = Content()
    for seed in range(1, COMMON + 1):
        content.session(SYSTEM + words(seed, 3 * BLOCK))
    names = [content.session(SYSTEM + words(seed, 3 * BLOCK)) for seed in range(100, 140)]
    assert None not in names
    assert len(set(names)) == 40


@given(st.integers(2 * BLOCK, 40 * BLOCK), st.lists(st.integers(1, 900), max_size=8))
def test_a_session_keeps_its_name_as_its_prompt_grows(first: int, more: list[int]) -> None:
    content = Content()
    for seed in range(1, COMMON + 1):
        content.session(SYSTEM + words(seed, 3 * BLOCK))
    prompt = SYSTEM + words(1000, first)
    name = content.session(prompt)
    for seed, size in enumerate(more):
        prompt += words(2000 + seed, size)
        assert content.session(prompt) == name


def test_a_prompt_with_nothing_of_its_own_has_no_session() -> None:
    content = Content()
    for seed in range(1, COMMON + 1):
        content.session(SYSTEM + words(seed, 3 * BLOCK))
    assert content.session(SYSTEM + words(50, BLOCK // 4)) is None
    assert content.session(words(60, BLOCK - 1)) is None
    assert content.session([]) is None


def test_a_history_that_forks_a_little_stays_one_session() -> None:
    content = Content()
    history = words(7, 10 * BLOCK)
    name = content.session(history)
    forks = [content.session(history + words(seed, BLOCK)) for seed in range(COMMON - 1)]
    assert set(forks) == {name}


def test_another_process_gives_the_same_name() -> None:
    prompt = words(3, 4 * BLOCK)
    code = f"from tenuto_vllm.placement.content import Content; print(Content().session({prompt}))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == Content().session(prompt)


@given(st.integers(1, 40), st.integers(0, 10_000))
def test_what_is_remembered_is_bounded(most: int, seed: int) -> None:
    content = Content(most)
    for each in range(20):
        content.session(words(seed + each, 8 * BLOCK))
    assert len(content) <= most
