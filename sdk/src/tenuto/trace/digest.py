"""A short name for all of a trace that a replay depends on. Pure."""

from __future__ import annotations

import hashlib
import json

from tenuto.trace.model import Trace
from tenuto.trace.runs import merged


def digest(trace: Trace) -> str:
    """Return 32 hex digits: equal for traces that ask a server for the same.

    It covers block size and scope, each session's label, agent, parent, spawn, join and fork,
    and each turn's block ids, tokens and times; not the trace's name, nor what only its source
    has a word for.
    """
    found = hashlib.blake2b(digest_size=16)
    found.update(json.dumps([1, trace.block_size, trace.block_scope]).encode())
    for session in trace.sessions:
        about = [
            session.label,
            session.agent,
            session.parent,
            session.spawned_after,
            session.joined_before,
            session.fork,
            len(session.turns),
        ]
        found.update(json.dumps(about).encode())
        for turn in session.turns:
            said = [
                merged(turn.blocks),
                turn.input_tokens,
                turn.output_tokens,
                float(turn.start_s),
                float(turn.end_s),
            ]
            found.update(json.dumps(said).encode())
    return found.hexdigest()
