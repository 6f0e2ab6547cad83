"""Which positions of a prompt are worth a state of a model that cannot resume anywhere. Pure.

A model with linear attention or a sliding window can go on only where its state was kept. vLLM
keeps that of the prompt's end; these are wanted as well:

| position | when |
|---|---|
| the end of the system prompt | the session's first turn, or nothing of the prompt was cached |
| the ends of messages that the client names (`at`, from the end where negative) | always |
| what the client knows unchanged (`keep`), and the end of its last turn (`prefix`) | always |
| the ends of the last turns of the session, or of the one it was forked from | the prompt still \
begins as it did then |

Each costs a forward pass that ends there, so a position that was found in the cache is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tenuto_vllm import _wire
from tenuto_vllm.retention.messages import Roles, message_ends, message_starts, system_end

MOST_POSITIONS = 16
LAST_TURNS = 4
"""So many turn ends of a session are kept in mind."""


class End(NamedTuple):
    """Where a turn ended.

    Attributes:
        position: in tokens, a multiple of the block size.
        key: of all tokens before it; another text has another one.
    """

    position: int
    key: object


def wanted(
    ids: Sequence[int],
    turn: _wire.Turn,
    *,
    block: int,
    cached: int = 0,
    roles: Roles | None = None,
    earlier: Sequence[End] = (),
    key_at: Callable[[int], object] = lambda _: None,
) -> tuple[int, ...]:
    """Return at most 16 positions in tokens, ascending multiples of `block`.

    They lie behind what was cached and before the state that vLLM keeps by itself. Where there are
    more, the first are left out: the later ones save more.

    Args:
        ids: the prompt.
        turn: what the client says.
        block: the tokens at which a state can be kept.
        cached: tokens that were found in the cache.
        roles: how messages begin; None where that is unknown.
        earlier: ends of turns that may be turns of this prompt.
        key_at: the key of the prompt's tokens before a position, to compare with those.
    """
    positions = [turn.keep or 0, turn.prefix or 0]
    is_first = not cached or turn.n == 0 or (turn.n is None and not earlier)
    if roles is not None and (turn.at or is_first):
        starts = message_starts(ids, roles)
        ends = message_ends(ids, starts, roles)
        positions += [ends[at] for at in turn.at if -len(ends) <= at < len(ends)]
        if is_first:
            positions.append(system_end(ids, starts, roles))
    # The prompt's last token is computed in any case, so vLLM's is before it.
    kept = max(0, len(ids) - 1) // block * block
    positions += [end.position for end in earlier if end.key == key_at(end.position)]
    aligned = {position // block * block for position in positions}
    return tuple(sorted(one for one in aligned if cached < one < kept)[-MOST_POSITIONS:])
