"""A decision in the words of an engine, as `POST /tenuto/place` answers it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenuto_vllm.pd.stages import FIRST, PARAMS
from tenuto_vllm.placement.split import PlacementDecision, emit

ENGINES = ("dynamo", "llm-d", "llm-d-coordinator", "smg", "vllm-router", "vllm")


def words(
    engine: str, decision: PlacementDecision, session: str, ids: Mapping[str, int]
) -> dict[str, Any]:
    """Return `headers`, and `bodies` with the fields to set in those of the two requests.

    Args:
        engine: one of `ENGINES`.
        decision: to execute.
        session: whose turn it is.
        ids: by server, Dynamo's instance ids or the indices of the gateway's workers.

    Raises:
        KeyError: there is no such engine, or Dynamo's id of a server is missing.
    """
    if engine == "vllm-router":
        headers, body = emit.vllm_router(session, {})
        return {"headers": headers, "bodies": {"decode": body}}
    if engine == "vllm":
        bodies: dict[str, Any] = {"prefill": FIRST, "decode": {}}
        if decision.prefill is None:
            bodies = {"decode": {PARAMS: None}}
        return {"headers": emit.rank_header(decision.decode), "bodies": bodies}
    if engine == "dynamo":
        return {"headers": emit.dynamo(decision, ids)}
    if engine == "smg":
        return {"headers": emit.smg(decision, session, ids)}
    plain = {"llm-d": emit.llmd_sidecar, "llm-d-coordinator": emit.llmd_coordinator}
    return {"headers": plain[engine](decision)}
