"""What the server says to a prompt: tool calls first, then words that fit what was asked."""

from __future__ import annotations

import json
from typing import Any

from tenuto.conformance.answers import Said
from tenuto.conformance.captured import Place
from tenuto.conformance.marks import Mark
from tenuto.conformance.prompts import Prompt
from tenuto.conformance.samples import sample
from tenuto.conformance.shapes import record, text
from tenuto.conformance.tools import calls

# Histories go on for as long as the agent likes, and call tools only so deep.
_MAX_DEPTH = 24


def said(prompt: Prompt, place: Place, body: dict[str, Any], name: str) -> Said:
    """Return what the answer called `name` says."""
    asked = (
        calls(
            prompt.kind,
            body,
            rounds=place.rounds,
            may_start_agents=place.depth == place.rounds and place.started_by is None,
            answer=name,
        )
        if place.depth < _MAX_DEPTH
        else []
    )
    model = text(body.get("model")) or "tenuto-conformance"
    words = "" if asked else _words(body, str(Mark(name)))
    return Said(name, model, words, tuple(asked), 1 + len(json.dumps(body)) // 4)


def _words(body: dict[str, Any], mark: str) -> str:
    chat = record(body.get("response_format"))
    formats = (
        record(body.get("output_format")),
        record(record(body.get("output_config")).get("format")),
        record(record(body.get("text")).get("format")),
        {**chat, **record(chat.get("json_schema"))},
    )
    for asked in formats:
        if asked.get("schema"):
            return json.dumps(sample(asked["schema"], mark))
        if asked.get("type") == "json_object":
            return json.dumps({"noted": mark})
    return f"Noted {mark}."
