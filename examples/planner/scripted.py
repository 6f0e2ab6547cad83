"""The model where there is none: it plans, calls tools, and finds one step wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from examples.planner.task import PLANNER, VERIFIER, WORKER
from tenuto_vllm import TurnMiddleware
from tenuto_vllm.embedded import EngineSettings, ToolCall, serve

_PLAN = (
    "What does a pump cost and weigh? Page 'pump'.",
    "What does a valve cost and weigh? Page 'valve'.",
    "What does delivery to Bergen cost? Page 'bergen'.",
)
_REPAIR = "What does a valve cost and weigh this year? Page 'valve 2026'."
_ANSWER = """\
3 pumps of 90 euros (2026) and 2 valves of {price} euros ({year}) are {articles} euros. They weigh
3 * 12 + 2 * 3 = 42 kg, so delivery to Bergen (2026) is 84 euros. Together: {total} euros."""
_FIRST = _ANSWER.format(price=24, year=2024, articles=318, total=402)
_SECOND = _ANSWER.format(price=31, year=2026, articles=332, total=416)

Messages = Sequence[Mapping[str, Any]]


def answers(body: Mapping[str, Any]) -> str | list[ToolCall] | None:
    """Answer a chat as the agent whose instructions it begins with; see `EngineSettings`."""
    system, *messages = body.get("messages") or [{}]
    answer = _AGENTS.get(system.get("content"))
    return answer(messages) if answer else None


@contextlib.contextmanager
def serving(*middleware: type[Any]) -> Iterator[str]:
    """Serve the model on two ranks, with the extension and other middleware in front."""
    with serve(EngineSettings(answers=answers), [TurnMiddleware, *middleware]) as url:
        yield f"{url}/v1"


def _planner(messages: Messages) -> str | list[ToolCall]:
    is_repair = any("REPAIR" in str(message.get("content")) for message in messages)
    if messages[-1]["role"] == "tool":
        return _SECOND if is_repair else _FIRST
    return [ToolCall("worker", {"input": step}) for step in ([_REPAIR] if is_repair else _PLAN)]


def _worker(messages: Messages) -> str | list[ToolCall]:
    said = messages[-1]["content"]
    if messages[-1]["role"] == "tool":
        return said
    return [ToolCall("look_up", {"name": said.split("'")[1]})]


def _verifier(messages: Messages) -> str:
    if "2024" in messages[-1]["content"]:
        return "REPAIR: the price of the valve is of 2024. This year's is on page 'valve 2026'."
    return "ACCEPT: every fact is of 2026, and the sum is right."


_AGENTS: dict[str | None, Callable[[Messages], str | list[ToolCall]]] = {
    PLANNER: _planner,
    WORKER: _worker,
    VERIFIER: _verifier,
}
