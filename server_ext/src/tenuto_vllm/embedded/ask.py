"""A generation request after reading, whatever route it came by. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

from tenuto_vllm.embedded.errors import RequestError
from tenuto_vllm.embedded.fields import as_object, as_text, flag, positive
from tenuto_vllm.embedded.instance import json_instance
from tenuto_vllm.embedded.settings import EngineSettings
from tenuto_vllm.embedded.tokens import Call, encode, render_calls
from tenuto_vllm.embedded.words import words

_DEFAULT_OUTPUT_TOKENS = 16

Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked of the engine and how the answer travels.

    Attributes:
        model: the served model's name.
        prompt: token ids.
        output: the whole answer, ASCII, one token per character.
        calls: the tool calls that `output` is, if it is calls and not text.
        finish: why the answer ends: at its own end, or at the caller's limit.
        stream: answer in events as it is decoded.
        include_usage: end a stream with a chunk of usage.
    """

    model: str
    prompt: Sequence[int]
    output: str
    calls: Sequence[Call]
    finish: Finish
    stream: bool
    include_usage: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """An admitted ask: all that an answer's JSON is made of.

    Attributes:
        ask: the request.
        tag: random hex digits for the answer's ids.
        created_s: seconds since the epoch.
        cached_tokens: prompt tokens that were found in the cache.
    """

    ask: Ask
    tag: str
    created_s: int
    cached_tokens: int

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.ask.prompt)

    @property
    def output_tokens(self) -> int:
        """Length of the answer."""
        return len(self.ask.output)

    def call_id(self, index: int) -> str:
        """Return the id of the answer's tool call at `index`."""
        return f"call_{self.tag}_{index}"

    def usage(self) -> dict[str, Any]:
        """Return `usage` as chat and completions answers carry it."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.prompt_tokens + self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


def make_ask(
    body: Mapping[str, Any],
    settings: EngineSettings,
    prompt: str | Sequence[int],
    most_tokens: int | None,
    schema: object = None,
) -> Ask:
    """Return the ask of a body whose prompt has been read.

    Args:
        body: the request's body, for the fields that all routes share.
        settings: the engine's.
        prompt: text, or token ids.
        most_tokens: the caller's limit of output tokens, if any: words go on up to it
            (finish "length"). Without one they end at 16 ("stop"), JSON and what
            `settings.answers` says at its own end. Tool calls that are cut are text.
        schema: the JSON schema that the answer must follow; None for words.

    Raises:
        RequestError: another model, several choices, text that is not Unicode, or a schema
            that no value fits.
    """
    model = as_text(body.get("model") or settings.served_model_name, "model")
    if model != settings.served_model_name:
        raise RequestError(
            f"The model `{model}` does not exist.", status=HTTPStatus.NOT_FOUND, param="model"
        )
    choices = positive(body, "n") or 1
    if choices > 1:
        raise RequestError(f"n is {choices}; the embedded engine answers one choice.", param="n")
    try:
        tokens = encode(prompt) if isinstance(prompt, str) else prompt
    except UnicodeEncodeError as error:
        raise RequestError("The prompt holds a lone surrogate; send valid Unicode.") from error
    # Before anything is made that is as long as the caller says.
    settings.check_length(len(tokens), most_tokens or 1)
    said = settings.answers(body) if settings.answers else None
    if said is None:
        output, finish = _answer(tokens, most_tokens, schema, settings)
    else:
        output, finish = _cut(_scripted(said), most_tokens)
    options = as_object(body.get("stream_options") or {}, "stream_options")
    return Ask(
        model=settings.served_model_name,
        prompt=tokens,
        output=output,
        calls=() if isinstance(said, str | None) or finish == "length" else said,
        finish=finish,
        stream=flag(body, "stream"),
        include_usage=flag(options, "include_usage"),
    )


def _answer(
    tokens: Sequence[int], most_tokens: int | None, schema: object, settings: EngineSettings
) -> tuple[str, Finish]:
    if schema is None:
        if most_tokens is not None:
            return words(tokens, most_tokens), "length"
        # Its own end, so that openai's `stream()` helper, which raises at any "length",
        # serves callers who set no limit.
        room = settings.max_model_len - len(tokens)
        return words(tokens, min(_DEFAULT_OUTPUT_TOKENS, room)), "stop"
    try:
        text = json_instance(schema)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"No answer follows the JSON schema: {error}.") from error
    return _cut(text, most_tokens)


def _scripted(said: str | Sequence[Call]) -> str:
    text = said if isinstance(said, str) else render_calls(said)
    if not text or not text.isascii():
        # Blocks are counted in characters, and an answer takes at least one.
        raise RequestError(
            "What `answers` returned is empty or not ASCII.",
            status=HTTPStatus.INTERNAL_SERVER_ERROR,
        )
    return text


def _cut(text: str, most_tokens: int | None) -> tuple[str, Finish]:
    if most_tokens is not None and most_tokens < len(text):
        return text[:most_tokens], "length"
    return text, "stop"
