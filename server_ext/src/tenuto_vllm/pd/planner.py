"""From what is asked and what is known to a decision, and back from an answer to what is known."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from tenuto_vllm._wire import Markers
from tenuto_vllm.pd.answer import Usage
from tenuto_vllm.pd.asked import Asked
from tenuto_vllm.pd.contexts import Contexts
from tenuto_vllm.pd.fleet import Fleet
from tenuto_vllm.pd.options import Options
from tenuto_vllm.placement.place import inherits
from tenuto_vllm.placement.split import Copies, PlacementDecision, Turn, decide


class Plan(NamedTuple):
    """One turn's decision.

    Attributes:
        session: whose turn; empty for a request of none, of which nothing is remembered.
        decision: where it goes.
        held: tokens of its session on each node that has any, by name, before it.
        wished: what the decision alone would have been; the same one unless something else
            has the last word.
        promise_s: seconds to the first token that its class promises; None for any.
    """

    session: str
    decision: PlacementDecision
    held: dict[str, int]
    wished: PlacementDecision
    promise_s: float | None


class Planner:
    """Keeps the ledger."""

    def __init__(self, options: Options, fleet: Fleet, copies: Copies) -> None:
        self._options = options
        self._fleet = fleet
        self._copies = copies
        self.contexts = Contexts()

    def plan(self, asked: Asked) -> Plan:
        """Decide where a request goes."""
        markers = asked.said.markers
        output = asked.output_tokens or Turn("").output_tokens
        if markers is None:
            turn = self.promised(self._turn("", asked, output))
            return self.place(turn, may_split=asked.may_split)
        if markers.turn.kind == "auxiliary":
            return self._aside(markers, asked, output)
        self._rewritten(markers)
        turn = self._turn(markers.session, asked, output)
        if not is_background(markers):
            turn = self.promised(turn)
        return self.place(turn, may_split=asked.may_split)

    def _aside(self, markers: Markers, asked: Asked, output: int) -> Plan:
        """Place a call beside a history: it may begin with one, and is no turn of any."""
        of = markers.parent if inherits(markers) else None
        if of is None and markers.turn.keep is not None:
            of = markers.session
        turn = self._turn("", asked, output)
        turn = turn._replace(session=of or "", keep=markers.turn.keep)
        return self.place(turn, may_split=asked.may_split)._replace(session="")

    def _turn(self, session: str, asked: Asked, output: int) -> Turn:
        tokens = max(1, self.contexts.tokens(session, asked))
        return Turn(session, tokens, output_tokens=output)

    def promised(self, turn: Turn) -> Turn:
        """Return a turn with what is promised to all but background work."""
        options = self._options
        return turn._replace(slo_ttft_s=options.slo_ttft_s, slo_itl_s=options.slo_itl_s)

    def place(
        self,
        turn: Turn,
        *,
        may_split: bool = True,
        loads: Mapping[str, Mapping[str, float | int]] = MappingProxyType({}),
    ) -> Plan:
        """Decide where a turn goes.

        Args:
            turn: to place.
            may_split: its prompt can be computed elsewhere.
            loads: `queued_s` and `running` of servers, by name, from who knows them better.
        """
        fleet, options = self._fleet, self._options
        now_s = time.monotonic()
        decodes = fleet.nodes(fleet.decodes, now_s)
        prefills = fleet.nodes(fleet.prefills, now_s) if may_split else ()
        if loads:
            decodes, prefills = (
                [one._replace(**loads.get(one.name, {})) for one in nodes]  # pyright: ignore[reportArgumentType]
                for nodes in (decodes, prefills)
            )
        costs, lease_s = options.costs, options.lease_s
        wished = decide(turn, self._copies, prefills, decodes, costs, lease_s)
        decision = wished
        if options.shadow or options.always == "local":
            decision = decide(turn, self._copies, (), decodes, costs, lease_s)
        elif options.always == "remote" and (ready := [one for one in prefills if one.is_up]):
            crowd = costs._replace(stall_weight=1e9, hop_s=0.0, transfer_bytes_per_s=1e18)
            busy = [one._replace(running=0, queued_s=1e9) for one in decodes]
            decision = decide(turn, self._copies, ready, busy, crowd, lease_s)
        held = {
            name: self._copies.expected(turn.session, name, turn.keep)
            for name in self._copies.of(turn.session)
        }
        return Plan(turn.session, decision, held, wished, turn.slo_ttft_s)

    def foretold(self, plan: Plan, name: str, prompt_tokens: int) -> int:
        """Return how much of a prompt of this length a node should have had cached, tokens."""
        return min(plan.held.get(name, 0), self._copies.floor(prompt_tokens - 1))

    def sent(self, plan: Plan, name: str) -> None:
        """Note that a node is given a turn's prompt."""
        if plan.session:
            self._copies.sent(plan.session, name, plan.decision.prompt_tokens)

    def failed(self, plan: Plan, name: str) -> None:
        """Note that a node which was given a turn's prompt has not computed it."""
        before = plan.held.get(name, 0)
        sent = max(before, self._copies.floor(plan.decision.prompt_tokens))
        # What was noted since is of somebody who knows more.
        if plan.session and self._copies.of(plan.session).get(name, 0) == sent:
            self._copies.reported(plan.session, name, before)

    def prefilled(self, plan: Plan, name: str, prompt_tokens: int, cached: int | None) -> None:
        """Note that a node has computed a turn's prompt for another.

        Args:
            plan: of the turn.
            name: of the node.
            prompt_tokens: length of the prompt.
            cached: tokens of it that were cached there; None where it did not tell.
        """
        if plan.session:
            if cached is not None:
                self._copies.reported(plan.session, name, cached)
            self._copies.prefilled(plan.session, name, prompt_tokens)

    def answered(self, plan: Plan, decoder: str, usage: Usage, cached: int | None) -> None:
        """Learn from an answer.

        Args:
            plan: of the turn.
            decoder: name of the node that answered.
            usage: of the whole answer.
            cached: tokens of the prompt that were cached there, where it computed it itself.
        """
        if plan.session:
            if cached is not None:
                self._copies.reported(plan.session, decoder, cached)
            self._copies.decoded(plan.session, decoder, usage.prompt, usage.output)

    def forget(self, session: str) -> None:
        """Forget a session: it has ended."""
        self._copies.forget(session)
        self.contexts.forget(session)

    def _rewritten(self, markers: Markers) -> None:
        """Bring a session's copies up to what its markers say."""
        turn, session = markers.turn, markers.session
        if inherits(markers) and markers.parent is not None:
            self._copies.forked(session, markers.parent, turn.keep)
        elif turn.keep is not None:
            self._copies.edited(session, turn.keep)
        elif turn.phase == "compact":
            self._copies.edited(session, 0)


def is_background(markers: Markers) -> bool:
    """Whether nobody waits for a turn: it says that others are more urgent."""
    return markers.turn.prio is not None and markers.turn.prio < 0
