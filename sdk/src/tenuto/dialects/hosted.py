"""The rows of public APIs: what each one's documentation asks for, and nothing else."""

from __future__ import annotations

from tenuto.dialects.model import BodyField, Dialect

_OPENAI = "https://developers.openai.com/api/docs/guides/prompt-caching"
_OPENROUTER = "https://openrouter.ai/docs/guides/best-practices/prompt-caching"
_XAI = "https://docs.x.ai/developers/advanced-api-usage/prompt-caching/maximizing-cache-hits"

OPENROUTER = Dialect(
    "openrouter",
    carries=(("x-session-id", "session"),),
    id_limit=256,
    note="OpenRouter: the same provider for a session.",
    sources=(("x-session-id", _OPENROUTER), ("limit", _OPENROUTER)),
)
OPENAI = Dialect(
    "openai",
    body=(BodyField("prompt_cache_key", "session", frozenset({"chat", "responses"})),),
    note="OpenAI: the key joins the prompt's hash that a request is routed by.",
    sources=(("prompt_cache_key", _OPENAI),),
)
ANTHROPIC = Dialect(
    "anthropic",
    note="Anthropic and compatible APIs: `cache_control` is the application's choice.",
    sources=(("nothing", "https://github.com/anthropics/anthropic-sdk-python"),),
)
FIREWORKS = Dialect(
    "fireworks",
    carries=(("x-session-affinity", "session"),),
    note="Fireworks: the same replica. Nothing in the body: it refuses unknown fields.",
    sources=(("x-session-affinity", "https://docs.fireworks.ai/guides/prompt-caching"),),
)
MISTRAL = Dialect(
    "mistral",
    carries=(("x-affinity", "session"),),
    body=(BodyField("prompt_cache_key", "session", frozenset({"chat"})),),
    note="Mistral: the field is documented, the header is what its own agent sends.",
    sources=(
        (
            "x-affinity",
            "https://github.com/mistralai/mistral-vibe/blob/"
            "9809cfc8315049b6f02b1865306903d92428919f/vibe/core/agent_loop.py#L587",
        ),
        (
            "prompt_cache_key",
            "https://docs.mistral.ai/studio-api/conversations/advanced/prompt-caching",
        ),
    ),
)
XAI = Dialect(
    "xai",
    carries=(("x-grok-conv-id", "session"),),
    body=(BodyField("prompt_cache_key", "session", frozenset({"responses"})),),
    note="xAI: the header for chat, the field for responses.",
    sources=(("x-grok-conv-id", _XAI), ("prompt_cache_key", _XAI)),
)
OPENCODE_GO = Dialect(
    "opencode-go",
    carries=(("x-opencode-session", "session"),),
    note="OpenCode Go answers 400 without it.",
    sources=(("x-opencode-session", "https://opencode.ai/docs/go/#where-can-i-use-it"),),
)
CLOUDFLARE = Dialect(
    "cloudflare",
    carries=(("x-session-affinity", "session"),),
    note="Cloudflare Workers AI: the same instance, for its prefix cache.",
    sources=(
        (
            "x-session-affinity",
            "https://developers.cloudflare.com/workers-ai/features/prompt-caching",
        ),
    ),
)
LLMGATEWAY = Dialect(
    "llmgateway",
    carries=(("x-session-id", "session"),),
    note="LLM Gateway: the same provider for a session.",
    sources=(("x-session-id", "https://docs.llmgateway.io/features/sessions"),),
)
SUBCONSCIOUS = Dialect(
    "subconscious",
    carries=(("x-session-id", "session"),),
    note="Subconscious; a parent's header would be taken for the session's.",
    sources=(("x-session-id", "https://docs.subconscious.dev/features/session-headers"),),
)

ROWS = (
    *(OPENROUTER, OPENAI, ANTHROPIC, FIREWORKS, MISTRAL, XAI, OPENCODE_GO),
    *(CLOUDFLARE, LLMGATEWAY, SUBCONSCIOUS),
)
