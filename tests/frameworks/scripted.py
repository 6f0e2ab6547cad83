"""A model that answers by a script, chat and responses, streamed or not, on loopback."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.loopback import EMBEDDING, Arrived, read_body


class Call(NamedTuple):
    """A tool call that the model answers with."""

    tool: str
    arguments: dict[str, Any] | None = None


Answer = str | list[Call]
Script = Callable[["Asked"], Answer]


class Asked(Arrived):
    """One request, read the same way whether it is chat or responses."""

    @property
    def items(self) -> list[Any]:
        """The messages or input items."""
        items = self.body.get("messages", self.body.get("input", []))
        return items if isinstance(items, list) else [{"role": "user", "content": items}]

    @property
    def text(self) -> str:
        """Everything that was sent, instructions too, to look for words in."""
        return json.dumps([self.body.get("instructions"), self.items])

    @property
    def follows_a_tool(self) -> bool:
        """Whether the last item is a tool's result."""
        last = self.items[-1]
        return last.get("role") == "tool" or last.get("type") == "function_call_output"


def calls_tools(*calls: Call, words: str = "done") -> Script:
    """Answer with tool calls; with `words` to their results or where no tool is offered."""
    return lambda asked: (
        list(calls) if asked.body.get("tools") and not asked.follows_a_tool else words
    )


@dataclass
class Model:
    """An ASGI app that fails with `failures` in turn, and then answers as `script` says."""

    script: Script = lambda asked: "done"
    failures: list[int] = field(default_factory=list[int])
    arrived: list[Asked] = field(default_factory=list[Asked])
    url: str = ""

    @property
    def base_url(self) -> str:
        """What an openai client is given."""
        return f"{self.url}/v1"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw = await read_body(receive)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        asked = Asked(scope["path"], headers, json.loads(raw))
        self.arrived.append(asked)
        if self.failures:
            status, kind = self.failures.pop(0), b"application/json"
            payload = b'{"error":{"message":"scripted"}}'
        else:
            status = 200
            payload, kind = _answered(asked, self.script(asked))
        # langchain's async client is one for all event loops; its connections must not be.
        answered = [(b"content-type", kind), (b"retry-after-ms", b"1"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": answered})
        await send({"type": "http.response.body", "body": payload})


_ids = itertools.count()


def events_of(answer: Answer) -> list[dict[str, Any]]:
    """Return the events of a streamed Responses answer."""
    return _events(_output(answer))


def _answered(asked: Asked, answer: Answer) -> tuple[bytes, bytes]:
    if asked.path.endswith("/embeddings"):
        return json.dumps(EMBEDDING).encode(), b"application/json"
    is_chat = asked.path.endswith("/chat/completions")
    if not asked.body.get("stream"):
        whole = _completion(answer) if is_chat else _response(_output(answer))
        return json.dumps(whole).encode(), b"application/json"
    events = _chunks(answer) if is_chat else events_of(answer)
    lines = [
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        if "type" in event
        else f"data: {json.dumps(event)}\n\n"
        for event in events
    ]
    ending = ["data: [DONE]\n\n"] if is_chat else []
    return "".join(lines + ending).encode(), b"text/event-stream"


def _message(answer: Answer) -> dict[str, Any]:
    if isinstance(answer, str):
        return {"role": "assistant", "content": answer}
    called = [
        {
            "index": index,
            "id": f"call_{next(_ids)}",
            "type": "function",
            "function": {"name": call.tool, "arguments": json.dumps(call.arguments or {})},
        }
        for index, call in enumerate(answer)
    ]
    return {"role": "assistant", "content": None, "tool_calls": called}


def _chat(kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "c",
        "object": kind,
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "logprobs": None, **choice}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _finish(answer: Answer) -> str:
    return "stop" if isinstance(answer, str) else "tool_calls"


def _completion(answer: Answer) -> dict[str, Any]:
    choice = {"finish_reason": _finish(answer), "message": _message(answer)}
    return _chat("chat.completion", choice)


def _chunks(answer: Answer) -> list[dict[str, Any]]:
    kind = "chat.completion.chunk"
    return [
        _chat(kind, {"finish_reason": None, "delta": _message(answer)}),
        _chat(kind, {"finish_reason": _finish(answer), "delta": {}}),
    ]


def _output(answer: Answer) -> list[dict[str, Any]]:
    if isinstance(answer, str):
        part = {"type": "output_text", "text": answer, "annotations": [], "logprobs": []}
        message = {"type": "message", "role": "assistant", "content": [part]}
        return [{"id": f"msg_{next(_ids)}", "status": "completed", **message}]
    return [
        {
            "id": f"fc_{next(_ids)}",
            "call_id": f"call_{next(_ids)}",
            "type": "function_call",
            "status": "completed",
            "name": call.tool,
            "arguments": json.dumps(call.arguments or {}),
        }
        for call in answer
    ]


# litellm reads an answer with all its fields or not at all.
_UNSAID = (
    *("error", "incomplete_details", "instructions", "max_output_tokens", "metadata"),
    *("previous_response_id", "reasoning", "temperature", "text", "top_p", "truncation", "user"),
)


def _response(output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        **dict.fromkeys(_UNSAID),
        "id": f"resp_{next(_ids)}",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        },
    }


def _events(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    whole = _response(output)
    begun = {**whole, "status": "in_progress", "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(output):
        place = {"output_index": index, "item_id": item["id"]}
        begun = {**item, "status": "in_progress"}
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        if item["type"] == "message":
            (part,) = item["content"]
            begun["content"], at = [], {**place, "content_index": 0}
            events += [
                {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
                {"type": "response.output_text.delta", **at, "delta": part["text"], "logprobs": []},
                {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []},
                {"type": "response.content_part.done", **at, "part": part},
            ]
        else:
            begun["arguments"] = ""
            said = {"arguments": item["arguments"], "name": item["name"]}
            delta = "response.function_call_arguments.delta"
            events += [
                {"type": delta, **place, "delta": item["arguments"]},
                {"type": "response.function_call_arguments.done", **place, **said},
            ]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]
