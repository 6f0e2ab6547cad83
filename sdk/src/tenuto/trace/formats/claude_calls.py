"""The model calls in the lines of one Claude Code session. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from tenuto.trace.cut import BLOCK_BYTES
from tenuto.trace.draft import Say
from tenuto.trace.event import CallEvent, Fork, ToolSpan
from tenuto.trace.events import Numbered
from tenuto.trace.formats.claude_chain import Chains, Node, Placed, back_from, in_order, runs_to
from tenuto.trace.formats.claude_rows import Entry, Message
from tenuto.trace.formats.text import canonical, count_of, seconds_of

_MAIN = "main"


class _Use(NamedTuple):
    """A tool that an answer called, and the answer's place."""

    name: str
    at_s: float | None
    key: tuple[str, str]
    asked: Any


class _Answer(NamedTuple):
    """The lines of one answer of the API, in order."""

    session: str
    lines: list[Placed]


class _Agents(NamedTuple):
    """The tool uses that agents came from."""

    uses: Mapping[str, _Use]
    use_of: Mapping[str, str]
    """By the agent's id."""
    ended: Mapping[str, list[str]]
    """The ids of the agents, by that of the tool use."""

    def spawner(self, agent: str) -> _Use | None:
        return self.uses.get(self.use_of.get(agent, ""))


def calls_of(run_id: str, entries: Sequence[tuple[int, Entry]], say: Say) -> list[Numbered]:
    """Return a session's calls in the order of the log, as events."""
    log = in_order(entries, say)
    chains = Chains(log, say)
    answers = _answers(log, chains)
    agents = _agents(log, _uses(answers))
    turn_of: dict[tuple[str, str], int] = {}
    counts: dict[str, int] = {}
    for key, answer in answers.items():
        turn_of[key] = counts.get(answer.session, 0)
        counts[answer.session] = turn_of[key] + 1
    times = (seconds_of(one.entry.timestamp) for one in log)
    first_s = min((at for at in times if at is not None), default=0.0)
    made: list[Numbered] = []
    for key, (session, lines) in answers.items():
        prompt = chains.prompt(lines[0])
        known = agents.spawner(session)
        spawned = turn_of.get(known.key) if known else None
        is_child = session != _MAIN and _MAIN in counts
        tools, joins = _brought(prompt, agents)
        last = lines[-1].entry
        said = [cast("Message", one.entry.message) for one in lines]
        message = said[-1]
        usage = next((one.usage for one in reversed(said) if one.usage), None)
        ended_s = seconds_of(last.timestamp)
        begun_s = prompt.latest_s if prompt else None
        if begun_s is None:
            begun_s = first_s if ended_s is None else ended_s
            if ended_s is None:
                say(lines[0].line, "no time can be read; taken as the session's first")
        made.append(
            Numbered(
                lines[0].line,
                CallEvent(
                    run_id=run_id,
                    session_id=session,
                    parent_session_id=_MAIN if is_child else None,
                    agent_name=_agent(session, known),
                    fork=Fork(session_id=_MAIN, turn=spawned) if is_child and known else None,
                    joins=joins if session == _MAIN else (),
                    turn=turn_of[key],
                    model_name=message.model,
                    input_tokens=count_of(usage.prompt_tokens) if usage else None,
                    output_tokens=usage.output_tokens if usage else None,
                    cached_tokens=usage.cache_read_input_tokens if usage else None,
                    block_bytes=BLOCK_BYTES,
                    input_bytes=prompt.cut.length if prompt else 0,
                    blocks=runs_to(prompt),
                    start_s=begun_s,
                    end_s=max(begun_s, ended_s or begun_s),
                    finish_reason=message.stop_reason,
                    tools=tools,
                ),
            )
        )
    return made


def _answers(log: Sequence[Placed], chains: Chains) -> dict[tuple[str, str], _Answer]:
    answers: dict[tuple[str, str], _Answer] = {}
    for placed in log:
        entry = placed.entry
        if entry.type != "assistant" or entry.message is None:
            continue
        if entry.message.model == "<synthetic>":
            continue  # The program's own words, such as of an API error.
        key = (entry.message.id or entry.uuid or "", entry.request_id or "")
        if key not in answers:
            answers[key] = _Answer(_session(placed, chains), [])
        answers[key].lines.append(placed)
    return answers


def _session(placed: Placed, chains: Chains) -> str:
    if not placed.entry.is_sidechain:
        return _MAIN
    return placed.entry.agent_id or chains.root(placed).uuid or _MAIN


def _uses(answers: Mapping[tuple[str, str], _Answer]) -> dict[str, _Use]:
    return {
        str(part.get("id")): _Use(
            str(part.get("name", "")), seconds_of(one.entry.timestamp), key, part.get("input")
        )
        for key, answer in answers.items()
        for one in answer.lines
        for part in one.entry.parts
        if part.get("type") == "tool_use"
    }


def _agents(log: Sequence[Placed], uses: Mapping[str, _Use]) -> _Agents:
    """Return which tool use each agent id came from, by the results that name it."""
    use_of: dict[str, str] = {}
    for _, _, entry in log:
        result = entry.tool_use_result
        agent = cast("dict[str, Any]", result).get("agentId") if isinstance(result, dict) else None
        for part in entry.parts if agent else ():
            if (use_id := str(part.get("tool_use_id"))) in uses:
                use_of[str(agent)] = use_id
    ended: dict[str, list[str]] = {}
    for agent, use_id in use_of.items():
        ended.setdefault(use_id, []).append(agent)
    return _Agents(uses, use_of, ended)


def _agent(session: str, known: _Use | None) -> str:
    if session == _MAIN:
        return _MAIN
    asked = known.asked if known else None
    kind = cast("dict[str, Any]", asked).get("subagent_type") if isinstance(asked, dict) else None
    return str(kind or "subagent")


def _brought(prompt: Node | None, agents: _Agents) -> tuple[tuple[ToolSpan, ...], tuple[str, ...]]:
    """Return the tools whose results a prompt brings, and the agents that ended with them."""
    tools: list[ToolSpan] = []
    joins: list[str] = []
    answer: str | None = None
    for entry in back_from(prompt):
        if entry.type == "assistant" and entry.message:
            spoken = entry.message.id or entry.uuid
            if answer is not None and spoken != answer:
                break
            answer = spoken
        for part in entry.parts:
            use_id = str(part.get("tool_use_id"))
            if part.get("type") != "tool_result" or use_id not in agents.uses:
                continue
            use = agents.uses[use_id]
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
            joins.extend(agents.ended.get(use_id, ()))
    return tuple(reversed(tools)), tuple(joins)
