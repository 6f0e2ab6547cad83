"""An agent program as its author writes it: a planner, a tool caller and a verifier.

The scopes (`tenuto.run`, `run.agent`) are all that tenuto asks of it; around a client that is
not wrapped they do nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI

import tenuto
from examples.demo.prompts import PLANNER, TOOL_CALLER, VERIFIER
from examples.demo.tickets import Ticket
from examples.demo.tools import ToolCall, call_tool, schemas

_ANSWER_TOKENS = 48


@dataclass(slots=True)
class _Agent:
    """One agent's history, and how it asks the model."""

    messages: list[dict[str, Any]]
    client: AsyncOpenAI
    model: str

    async def ask(self, text: str | None = None) -> str:
        """Make one turn, after a user message if there is one; return the model's text."""
        if text is not None:
            self.messages.append({"role": "user", "content": text})
        stream = await self.client.chat.completions.create(
            model=self.model,
            messages=self.messages,
            tools=schemas(),
            tool_choice="none",
            max_tokens=_ANSWER_TOKENS,
            temperature=0.0,
            stream=True,
            stream_options={"include_usage": True},
        )
        parts = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
        return "".join(parts)

    def said(self, text: str, call: ToolCall | None = None, output: str = "") -> None:
        """Put the model's text into the history, with a tool call and its output if any."""
        if call is None:
            self.messages.append({"role": "assistant", "content": text})
            return
        call_id = f"call_{len(self.messages)}"
        function = {"name": call.name, "arguments": call.arguments_json}
        made = {"id": call_id, "type": "function", "function": function}
        self.messages += [
            {"role": "assistant", "content": text, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": call_id, "content": output},
        ]


async def work_on(ticket: Ticket, client: AsyncOpenAI, *, model: str) -> None:
    """Work on one ticket, round by round.

    The model has random weights: which tool is called is the ticket's plan, not the
    model's choice, while the model's text stays in each history.

    Args:
        ticket: the question, and the tool calls of each round.
        client: whom to ask, wrapped by `tenuto.wrap` or not.
        model: served model name.
    """

    def agent(system: str) -> _Agent:
        return _Agent([{"role": "system", "content": system}], client, model)

    planner, caller, verifier = agent(PLANNER), agent(TOOL_CALLER), agent(VERIFIER)
    news = ticket.question
    with tenuto.run(f"demo-{ticket.name}") as run:
        for calls in ticket.rounds:
            with run.agent("planner"):
                plan = await planner.ask(news)
                planner.said(plan)
            with run.agent("tool-caller"):
                outputs = await _call_tools(caller, plan, calls)
            with run.agent("verifier"):
                verdict = await verifier.ask("\n\n".join([ticket.question, plan, *outputs]))
                verifier.said(verdict)
            news = "\n\n".join([verdict, *outputs[-1:]])


async def _call_tools(caller: _Agent, plan: str, calls: Sequence[ToolCall]) -> list[str]:
    """Run one round of tools, a turn for each and one that sums up; return the outputs."""
    outputs: list[str] = []
    text = await caller.ask(plan)
    for call in calls:
        output = await asyncio.to_thread(call_tool, call)
        outputs.append(output)
        caller.said(text, call, output)
        text = await caller.ask()
    caller.said(text)
    return outputs
