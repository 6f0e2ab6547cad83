"""What known coding agents send, by their documents, in their own words and API shapes."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.unit.sdk.conformance.agents import Honest, Session


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = answer.text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def called(name: str, arguments: str, id: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


class Harness(Honest):
    """Works as an agent does; what it marks is its own."""

    def counted(self, answer: httpx.Response) -> int | None:
        return None

    def tell(self, path: str, news: Any) -> None:
        pass

    def work(self) -> None:
        self.agent(self.session("main"), "Do it.", rounds=2)
        self.http.close()


class ClaudeCode(Harness):
    """Headers: https://code.claude.com/docs/en/llm-gateway-protocol."""

    path = "/v1/messages?beta=true"

    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        main = f"{self.run[:8]}-0000-4000-8000-{self.run[:12]}"
        said = [("x-claude-code-session-id", main)]
        return said if session.parent is None else [*said, ("x-claude-code-agent-id", session.id)]

    def asked(self, body: dict[str, Any]) -> dict[str, Any]:
        tools = [one["function"] for one in body["tools"]]
        return {
            "model": "m",
            "stream": True,
            "system": [{"type": "text", "text": body["messages"][0]["content"]}],
            "messages": [self.message(one) for one in body["messages"][1:]],
            "tools": [{"name": t["name"], "input_schema": t["parameters"]} for t in tools],
        }

    def message(self, one: dict[str, Any]) -> dict[str, Any]:
        if one["role"] == "tool":
            result = {"type": "tool_result", "tool_use_id": one["tool_call_id"]}
            return {"role": "user", "content": [{**result, "content": one["content"]}]}
        content: list[Any] = [{"type": "text", "text": one["content"]}] if one["content"] else []
        for call in one.get("tool_calls") or []:
            said = {"name": call["function"]["name"], "id": call["id"]}
            given = json.loads(call["function"]["arguments"])
            content.append({"type": "tool_use", **said, "input": given})
        return {"role": one["role"], "content": content}

    def answered(self, answer: httpx.Response) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = []
        for event in events(answer):
            if event["type"] == "content_block_start":
                blocks.append({**event["content_block"], "all": ""})
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                blocks[-1]["all"] += delta.get("text", delta.get("partial_json"))
        text = "".join(one["all"] for one in blocks if one["type"] == "text")
        calls = [called(b["name"], b["all"], b["id"]) for b in blocks if b["type"] == "tool_use"]
        return {"role": "assistant", "content": text, "tool_calls": calls}


class Codex(Harness):
    """Headers: https://github.com/openai/codex/pull/27122, `session-id` shared by all threads."""

    path = "/v1/responses"

    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        said = [("session-id", self.run), ("thread-id", session.id)]
        about = {"session_id": self.run, "thread_id": session.id, "request_kind": "turn"}
        said.append(("x-codex-turn-metadata", json.dumps(about)))
        above = session.parent
        if above is None:
            return said
        return [*said, ("x-codex-parent-thread-id", above), ("x-openai-subagent", "collab_spawn")]

    def asked(self, body: dict[str, Any]) -> dict[str, Any]:
        tools = [{"type": "function", **one["function"]} for one in body["tools"]]
        items = [item for one in body["messages"][1:] for item in self.items(one)]
        head = {"model": "m", "stream": True, "instructions": body["messages"][0]["content"]}
        return {**head, "input": items, "tools": tools, "store": False}

    def items(self, one: dict[str, Any]) -> list[Any]:
        if one["role"] == "tool":
            result = {"type": "function_call_output", "call_id": one["tool_call_id"]}
            return [{**result, "output": one["content"]}]
        kind = "input_text" if one["role"] == "user" else "output_text"
        words = {"role": one["role"], "content": [{"type": kind, "text": one["content"]}]}
        calls = [
            {"type": "function_call", "call_id": call["id"], **call["function"]}
            for call in one.get("tool_calls") or []
        ]
        return [*([words] if one["content"] else []), *calls]

    def answered(self, answer: httpx.Response) -> dict[str, Any]:
        done = events(answer)[-1]["response"]["output"]
        text = "".join(one["content"][0]["text"] for one in done if one["type"] == "message")
        calls = [
            called(one["name"], one["arguments"], one["call_id"])
            for one in done
            if one["type"] == "function_call"
        ]
        return {"role": "assistant", "content": text, "tool_calls": calls}


class OpenCode(Harness):
    """Headers: packages/opencode/src/session/llm/request.ts of anomalyco/opencode."""

    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        said = [("x-session-affinity", session.id), ("X-Session-Id", session.id)]
        above = session.parent
        return said if above is None else [*said, ("x-parent-session-id", above)]


class CacheKey(Harness):
    """The documented field of OpenAI's public API, in the body alone."""

    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        self.key = session.id
        return []

    def tools(self, session: Session, calls: list[Any]) -> list[str]:
        return [super(CacheKey, self).tools(session, [call])[0] for call in calls]

    def asked(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "prompt_cache_key": self.key, "parallel_tool_calls": False}


class Unmarked(Harness):
    """A client that says nothing."""

    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        return []


HARNESSES = (ClaudeCode, Codex, OpenCode, CacheKey, Unmarked)
