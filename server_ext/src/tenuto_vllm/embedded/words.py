"""The engine's prose: words that follow from the prompt alone. Pure."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

_CONSONANTS = "bcdfghjklmnprstv"
_VOWELS = "aeiouaeiouaeiouy"


def words(prompt: Sequence[int], length: int) -> str:
    """Return lowercase ASCII words, exactly `length` characters (so `length` tokens).

    The same prompt always gets the same text, and a shorter text is a prefix of a longer.

    Args:
        prompt: token ids in [0, 2**32).
        length: characters to make, >= 0.
    """
    # An extendable-output hash: asking for more bytes does not change the first ones.
    stream = hashlib.shake_256(array("I", prompt).tobytes()).digest(length)
    text: list[str] = []
    left_in_word = 0
    for value in stream:
        if left_in_word:
            text.append((_VOWELS if text[-1] in _CONSONANTS else _CONSONANTS)[value % 16])
            left_in_word -= 1
        elif text and text[-1] != " ":
            text.append(" ")
        else:
            text.append(_CONSONANTS[value % 16])
            left_in_word = 1 + value // 16 % 7
    return "".join(text)
