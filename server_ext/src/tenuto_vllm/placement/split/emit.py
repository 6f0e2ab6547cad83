"""A decision in the words of what executes it: headers and parts of the body. Pure.

What each engine honours is in docs/prefill-decode.md. Nothing here is for a client to send:
these are decisions, which an engine takes from who stands in front of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tenuto_vllm.placement.split.values import PlacementDecision

# What vLLM's NIXL connector is asked with, examples/online_serving/disaggregated_serving.
PREFILL_PARAMS: Mapping[str, Any] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
DEADLINE = "tenuto_deadline"
"""Key in `kv_transfer_params`: Unix time in seconds after which our extension drops them."""
# Of a body: each makes the prefill write or send more than the one token that is thrown away.
_ANSWER = frozenset({"stream", "stream_options", "min_tokens", "max_completion_tokens", "n"})


def rank_of(node: str) -> int | None:
    """Return the data-parallel rank in a node's name, `url#rank`; None where it has none."""
    _, _, rank = node.partition("#")
    return int(rank) if rank.isascii() and rank.isdigit() else None


def dynamo(decision: PlacementDecision, instances: Mapping[str, int]) -> dict[str, str]:
    """Return the pins of Dynamo's `--router-mode direct`.

    Source: `lib/llm/src/protocols/openai/nvext/extensions.rs` at acdd2497.

    Args:
        decision: to execute.
        instances: Dynamo's instance id of each node, by name without a rank.

    Raises:
        KeyError: a node has no instance id.
    """
    headers = {"x-dynamo-worker-instance-id": str(instances[_base(decision.decode)])}
    rank = rank_of(decision.decode)
    if rank is not None:
        headers["x-dynamo-dp-rank"] = str(rank)
    if decision.prefill is not None:
        headers["x-dynamo-prefill-instance-id"] = str(instances[_base(decision.prefill)])
        rank = rank_of(decision.prefill)
        if rank is not None:
            headers["x-dynamo-prefill-dp-rank"] = str(rank)
    return headers


def llmd_sidecar(decision: PlacementDecision) -> dict[str, str]:
    """Return what the sidecar of llm-d's decode pod reads; none of it means a local prefill.

    The endpoint picker deletes what comes from outside: it is for who calls the sidecar.
    Source: llm-d-router's `pkg/common/routing/common.go` at ebab6879.
    """
    if decision.prefill is None:
        return {}
    return {"x-prefiller-host-port": _host_port(decision.prefill)}


def llmd_coordinator(decision: PlacementDecision) -> dict[str, str]:
    """Return what llm-d's coordinator reads.

    `Prefer: if-available` (RFC 7240) lets the decode node serve what it has cached; it
    answers 412 otherwise, and the caller asks again without. Source: as of `llmd_sidecar`.
    """
    return {"prefer": "if-available"} if decision.prefill is None else {}


def smg(decision: PlacementDecision, session: str, workers: Mapping[str, int]) -> dict[str, str]:
    """Return the sticky key and the pin of SGLang's gateway.

    The gateway picks both nodes by its own policies before it sends anything, and a pin counts
    in the pool of the policy that reads it; a key longer than 128 bytes is skipped, so it is
    left out. Source: smg's `policies/consistent_hashing.rs` and
    `routers/common/header_utils.rs` at 73da68ca.

    Args:
        decision: to execute.
        session: whose turn it is.
        workers: index of each decode worker, by name; one that is missing is not pinned.
    """
    headers: dict[str, str] = {}
    if 0 < len(session.encode()) <= 128:
        headers["x-smg-routing-key"] = session
    if decision.decode in workers:
        headers["x-smg-target-worker"] = str(workers[decision.decode])
    return headers


def vllm_router(session: str, body: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the header and the body that tie a session to its nodes in vllm-router.

    No decision: the router keeps a session with its nodes and prefills each turn remotely. With
    prefill and decode apart it drops all headers but `traceparent`, `tracestate` and
    `baggage`; the body arrives. A text and no object, which vLLM would refuse. What the caller
    says already stays. Source: vllm-router 0.1.17, docs/program_scheduling.md, and runs of it.

    Args:
        session: whose turn it is.
        body: of the request; it is not changed.
    """
    said = body.get("vllm_xargs")
    xargs: dict[str, Any] = dict(said) if isinstance(said, Mapping) else {}  # pyright: ignore[reportUnknownArgumentType]
    xargs.setdefault("session_id", session)
    context = {"program_id": session, "session_id": session}
    xargs.setdefault("agentic_context", json.dumps(context, separators=(",", ":")))
    return {"x-session-id": session}, {**body, "vllm_xargs": xargs}


def prefill_body(
    body: Mapping[str, Any], fetched: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the body of the first of two requests: the prompt is computed, its blocks are kept.

    Args:
        body: of the client's request; it is not changed.
        fetched: `kv_transfer_params` of the session's last answer, where the transfer is
            bidirectional: the prefill node fetches what only the decode node has.
    """
    first = {name: value for name, value in body.items() if name not in _ANSWER}
    if "max_completion_tokens" in body:
        first["max_completion_tokens"] = 1
    return {
        **first,
        "max_tokens": 1,
        "stream": False,
        "kv_transfer_params": dict(fetched or PREFILL_PARAMS),
    }


def decode_body(
    decision: PlacementDecision,
    body: Mapping[str, Any],
    transfer: Mapping[str, Any] | None,
    since_prefill_s: float = 0.0,
    prefilled_at_s: float | None = None,
) -> dict[str, Any]:
    """Return the body of the request that is answered.

    Blocks that were not fetched within the lease may be another's by then: vLLM answers 200
    with wrong tokens and keeps them in its prefix cache. After the deadline the prompt is
    prefilled where it is decoded.

    Args:
        decision: to execute.
        body: of the client's request; it is not changed.
        transfer: `kv_transfer_params` that the prefill node answered with; None where there
            was no first request, or it failed.
        since_prefill_s: seconds since that answer, on the caller's own clock.
        prefilled_at_s: Unix time of that answer, by a clock that the decode node shares. The
            extension there looks at the deadline again. With None only the prefill node's own
            is told, if it told one.
    """
    # A client's own must not name blocks of others.
    second = {name: value for name, value in body.items() if name != "kv_transfer_params"}
    if transfer and decision.deadline_s is not None and since_prefill_s < decision.deadline_s:
        second["kv_transfer_params"] = dict(transfer)
        if prefilled_at_s is not None:
            deadline = earlier(transfer.get(DEADLINE), prefilled_at_s + decision.deadline_s)
            second["kv_transfer_params"][DEADLINE] = deadline
    return second


def earlier(told: object, deadline: float) -> float:
    """Return the earlier of two deadlines; one that is told and is no number does not count."""
    if isinstance(told, int | float) and not isinstance(told, bool):
        return min(deadline, told)
    return deadline


def rank_header(node: str) -> dict[str, str]:
    """Return the header that names a node's rank to vLLM; none where it has no rank."""
    rank = rank_of(node)
    return {} if rank is None else {"x-data-parallel-rank": str(rank)}


def _base(node: str) -> str:
    return node.partition("#")[0]


def _host_port(node: str) -> str:
    url = urlsplit(_base(node) if "//" in node else f"//{_base(node)}")
    host = url.hostname or ""
    port = url.port or (443 if url.scheme == "https" else 80)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
