"""What a recording says of each session, as a table."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from tenuto.trace import CallEvent, read_events

_ROW = "{:<16} {:>5} {:>13} {:>7}  {}"


def table(recording: Path) -> str:
    """Return a line for each session, in the order of their first calls.

    Args:
        recording: a file that `tenuto.record` wrote.
    """
    events = [event for event in read_events(recording) if isinstance(event, CallEvent)]
    sessions: dict[str | None, list[CallEvent]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.start_s):
        sessions[event.session_id].append(event)
    alike, seen = Counter(calls[0].agent_name for calls in sessions.values()), Counter[str]()
    lines = [_ROW.format("agent", "turns", "prompt tokens", "cached", "ranks")]
    for calls in sessions.values():
        agent = calls[0].agent_name
        seen[agent] += 1
        lines.append(_line(f"{agent} {seen[agent]}" if alike[agent] > 1 else agent, calls))
    return "\n".join(lines)


def _line(agent: str, calls: list[CallEvent]) -> str:
    prompt = sum(call.input_tokens or 0 for call in calls)
    cached = sum(call.cached_tokens or 0 for call in calls)
    ranks = {call.served.rank for call in calls if call.served} - {None}
    turns = len({call.turn for call in calls})
    share = f"{cached / max(prompt, 1):.0%}"
    return _ROW.format(agent, turns, f"{prompt:,}", share, " ".join(map(str, ranks))).rstrip()
