"""The model calls in the lines of one Claude Code session. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from tenuto.trace.cut import BLOCK_BYTES, cut
from tenuto.trace.event import CallEvent, Fork, ToolSpan
from tenuto.trace.events import Numbered
from tenuto.trace.formats.claude_rows import Entry, Message
from tenuto.trace.formats.text import canonical, seconds_of

_MAIN = "main"


class _Use(NamedTuple):
    """A tool that an answer called, and the answer's place."""

    name: str
    at_s: float | None
    key: tuple[str, str]
    asked: Mapping[str, Any]


class _Answer(NamedTuple):
    """The lines of one answer of the API, in order."""

    session: str
    lines: list[tuple[int, Entry]]


def calls_of(run_id: str, entries: Sequence[tuple[int, Entry]]) -> list[Numbered]:
    """Return a session's calls in the order of the log, as events."""
    by_id = {entry.uuid: entry for _, entry in entries if entry.uuid}
    answers = _answers(entries, by_id)
    uses = _uses(answers)
    results = _results(entries)
    agents = _agents(entries, uses)
    turn_of: dict[tuple[str, str], int] = {}
    counts: dict[str, int] = {}
    for key, answer in answers.items():
        turn_of[key] = counts.get(answer.session, 0)
        counts[answer.session] = turn_of[key] + 1
    made: list[Numbered] = []
    for key, (session, lines) in answers.items():
        chain = _prompt(*lines[0], by_id, results)
        known = agents.get(session)
        spawned = turn_of.get(known.key) if known else None
        is_child = session != _MAIN and _MAIN in counts
        tools, joins = _brought(chain, uses, agents)
        runs, input_bytes = cut([canonical(item) for item in _items(chain)])
        last = lines[-1][1]
        usage = next(
            (e.message.usage for _, e in reversed(lines) if e.message and e.message.usage), None
        )
        message = cast("Message", last.message)
        begun = _seen(chain, last)
        cached = usage.cache_read_input_tokens if usage else None
        tokens = None
        if usage:
            tokens = usage.input_tokens + (cached or 0) + (usage.cache_creation_input_tokens or 0)
        made.append(
            Numbered(
                lines[0][0],
                CallEvent(
                    run_id=run_id,
                    session_id=session,
                    parent_session_id=_MAIN if is_child else None,
                    agent_name=_agent(session, known),
                    fork=Fork(session_id=_MAIN, turn=spawned) if is_child and known else None,
                    joins=joins if session == _MAIN else (),
                    turn=turn_of[key],
                    model_name=message.model,
                    input_tokens=tokens,
                    output_tokens=usage.output_tokens if usage else None,
                    cached_tokens=cached,
                    block_bytes=BLOCK_BYTES,
                    input_bytes=input_bytes,
                    blocks=runs,
                    start_s=begun,
                    end_s=max(begun, seconds_of(last.timestamp) or begun),
                    finish_reason=message.stop_reason,
                    tools=tools,
                ),
            )
        )
    return made


def _answers(
    entries: Sequence[tuple[int, Entry]], by_id: Mapping[str, Entry]
) -> dict[tuple[str, str], _Answer]:
    answers: dict[tuple[str, str], _Answer] = {}
    for number, entry in entries:
        if entry.type != "assistant" or entry.message is None:
            continue
        if entry.message.model == "<synthetic>":
            continue  # The program's own words, such as of an API error.
        key = (entry.message.id or entry.uuid or "", entry.request_id or "")
        answers.setdefault(key, _Answer(_session(entry, by_id), [])).lines.append((number, entry))
    return answers


def _session(entry: Entry, by_id: Mapping[str, Entry]) -> str:
    if not entry.is_sidechain:
        return _MAIN
    if entry.agent_id:
        return entry.agent_id
    chain = [one for one in _above(entry, by_id) if one.is_sidechain]
    return (chain[0] if chain else entry).uuid or _MAIN


def _above(entry: Entry, by_id: Mapping[str, Entry]) -> list[Entry]:
    """Return what stands above a line on its chain of parents, first to last."""
    chain: list[Entry] = []
    seen: set[str | None] = {entry.uuid}
    above = entry.parent_uuid
    while above is not None and above not in seen and above in by_id:
        seen.add(above)
        chain.append(by_id[above])
        above = by_id[above].parent_uuid
    return chain[::-1]


def _results(entries: Sequence[tuple[int, Entry]]) -> dict[str, list[tuple[int, Entry]]]:
    """Return the lines with tool results, by the line of the answer that called the tool."""
    found: dict[str, list[tuple[int, Entry]]] = {}
    for number, entry in entries:
        if entry.parent_uuid and any(p.get("type") == "tool_result" for p in _parts(entry)):
            found.setdefault(entry.parent_uuid, []).append((number, entry))
    return found


def _prompt(
    number: int,
    entry: Entry,
    by_id: Mapping[str, Entry],
    results: Mapping[str, list[tuple[int, Entry]]],
) -> list[Entry]:
    """Return what an answer had for a prompt.

    Of tools that ran at once only one result stands on the chain of parents; the others
    hang beside it, each on the line of the answer that called its tool.
    """
    chain: list[Entry] = []
    above = _above(entry, by_id)
    on_chain = {one.uuid for one in above}
    for one in above:
        chain.append(one)
        beside = results.get(one.uuid or "", ()) if one.type == "assistant" else ()
        chain.extend(r for n, r in beside if n < number and r.uuid not in on_chain)
    return chain


def _items(chain: Sequence[Entry]) -> list[Any]:
    found = [entry.message for entry in chain if entry.message]
    return [[message.role, message.content] for message in found]


def _seen(chain: Sequence[Entry], last: Entry) -> float:
    """Return when the line came that an answer follows; its own time without one."""
    times = [seconds_of(entry.timestamp) for entry in chain]
    return max((at for at in times if at is not None), default=seconds_of(last.timestamp) or 0.0)


def _uses(answers: Mapping[tuple[str, str], _Answer]) -> dict[str, _Use]:
    return {
        str(part.get("id")): _Use(
            str(part.get("name", "")), seconds_of(entry.timestamp), key, part.get("input") or {}
        )
        for key, answer in answers.items()
        for _, entry in answer.lines
        if entry.message
        for part in entry.message.parts
        if part.get("type") == "tool_use"
    }


def _agents(entries: Sequence[tuple[int, Entry]], uses: Mapping[str, _Use]) -> dict[str, _Use]:
    """Return the tool use that each agent id came from, by the results that name it."""
    found: dict[str, _Use] = {}
    for _, entry in entries:
        result = entry.tool_use_result
        agent = cast("dict[str, Any]", result).get("agentId") if isinstance(result, dict) else None
        for part in entry.message.parts if entry.message and agent else ():
            if part.get("tool_use_id") in uses:
                found[str(agent)] = uses[part["tool_use_id"]]
    return found


def _agent(session: str, known: _Use | None) -> str:
    if session == _MAIN:
        return _MAIN
    return str(known.asked.get("subagent_type", "subagent")) if known else "subagent"


def _brought(
    chain: Sequence[Entry], uses: Mapping[str, _Use], agents: Mapping[str, _Use]
) -> tuple[tuple[ToolSpan, ...], tuple[str, ...]]:
    """Return the tools whose results a prompt brings, and the agents that ended with them."""
    tools: list[ToolSpan] = []
    joins: list[str] = []
    answer: str | None = None
    for entry in reversed(chain):
        if entry.type == "assistant" and entry.message:
            spoken = entry.message.id or entry.uuid
            if answer is not None and spoken != answer:
                break
            answer = spoken
        for part in _parts(entry):
            use_id = str(part.get("tool_use_id"))
            if part.get("type") != "tool_result" or use_id not in uses:
                continue
            use = uses[use_id]
            # Results of the answer before last came with the call before.
            if answer is not None and use.key[0] != answer:
                continue
            answer = use.key[0]
            tools.append(
                ToolSpan(
                    name=use.name,
                    tool_call_id=use_id,
                    start_s=use.at_s,
                    end_s=seconds_of(entry.timestamp),
                    output_bytes=len(canonical(part.get("content", ""))),
                    is_error=bool(part.get("is_error")),
                )
            )
            joins.extend(agent for agent, spawner in agents.items() if spawner is use)
    return tuple(reversed(tools)), tuple(joins)


def _parts(entry: Entry) -> list[dict[str, Any]]:
    return entry.message.parts if entry.message else []
