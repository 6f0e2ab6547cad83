"""The rows of gateways that an operator runs in front of other servers."""

from __future__ import annotations

from tenuto.dialects.model import Dialect

_LITELLM = "https://docs.litellm.ai/docs/proxy/"
_FORWARDS = f"{_LITELLM}forward_client_headers"
_BIFROST = "https://docs.getbifrost.ai/providers/session-affinity"
_W3C = "https://github.com/w3c/baggage/blob/main/baggage/HTTP_HEADER_FORMAT.md"

LITELLM = Dialect(
    "litellm",
    carries=(
        ("x-litellm-session-id", "session"),
        ("x-pass-x-session-id", "session"),
        ("x-pass-x-agent-run-id", "run"),
    ),
    passes="x-pass-",
    returns="llm_provider-",
    # It takes any `x-<name>-session-id` for the session, the parent's too.
    withholds=frozenset({"parent"}),
    note="LiteLLM's proxy: `x-pass-<header>` goes on as `<header>`, whatever its settings.",
    sources=(
        ("x-litellm-session-id", f"{_LITELLM}ui_logs_sessions"),
        ("x-pass-x-session-id", _FORWARDS),
        ("x-pass-x-agent-run-id", _FORWARDS),
        ("passes", _FORWARDS),
        ("returns", f"{_LITELLM}response_headers"),
    ),
)
BIFROST = Dialect(
    "bifrost",
    carries=(("x-bf-session-id", "session"), ("x-bf-eh-x-session-id", "session")),
    id_limit=255,
    passes="x-bf-eh-",
    note="Bifrost: `x-bf-eh-<header>` goes on as `<header>`.",
    sources=(
        ("x-bf-session-id", _BIFROST),
        ("x-bf-eh-x-session-id", _BIFROST),
        ("limit", _BIFROST),
        ("passes", _BIFROST),
    ),
)
BAGGAGE = Dialect(
    "baggage",
    baggage=True,
    note="No server: named in a stack, it has the markers ride in W3C baggage too.",
    sources=(("nothing", _W3C),),
)

ROWS = (LITELLM, BIFROST, BAGGAGE)
