"""The first stage of a hand-off: a prompt computed on a prefill server, within its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tenuto_vllm.pd import answer, stages
from tenuto_vllm.pd.desk import Desk, Request
from tenuto_vllm.pd.fleet import Server
from tenuto_vllm.pd.planner import Plan
from tenuto_vllm.pd.upstream import Unreachable
from tenuto_vllm.pd.waits import first_stage_s

_COMPUTED = 200
_FAILED = 500
_FULL = 429


class Handed(NamedTuple):
    """A prompt that a prefill server has computed.

    Attributes:
        source: name of the server.
        transfer: what the decode server fetches it with.
        cached: tokens of the prompt that were cached there; None where it did not tell.
        ended_s: when it was computed, monotonic.
    """

    source: str
    transfer: Mapping[str, Any]
    cached: int | None
    ended_s: float


async def hand_over(
    desk: Desk, request: Request, plan: Plan, source: Server, gave_up: Callable[[str], None]
) -> Handed | None:
    """Have a prompt computed.

    Args:
        desk: to do it with.
        request: of the client.
        plan: that chose the server.
        source: that server.
        gave_up: told why there is no hand-off.

    Returns:
        None where that failed or took too long, and the prompt is computed elsewhere.
    """
    decision = plan.decision
    new = decision.prompt_tokens - decision.predicted[source.url]
    back = None
    if desk.options.is_bidirectional:
        back = desk.planner.contexts.back(plan.session, request.asked)
    body = stages.prefill(request.body, request.asked.fields, back)
    limit_s = first_stage_s(
        max(decision.first_token_s, source.expected_s(new)),
        plan.promise_s,
        least_s=desk.options.stage_least_s,
        most_s=desk.options.stage_most_s,
    )
    begun_s = time.monotonic()
    desk.planner.sent(plan, source.url)
    is_computed = False
    source.begin(new, decision.work_s, begun_s)
    try:
        # What is cancelled closes its connection, and the server stops computing.
        async with asyncio.timeout(limit_s):
            status, said = await desk.upstreams.read(
                "POST", source.url + request.path, request.headers, body
            )
        is_computed = status == _COMPUTED
    except TimeoutError:
        source.gave_up(new, limit_s)
        desk.watch.doubt(source)
        gave_up("prefill_hung")
        return None
    except Unreachable:
        desk.watch.down(source)
        gave_up("prefill_down")
        return None
    finally:
        ended_s = time.monotonic()
        took_s = source.took_s(begun_s, ended_s)
        source.end(new, decision.work_s, ended_s)
        if not is_computed:
            desk.planner.failed(plan, source.url)
    usage, transfer, *_ = answer.whole(said)
    if not is_computed or transfer is None:
        # A request that is wrong is told so by the server that decodes.
        if is_computed or status >= _FAILED or status == _FULL:
            gave_up("prefill_failed")
        return None
    if usage is not None:
        desk.planner.prefilled(plan, source.url, usage.prompt, usage.cached)
        source.computed(usage.prompt - (usage.cached or 0), took_s)
    return Handed(source.url, transfer, usage.cached if usage else None, ended_s)
