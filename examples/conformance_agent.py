"""An agent that does what each requirement of the protocol is about, for the conformance kit.

tenuto conformance --strict --command "python examples/conformance_agent.py"
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from openai import AsyncOpenAI, Omit

import tenuto

MODEL = "any"


def tool(name: str, argument: str) -> dict[str, Any]:
    """Return a tool of one text argument, as Responses has it."""
    schema = {"type": "object", "properties": {argument: {"type": "string"}}}
    return {"type": "function", "name": name, "parameters": {**schema, "required": [argument]}}


READ = tool("read_file", "path")
DELEGATE = tool("delegate", "task")


def for_chat(*tools: dict[str, Any]) -> Any:
    """Return the tools as chat completions have them."""
    return [
        {"type": "function", "function": {key: one[key] for key in ("name", "parameters")}}
        for one in tools
    ]


async def search(client: AsyncOpenAI, task: str) -> str:
    """Work on a task over streamed Responses, reading files when asked to."""
    items: list[Any] = [{"role": "user", "content": task}]
    while True:
        async with client.responses.stream(
            model=MODEL, instructions="You search.", input=items, tools=[READ]
        ) as stream:
            answer = await stream.get_final_response()
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return answer.output_text
        items += [item.model_dump(exclude_none=True) for item in answer.output]
        for call in calls:
            result = {"type": "function_call_output", "call_id": call.call_id}
            items.append({**result, "output": "no such file"})


async def plan(client: AsyncOpenAI, run: tenuto.Run, messages: list[Any]) -> None:
    """Work on a task over chat completions; what is delegated runs side by side."""

    async def use(call: Any) -> dict[str, Any]:
        content = "no such file"
        if call.function.name == "delegate":
            with run.agent("search", instance=call.id, ends=True):
                content = await search(client, json.loads(call.function.arguments)["task"])
        return {"role": "tool", "tool_call_id": call.id, "content": content}

    while True:
        answer = await client.chat.completions.create(
            model=MODEL, messages=messages, tools=for_chat(DELEGATE, READ)
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return
        messages += await asyncio.gather(*map(use, message.tool_calls))
        with run.agent("title", kind="auxiliary"):
            await ask(client, "Give it a title.")


async def ask(client: AsyncOpenAI, text: str, **headers: Any) -> None:
    """Make one call."""
    await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": text}],
        extra_headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


async def main() -> None:
    """Make every kind of call once."""
    name = os.environ.get("TENUTO_CONFORMANCE_NAME")
    async with AsyncOpenAI() as plain:
        client = tenuto.wrap(plain)
        with tenuto.run(name) as run:
            messages: list[Any] = [{"role": "system", "content": "You plan."}]
            with run.agent("planner"):
                for step in ("Find it.", "Mend it."):
                    messages.append({"role": "user", "content": step})
                    await plan(client, run, messages)
                with run.agent("reviewer", fork="inherit"):
                    await plan(client, run, [*messages, {"role": "user", "content": "Review it."}])
                own = "of-the-program"
                await ask(client, f"[tenuto own X-Session-ID={own}] Mine.", X_Session_ID=own)
                await ask(client, "[tenuto omit X-Session-ID] Unnamed.", X_Session_ID=Omit())
        await ask(client, "[tenuto unmarked] Outside every run.")


if __name__ == "__main__":
    asyncio.run(main())
