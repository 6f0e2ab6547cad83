"""The fields of a Claude Code log line that a trace needs, checked by pydantic."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tenuto.trace.event import Tokens


class Usage(BaseModel):
    """Tokens of a call, as the API counts them: the three input counts add up to the prompt."""

    model_config = ConfigDict(frozen=True)

    input_tokens: Tokens = 0
    cache_creation_input_tokens: Tokens | None = None
    cache_read_input_tokens: Tokens | None = None
    output_tokens: Tokens = 0

    @property
    def prompt_tokens(self) -> int:
        """All tokens of the prompt."""
        cached = (self.cache_creation_input_tokens or 0) + (self.cache_read_input_tokens or 0)
        return self.input_tokens + cached


class Message(BaseModel):
    """A message of the conversation; of an answer, one content block of it."""

    model_config = ConfigDict(frozen=True)

    id: str | None = None
    role: str | None = None
    model: str | None = None
    content: str | list[dict[str, Any]] = ""
    stop_reason: str | None = None
    usage: Usage | None = None

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The content blocks; none where the content is a text."""
        return [] if isinstance(self.content, str) else self.content


class Entry(BaseModel):
    """One line; those without a `uuid` are no part of the conversation."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    type: str = ""
    uuid: str | None = None
    parent_uuid: str | None = Field(default=None, alias="parentUuid")
    session_id: str | None = Field(default=None, alias="sessionId")
    is_sidechain: bool = Field(default=False, alias="isSidechain")
    agent_id: str | None = Field(default=None, alias="agentId")
    request_id: str | None = Field(default=None, alias="requestId")
    timestamp: str | None = None
    message: Message | None = None
    tool_use_result: Any = Field(default=None, alias="toolUseResult")

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The content blocks of its message; none where it has none."""
        return self.message.parts if self.message else []
