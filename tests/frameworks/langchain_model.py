"""langchain-openai's model with both of its openai clients wrapped."""

from __future__ import annotations

from typing import Any

from langchain_openai import ChatOpenAI

import tenuto
from tests.frameworks.scripted import Model


def chat_model(model: Model, **more: Any) -> ChatOpenAI:
    """Return a model whose requests go to `model` and are marked."""
    chat = ChatOpenAI(model="m", base_url=model.base_url, api_key="k", **more)
    tenuto.wrap(chat.root_client)
    tenuto.wrap(chat.root_async_client)
    return chat
