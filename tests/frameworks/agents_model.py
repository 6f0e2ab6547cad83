"""openai-agents' two models over one wrapped client, and agents made of them."""

from __future__ import annotations

from typing import Any

import openai
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel

import tenuto
from tests.frameworks.scripted import Asked, Model

MODELS: dict[str, Any] = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


def agents_of(model: Model, api: str, **more: Any) -> Any:
    """Return a function that makes an agent by its name, which is also its instructions."""
    client = tenuto.wrap(openai.AsyncOpenAI(base_url=model.base_url, api_key="k", **more))

    def make(name: str, **settings: Any) -> Agent[Any]:
        return Agent(name=name, instructions=name, model=MODELS[api]("m", client), **settings)

    make.client = client  # type: ignore[attr-defined]
    return make


def asked_of(model: Model, name: str) -> list[Asked]:
    """Return the requests of the agent called `name`."""
    return [
        asked
        for asked in model.arrived
        if name in (asked.body.get("instructions"), asked.items[0].get("content"))
    ]


def runs_of(model: Model, name: str) -> list[str | None]:
    return [asked.headers.get("x-agent-run-id") for asked in asked_of(model, name)]
