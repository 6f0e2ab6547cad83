"""Which of an agent's tools the server asks for. Pure.

A call really runs in the agent, so it goes to what starts a subagent or only looks, and
never to a tool whose name says that it changes something.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tenuto.conformance.marks import Mark
from tenuto.conformance.prompts import Kind
from tenuto.conformance.samples import sample
from tenuto.conformance.shapes import record, sequence, text

_STARTS_AGENT = re.compile(
    r"^(task|agent|sub_?agents?|(delegate|dispatch|spawn|handoff|transfer)(_.*)?|.*_(sub)?agent)$",
    re.IGNORECASE,
)
# What is done to an agent that is there already.
_MINDS_AGENT = re.compile(
    r"^(close|resume|wait|stop|list|get|cancel|send|kill|end|update)_", re.IGNORECASE
)
_FINISHES = re.compile(
    r"^(final_?(result|answer|output)|finish|done|submit_?(answer|result)?|respond|complete)"
    r"|^StructuredOutput$",
    re.IGNORECASE,
)
_LOOKS = re.compile(
    r"read|list|^ls$|glob|grep|search|find|get|look|view|show|time|weather|calc|count|check|echo",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    r"write|edit|delete|remove|^rm$|exec|bash|shell|terminal|run|kill|send|post|create|update"
    r"|move|deploy|pay|submit|apply|patch|install|commit|push|set|buy|order|cancel|drop|exit",
    re.IGNORECASE,
)
# Words that a subagent's kind may have to be one of, most usual first.
_AGENT_KINDS = ("general-purpose", "general")
# Rounds of tool calls after one word of the user, however the agent insists.
_MAX_ROUNDS = 6


class Tool(NamedTuple):
    """A function that a request offers."""

    name: str
    schema: dict[str, Any]
    about: str = ""
    namespace: str = ""


class ToolCall(NamedTuple):
    """One call that an answer asks for; `namespace` is that of the tool in Responses."""

    id: str
    name: str
    arguments: dict[str, Any]
    namespace: str = ""


def offered(kind: Kind, body: dict[str, Any]) -> list[Tool]:
    """Return the functions that a request offers, in order."""
    return list(_functions(kind, body.get("tools"), ""))


def _functions(kind: Kind, tools: Any, namespace: str) -> Iterator[Tool]:
    for tool in map(record, sequence(tools)):
        if tool.get("type") == "namespace":
            yield from _functions(kind, tool.get("tools"), text(tool.get("name")))
            continue
        held = record(tool.get("function")) if kind == "chat" else tool
        schema = held.get("input_schema" if kind == "messages" else "parameters")
        is_ours = schema is not None if kind == "messages" else tool.get("type") == "function"
        if is_ours and text(held.get("name")):
            about = text(held.get("description"))
            yield Tool(held["name"], record(schema), about, namespace)


def calls(
    kind: Kind, body: dict[str, Any], *, rounds: int, may_start_agents: bool, answer: str
) -> list[ToolCall]:
    """Return the calls that an answer asks for, none when it speaks instead.

    First comes a tool that starts a subagent, twice at once if the request allows it, then
    one that looks, then a tool that finishes where one must be called.

    Args:
        kind: the API.
        body: the request's body.
        rounds: tool results given since the user last spoke.
        may_start_agents: the history has started no agent and was started by none.
        answer: the answer's name, for its marks.
    """
    tools = offered(kind, body)
    forced, must = _choice(kind, body)
    if not tools or forced == "none" or rounds >= _MAX_ROUNDS:
        return []
    if forced:
        return _called([tool for tool in tools if tool.name == forced][:1], answer)
    starters = [tool for tool in tools if _starts_agent(tool)][:1]
    others = [tool for tool in tools if not _FINISHES.search(tool.name)]
    looking = [tool for tool in others if _is_harmless(tool) and _LOOKS.search(tool.name)]
    looking = (looking or [tool for tool in others if _is_harmless(tool)])[:1]
    plan: list[list[Tool]] = []
    if starters and may_start_agents:
        alone = body.get("parallel_tool_calls") is False or record(body.get("tool_choice")).get(
            "disable_parallel_tool_use"
        )
        plan.append(starters if alone else starters * 2)
    if looking:
        plan.append(looking)
    if rounds < len(plan):
        return _called(plan[rounds], answer)
    if must:
        ending = [tool for tool in tools if _FINISHES.search(tool.name)]
        return _called((ending or [tool for tool in tools if _is_harmless(tool)])[:1], answer)
    return []


def _starts_agent(tool: Tool) -> bool:
    return bool(_STARTS_AGENT.search(tool.name)) and not _MINDS_AGENT.search(tool.name)


def _is_harmless(tool: Tool) -> bool:
    return not (_CHANGES.search(tool.name) or _STARTS_AGENT.search(tool.name))


def _choice(kind: Kind, body: dict[str, Any]) -> tuple[str, bool]:
    """Return the tool that must be called ("none" for none, "" for any), and whether one must."""
    choice = body.get("tool_choice")
    if isinstance(choice, str):
        return ("none" if choice == "none" else ""), choice in {"required", "any"}
    held = record(choice)
    if held.get("type") == "none":
        return "none", False
    name = text(held.get("name") or record(held.get("function")).get("name"))
    return name, bool(name) or held.get("type") == "any"


def _called(tools: list[Tool], answer: str) -> list[ToolCall]:
    made: list[ToolCall] = []
    for index, tool in enumerate(tools):
        mark = str(Mark(answer, index))
        arguments = record(sample(tool.schema, mark))
        for name in arguments.keys() & {"subagent_type", "agent_type"}:
            about = tool.about + str(tool.schema)
            arguments[name] = next((k for k in _AGENT_KINDS if k in about), arguments[name])
        made.append(ToolCall(f"call_{mark}", tool.name, arguments, tool.namespace))
    return made
