"""Which session a prompt belongs to, where nothing but the prompt says it.

Prompts of one history begin alike, but so do those of a whole fleet: system prompt and tools.
What tells sessions apart is the first block past what many of them share.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

BLOCK = 64
# A block that so many different ones follow is shared by sessions; a history forks less often.
COMMON = 8
# The fleet's common prefix is shorter than that; more is not looked at.
_MOST_BLOCKS = 512
_MOST_NODES = 8_192


class Content:
    """Remembers which blocks followed which. Bounded; the longest unseen go first.

    Two processes agree on a session once both have seen what their prompts share.
    """

    def __init__(self, most_nodes: int = _MOST_NODES) -> None:
        self._most = most_nodes
        self._next: OrderedDict[int, set[int]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many blocks are remembered."""
        return len(self._next)

    def session(self, tokens: Sequence[int]) -> str | None:
        """Return a name for the history that a prompt belongs to.

        Args:
            tokens: ids of the prompt's tokens, shape (tokens,).

        Returns:
            The same for all prompts that go on from one another; None for a prompt with no whole
            block of its own.
        """
        node, own = 0, None
        for end in range(BLOCK, min(len(tokens), BLOCK * _MOST_BLOCKS) + 1, BLOCK):
            # Hashes of integers are the same in every process.
            child = hash((node, *tokens[end - BLOCK : end]))
            follow = self._followers(node)
            if len(follow) < COMMON:
                follow.add(child)
            if own is None or len(follow) >= COMMON:
                own = child
            node = child
        if own is None or len(self._next.get(node, ())) >= COMMON:
            return None
        return f"content-{own & 0xFFFF_FFFF_FFFF_FFFF:016x}"

    def _followers(self, node: int) -> set[int]:
        found = self._next.get(node)
        if found is None:
            found = self._next[node] = set()
            if len(self._next) > self._most:
                self._next.popitem(last=False)
        else:
            self._next.move_to_end(node)
        return found
