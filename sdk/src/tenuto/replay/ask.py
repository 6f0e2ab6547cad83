"""A recorded turn as a request: its prompt, and the call that is to be awaited."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Literal, cast

from openai import AsyncOpenAI

from tenuto.replay.observe import Stream
from tenuto.replay.text import LEAST_VOCAB, prompt_text, prompt_tokens
from tenuto.trace.model import Turn

Prompt = str | list[int]
Route = Literal["completions", "chat"]


@dataclass(frozen=True, slots=True)
class Ask:
    """How recorded turns are asked for.

    Attributes:
        model: served model name.
        route: `completions`, or `chat` with the prompt as one user message, where the
            server's template adds to its length.
        vocab: prompts are token ids below it, exact on every model; None sends text, exact
            where the model's tokenizer gives one token for each byte.
        max_output_tokens: answers are cut to this; None asks for as many as recorded.

    Raises:
        ValueError: when an option is outside of its limits, or token ids are to go to `chat`.
    """

    model: str
    route: Route = "completions"
    vocab: int | None = None
    max_output_tokens: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be asked."""
        if self.route not in {"completions", "chat"}:
            raise ValueError(f"route is completions or chat, got {self.route!r}")
        if self.vocab is not None and self.route == "chat":
            raise ValueError("the chat route takes text, not token ids")
        if self.vocab is not None and self.vocab < LEAST_VOCAB:
            raise ValueError(f"vocab is {self.vocab}; the least is {LEAST_VOCAB}")
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            raise ValueError(f"max_output_tokens is {self.max_output_tokens}; the least is 1")

    def prompt(self, turn: Turn, block_size: int, *, salt: str, call: int) -> Prompt:
        """Return the prompt of a turn; see `tenuto.replay.prompt_text`."""
        length = max(1, turn.input_tokens)
        if self.vocab is None:
            return prompt_text(turn.blocks, length, block_size, salt=salt, call=call)
        return prompt_tokens(
            turn.blocks, length, block_size, vocab=self.vocab, salt=salt, call=call
        )

    def call(self, client: AsyncOpenAI, turn: Turn, prompt: Prompt) -> Awaitable[Stream]:
        """Return the call of a turn, not awaited yet.

        The answer has as many tokens as recorded, at least one: whatever the model would
        rather say, the time that it takes is that of the recording.
        """
        tokens = max(1, turn.output_tokens)
        if self.max_output_tokens is not None:
            tokens = min(tokens, self.max_output_tokens)
        given: dict[str, Any] = {
            "model": self.model,
            "max_tokens": tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "extra_body": {"ignore_eos": True, "min_tokens": tokens},
        }
        if self.route == "chat":
            given["messages"] = [{"role": "user", "content": prompt}]
            return cast("Awaitable[Stream]", client.chat.completions.create(**given))
        return cast("Awaitable[Stream]", client.completions.create(prompt=prompt, **given))
