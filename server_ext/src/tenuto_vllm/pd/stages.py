"""The bodies of the two stages of one call. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from tenuto_vllm.placement.split.emit import DEADLINE, PREFILL_PARAMS, earlier

PARAMS = "kv_transfer_params"
FIRST: Mapping[str, Any] = {
    "max_tokens": 1,
    "max_completion_tokens": 1,
    "min_tokens": 0,
    "stream": False,
    "stream_options": None,
    PARAMS: PREFILL_PARAMS,
}
"""Fields of the first stage, in place of the client's."""
_IF_GIVEN = frozenset({"max_completion_tokens", "min_tokens"})
USAGE = {"include_usage": True}


def with_fields(body: bytes, fields: Mapping[str, Any]) -> bytes:
    """Return a JSON object's text with further fields, which take the place of equal ones.

    They are written behind it, since of two equal keys the last counts wherever Python reads
    JSON: a prompt of 140 000 tokens is not to be written anew for one field.
    """
    if not fields:
        return body
    inside = body.rstrip()[:-1].rstrip()
    comma = b"" if inside.endswith(b"{") else b","
    return inside + comma + json.dumps(fields).encode()[1:]


def prefill(body: bytes, fields: Mapping[str, Any], back: Mapping[str, Any] | None) -> bytes:
    """Return the first stage: one token, and the cache kept for whoever fetches it.

    Args:
        body: the client's.
        fields: what is in it.
        back: what the decode server gave for the last turn, of bidirectional transfer.
    """
    first = {name: FIRST[name] for name in FIRST if name in fields or name not in _IF_GIVEN}
    if back is not None:
        first[PARAMS] = back
    return with_fields(body, {**_cleared(fields), **first})


def decode(
    body: bytes,
    fields: Mapping[str, Any],
    transfer: Mapping[str, Any] | None,
    deadline_s: float,
    *,
    is_stream: bool,
) -> bytes:
    """Return the second stage, or the only one where there is no transfer.

    Args:
        body: the client's.
        fields: what is in it.
        transfer: what the prefill server gave; None for no transfer.
        deadline_s: Unix time after which it is not to be used; the server's own, if earlier.
        is_stream: the answer is to end with what was used.
    """
    more = _cleared(fields)
    if transfer is not None:
        # The prefill server knows its lease.
        more[PARAMS] = {**transfer, DEADLINE: earlier(transfer.get(DEADLINE), deadline_s)}
    elif PARAMS in fields:
        more[PARAMS] = None
    if is_stream:
        options = fields.get("stream_options")
        more["stream_options"] = {**options, **USAGE} if isinstance(options, dict) else USAGE
    return with_fields(body, more)


def _cleared(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the further objects that vLLM takes transfer parameters from, without them.

    Addresses in them would be asked for blocks: they are not a client's to name.
    """
    cleared: dict[str, Any] = {}
    if PARAMS in (xargs := _mapping(fields.get("vllm_xargs"))):
        cleared["vllm_xargs"] = _without(xargs)
    sampling = _mapping(fields.get("sampling_params"))
    if PARAMS in (extra := _mapping(sampling.get("extra_args"))):
        cleared["sampling_params"] = {**sampling, "extra_args": _without(extra)}
    return cleared


def _without(held: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in held.items() if name != PARAMS}


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
