"""Rules that place turns on prefill and decode nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tenuto_vllm.placement.split import Copies, Costs, Node, Turn, decide, ways

THRESHOLDS = (1024, 4096, 16_384)


class Places(NamedTuple):
    """What a rule is given: the turn and the nodes as its caller knows them."""

    turn: Turn
    copies: Copies
    prefills: Sequence[Node]
    decodes: Sequence[Node]
    costs: Costs


Rule = Callable[[Places], tuple[str, str | None]]


def ours(at: Places) -> tuple[str, str | None]:
    """Return what the package decides."""
    made = decide(*at)
    return made.decode, made.prefill


def always_local(at: Places) -> tuple[str, str | None]:
    """Return the best decode node, which prefills."""
    return decide(at.turn, at.copies, (), at.decodes, at.costs).decode, None


def always_remote(at: Places) -> tuple[str, str | None]:
    """Return the best two nodes."""
    prompt = ways.prompt_of(at.turn, at.copies)
    way = ways.remote(prompt, at.prefills, at.decodes, at.costs)
    if way is None or way.source is None:
        raise ValueError("there is no prefill node")
    return way.decode.name, way.source.node.name


def threshold(tokens: int) -> Rule:
    """Return the rule that prefills locally what is at most so many uncached tokens."""

    def rule(at: Places) -> tuple[str, str | None]:
        made = decide(at.turn, at.copies, (), at.decodes, at.costs)
        return (made.decode, None) if made.new_tokens <= tokens else always_remote(at)

    return rule


RULES: dict[str, Rule | None] = {
    "ours": ours,
    "always-remote": always_remote,
    "always-local": always_local,
    **{f"threshold {tokens}": threshold(tokens) for tokens in THRESHOLDS},
    "best": None,
}
