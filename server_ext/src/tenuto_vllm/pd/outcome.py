"""What is learnt from a call that was answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tenuto_vllm.pd.answer import Usage
from tenuto_vllm.pd.asked import Asked
from tenuto_vllm.pd.desk import Desk, Told
from tenuto_vllm.pd.handing import Handed
from tenuto_vllm.pd.planner import Plan


class Done(NamedTuple):
    """How a call was answered.

    Attributes:
        decoder: name of the server that answered.
        handed: the prompt as a prefill server computed it; None where none did.
        usage: of the answer; None where it told none.
        back: what a prefill server may fetch from the decoder, of bidirectional transfer.
        written: tokens of the answer; None where they are not known.
        fallback: why a transfer was given up; empty where none was.
    """

    decoder: str
    handed: Handed | None
    usage: Usage | None
    back: Mapping[str, Any] | None
    written: Sequence[Any] | None
    fallback: str


def learn(desk: Desk, plan: Plan, asked: Asked, done: Done, *, is_handed: bool) -> None:
    """Bring the ledger and the numbers up to an answer.

    Args:
        desk: whose they are.
        plan: of the turn.
        asked: of the client.
        done: how it was answered.
        is_handed: the decoder has fetched what the prefill server computed.
    """
    planner, handed, decoder = desk.planner, done.handed, done.decoder
    # Broken off before its end, what was begun is there; how far it went is not known.
    usage = done.usage or Usage(plan.decision.prompt_tokens, 0, None)
    # What the answer tells is the hit of the server that computed the prompt.
    if handed is None or not is_handed:
        prefiller, cached = decoder, usage.cached
    else:
        prefiller, cached = handed.source, handed.cached
    predicted = planner.foretold(plan, prefiller, usage.prompt)
    moved = usage.prompt - planner.foretold(plan, decoder, usage.prompt) if is_handed else 0
    planner.answered(plan, decoder, usage, None if is_handed else cached)
    # The decoder holds all that it wrote.
    is_whole = done.written is not None and len(done.written) == usage.output
    written = done.written if is_whole else None
    planner.contexts.answered(plan.session, asked, usage.prompt, done.back, written)
    # Of a request of no session nothing is foretold.
    desk.numbers.answered(predicted, cached if plan.session else None, moved)
    markers = asked.said.markers
    if markers is not None:
        for ended in markers.turn.drop:
            planner.forget(ended)
        if markers.turn.next == "end":
            planner.forget(markers.session)
    if desk.told is not None:
        plan = plan._replace(decision=plan.decision._replace(decode=decoder))
        desk.told(Told(plan, prefiller, usage, predicted, cached, done.fallback))
