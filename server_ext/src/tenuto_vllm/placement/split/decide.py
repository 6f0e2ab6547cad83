"""Where a turn is prefilled: on the node that decodes it, or on a prefill node. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto_vllm.placement.split import ways
from tenuto_vllm.placement.split.copies import Copies
from tenuto_vllm.placement.split.values import Costs, Node, PlacementDecision, Turn, Why

__all__ = ["MARGIN", "Costs", "Node", "PlacementDecision", "Turn", "Why", "decide"]

# Of the lease: for the way to the decode node, which keeps the lease alive once it has it.
MARGIN = 1 / 3


def decide(  # noqa: PLR0917 - the shape is what every caller has at hand
    turn: Turn,
    copies: Copies,
    prefills: Sequence[Node],
    decodes: Sequence[Node],
    costs: Costs,
    lease_s: float = 30.0,
) -> PlacementDecision:
    """Return where a turn is prefilled and decoded: where waiting and damage cost least.

    Nodes that are not up are left out; where no decode node is up, all of them count, so that
    the caller has one to try.

    Args:
        turn: to place.
        copies: what is cached where.
        prefills: nodes that prefill for others, none or more.
        decodes: nodes that answer, one or more.
        costs: of both kinds of nodes and the way between them.
        lease_s: for which a prefill node keeps what was not fetched, from the prefill's end.

    Raises:
        ValueError: there is no decode node.
    """
    prompt = ways.prompt_of(turn, copies)
    up = [node for node in decodes if node.is_up]
    local = ways.local(prompt, up or decodes, costs)
    remote = ways.remote(prompt, [node for node in prefills if node.is_up], up or decodes, costs)
    way = local if remote is None or local[:2] <= remote[:2] else remote
    new, source = prompt.tokens - way.held, way.source
    predicted = {way.decode.name: way.held}
    if source is not None:
        predicted[source.node.name] = source.held
    if not up:
        why: Why = "no-decode"
    elif source is None and new <= copies.block_size:
        why = "short"
    else:
        why = _why(local, remote, prompt.tokens, is_remote=source is not None)
    return PlacementDecision(
        way.decode.name,
        None if source is None else source.node.name,
        None if source is None else lease_s - lease_s * MARGIN,
        why,
        new,
        0 if source is None else new,
        predicted,
        prompt.tokens,
        way.work_s,
        way.first_token_s,
        local.cost_s,
        None if remote is None else remote.cost_s,
    )


def _why(local: ways.Way, remote: ways.Way | None, tokens: int, *, is_remote: bool) -> Why:
    """Return the first thing without which the other way would have been chosen."""
    if remote is None:
        return "no-prefill"
    if is_remote != (remote.cost_s < local.cost_s):
        return "slo"
    if is_remote != (remote.cost_s - remote.queue_s < local.cost_s - local.queue_s):
        return "queue"
    is_warm = 2 * local.held >= tokens
    if not is_remote:
        return "warm" if is_warm else "transfer"
    if local.cost_s - local.damage_s <= remote.cost_s:
        return "stall"
    return "large" if is_warm else "cold"
