"""What each way to serve a turn would take, and the best of each kind. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple
from zlib import crc32

from tenuto_vllm.placement.split.copies import Copies
from tenuto_vllm.placement.split.values import Costs, Node, Turn


class Prompt(NamedTuple):
    """A turn's prompt and what each node has cached of it, by name.

    `start` is a hash of the session: nodes that are alike are tried from there on.
    """

    turn: Turn
    tokens: int
    held: Mapping[str, int]
    start: int


class Source(NamedTuple):
    """What a prefill node takes for a turn; `queue_s` is others' and comes before `work_s`."""

    node: Node
    held: int
    queue_s: float
    work_s: float
    damage_s: float


class Way(NamedTuple):
    """One way to serve a turn.

    `queue_s`, of others' prefills, and `damage_s`, to others' answers, are parts of `cost_s`.
    """

    breaks_slo: bool
    cost_s: float
    decode: Node
    held: int
    source: Source | None
    queue_s: float
    damage_s: float
    work_s: float
    first_token_s: float


def prompt_of(turn: Turn, copies: Copies) -> Prompt:
    """Take what the markers say; as vLLM does, the last token of a prompt is always computed."""
    known = turn.keep
    if known is None or (turn.prefix is not None and turn.prefix < known):
        known = turn.prefix
    tokens = turn.prompt_tokens or (known or 0) + (turn.append or 0) or 1
    most = copies.floor(tokens - 1 if known is None or known >= tokens else known)
    start = crc32(turn.session.encode("utf-8", "surrogatepass"))
    held = copies.of(turn.session)
    if held and max(held.values()) > most:
        held = {node: min(has, most) for node, has in held.items()}
    return Prompt(turn, tokens, held, start)


# Each is called for every request, for every node: the formulas of `Costs` stand in the loops.


def local(prompt: Prompt, decodes: Sequence[Node], costs: Costs) -> Way:
    """Return the best way without a prefill node; `decodes` are one or more."""
    turn, tokens, holds, start = prompt
    fixed_s, per_token_s, per_pair_s = costs[:3]
    weight, crowd_s = costs.stall_weight, turn.output_tokens * costs.decode_s_per_running
    ttft_s = inf if turn.slo_ttft_s is None else turn.slo_ttft_s
    itl_s, best = turn.slo_itl_s, None
    least, breaks_least = inf, True
    for node in _in_turn(decodes, start):
        name, _, queued, running, _, queued_s, arrivals_per_s = node
        held = holds.get(name, 0)
        new = tokens - held
        work_s = fixed_s + new * (per_token_s + per_pair_s * (held + tokens))
        queue_s = queued_s + queued * per_token_s
        damage_s = work_s * (weight * running + arrivals_per_s * work_s / 2)
        cost_s = queue_s + work_s + damage_s + crowd_s * running
        breaks = queue_s + work_s > ttft_s
        if itl_s is not None and running and not breaks:
            chunk = min(new, costs.chunk_tokens)
            breaks = costs.prefill(chunk, tokens - chunk) > itl_s
        if best is None or (cost_s < least if breaks is breaks_least else breaks_least):
            least, breaks_least = cost_s, breaks
            best = node, held, queue_s, damage_s, work_s
    if best is None:
        raise ValueError("there is no decode node")
    node, held, queue_s, damage_s, work_s = best
    first_s = queue_s + work_s
    return Way(breaks_least, least, node, held, None, queue_s, damage_s, work_s, first_s)


def remote(
    prompt: Prompt, prefills: Sequence[Node], decodes: Sequence[Node], costs: Costs
) -> Way | None:
    """Return the best way over a prefill node; None where there is none."""
    if not prefills:
        return None
    turn, tokens, holds, start = prompt
    token_s = costs.transfer(1)
    crowd_s = turn.output_tokens * costs.decode_s_per_running
    ttft_s = inf if turn.slo_ttft_s is None else turn.slo_ttft_s
    source, best = source_of(prompt, prefills, 0, costs), None
    least, breaks_least, fetched = inf, True, 0
    ready_s = source.queue_s + source.work_s + costs.hop_s
    for node in _in_turn(decodes, start):
        held = holds.get(node.name, 0)
        if costs.is_bidirectional and held != fetched:
            source, fetched = source_of(prompt, prefills, held, costs), held
            ready_s = source.queue_s + source.work_s + costs.hop_s
        first_s = ready_s + (tokens - held) * token_s
        cost_s = first_s + source.damage_s + crowd_s * node.running
        breaks = first_s > ttft_s
        if best is None or (cost_s < least if breaks is breaks_least else breaks_least):
            least, breaks_least, best = cost_s, breaks, (node, held, source, first_s)
    if best is None:
        return None
    node, held, source, first_s = best
    return Way(
        breaks_least,
        least,
        node,
        held,
        source,
        source.queue_s,
        source.damage_s,
        source.work_s,
        first_s,
    )


def source_of(prompt: Prompt, prefills: Sequence[Node], to_fetch: int, costs: Costs) -> Source:
    """Return the prefill node that is ready first.

    Args:
        prompt: to compute.
        prefills: to choose from, one or more.
        to_fetch: leading tokens that the decode node has and a prefill node may fetch; 0 where
            it cannot.
        costs: of both.

    Raises:
        ValueError: there is no prefill node.
    """
    _, tokens, holds, start = prompt
    fixed_s, per_token_s, per_pair_s = costs[:3]
    best, least = None, inf
    token_s = costs.transfer(1)
    rest_s = costs.prefill(tokens - to_fetch, to_fetch)
    for node in _in_turn(prefills, start):
        name, _, queued, _, _, queued_s, arrivals_per_s = node
        held = holds.get(name, 0)
        work_s = fixed_s + (tokens - held) * (per_token_s + per_pair_s * (held + tokens))
        if to_fetch > held:
            work_s = min(work_s, rest_s + (to_fetch - held) * token_s)
        queue_s = queued_s + queued * per_token_s
        damage_s = arrivals_per_s * work_s * work_s / 2
        cost_s = queue_s + work_s + damage_s
        if cost_s < least or best is None:
            least, best = cost_s, (node, held, queue_s, work_s, damage_s)
    if best is None:
        raise ValueError("there is no prefill node")
    return Source(*best)


def _in_turn(nodes: Sequence[Node], start: int) -> Sequence[Node]:
    at = start % len(nodes) if nodes else 0
    return [*nodes[at:], *nodes[:at]] if at else nodes
