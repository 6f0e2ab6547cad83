"""Blocks of tokens as the pool's keys: a number for each block and all before it."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Sequence

import numpy as np

from tenuto_vllm.embedded.pool import Ints


class Names:
    """Gives equal prefixes equal numbers, and takes numbers back that no cache has.

    Args:
        block_size: tokens in a block.
        most: numbers to give before those that are unused are taken back.
    """

    def __init__(self, block_size: int, most: int) -> None:
        self._block_size = block_size
        self._most = most
        self._number_of: dict[bytes, int] = {}
        self._spare: list[int] = []

    def of(self, tokens: Sequence[int]) -> Ints:
        """Return the numbers of the full blocks of `tokens`, ids in [0, 2**32)."""
        size, numbers, parent = self._block_size, self._number_of, b""
        keys = np.empty(len(tokens) // size, np.int64)
        for index in range(len(keys)):
            text = parent + array("I", tokens[index * size : (index + 1) * size]).tobytes()
            parent = hashlib.blake2b(text, digest_size=16).digest()
            number = numbers.get(parent)
            if number is None:
                number = numbers[parent] = self._spare.pop() if self._spare else len(numbers)
            keys[index] = number
        return keys

    def tidy(self, is_used: Callable[[Ints], np.ndarray[tuple[int], np.dtype[np.bool_]]]) -> None:
        """Take back unused numbers, when many have been given.

        Args:
            is_used: tells of numbers, shape (n,), which must stay.
        """
        if len(self._number_of) <= self._most:
            return
        names = list(self._number_of.items())
        used = is_used(np.array([number for _, number in names], np.int64))
        for (name, number), stays in zip(names, used.tolist(), strict=True):
            if not stays:
                del self._number_of[name]
                self._spare.append(number)
        # Twice what is in use, so that tidying stays rare.
        self._most = max(self._most, 2 * len(self._number_of))
