"""A trace as several that each have one root with direct children. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tenuto.trace.model import Session, Trace


def split(trace: Trace) -> Iterator[Trace]:
    """Yield the parts of a trace that formats without deeper forks can say.

    A session without a parent begins a part, its children are in it, and a child of those
    begins a part again. Times stay; what one part waits for in another is left out, and block
    ids of scope `run` are shared within a part only. A trace that is one part stays as it is.
    """
    parts: dict[str, list[Session]] = {}
    for session in trace.sessions:
        above = session.parent
        if above is not None and above in parts:
            parts[above].append(session)
        else:
            parts[session.label] = [session]
    if len(parts) == 1:
        yield trace
        return
    for label, sessions in parts.items():
        root = replace(
            sessions[0], parent=None, spawned_after=None, joined_before=None, fork="fresh"
        )
        yield replace(trace, id=f"{trace.id}/{label}", sessions=(root, *sessions[1:]), extra=None)
