"""The errors that tenuto itself raises.

    TenutoError
    ├── ConfigError(ValueError)                 an argument or setting that cannot work
    └── StreamInterrupted(openai.OpenAIError)   an answer broken off after its first part

openai's own exceptions pass through untouched. Once a client is wrapped and a scope is open
nothing raises, but for `StreamInterrupted` on the streams of a `tenuto.retrying` client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openai import OpenAIError


class TenutoError(Exception):
    """Base of every error raised by tenuto."""


class ConfigError(TenutoError, ValueError):
    """An argument or setting cannot work; the message names it and the way out."""


class StreamInterrupted(TenutoError, OpenAIError):
    """A streamed answer ended before it was whole, when parts of it had arrived.

    The cause (`__cause__`) is openai's own error, None when the stream ended as if all were
    well, but without `[DONE]` and without a finish reason.

    It is an `OpenAIError`, so that what catches openai's errors catches it; and none of the
    kinds that retry layers try again, since its reader may have acted on what arrived.

    Attributes:
        partial: the chunks or events that arrived, in order, as openai gave them; empty
            when a stream ended before its first.
        text: the text in them, of the first choice where there are several.
        request_id: the server's `x-request-id`, None when it gave none.
    """

    def __init__(
        self,
        message: str,
        partial: Sequence[Any] = (),
        text: str = "",
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.partial = list(partial)
        self.text = text
        self.request_id = request_id
