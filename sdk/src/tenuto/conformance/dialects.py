"""Which header or body field says what, in whose dialect: a table for reading, as data.

A name is a request header in lower case; `body:a.b` a field of the body; `name#key` a member
of a header that holds a JSON object, an RFC 9651 dictionary or W3C baggage. Where a role has
several names the first that is there counts. Each entry names its source; a name belongs to
the first dialect of the table that is present and reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Role = Literal["session", "parent", "run", "n", "attempt", "class", "fork", "affinity"]


class Carrier(NamedTuple):
    """One place where a marker stands; with `given` it counts only beside that header."""

    role: Role
    name: str
    given: str | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of client or server names the markers.

    Attributes:
        tells: the dialect is present when all names of one of these are.
        carriers: what stands where.
        source: where the facts are from.
        max_id: characters of an id; None stands for the shape of protocol 1.
    """

    name: str
    tells: tuple[tuple[str, ...], ...]
    carriers: tuple[Carrier, ...]
    source: str
    max_id: int | None = None

    @property
    def roles(self) -> frozenset[Role]:
        """Return what can be said in the dialect."""
        return frozenset(carrier.role for carrier in self.carriers)


def _read(role: Role, *names: str) -> tuple[Carrier, ...]:
    return tuple(Carrier(role, name) for name in names)


_DYNAMO = "https://github.com/ai-dynamo/dynamo/blob/004e2c53/lib/llm/src/protocols/agents.rs"
_AGENTIC = "body:vllm_xargs.agentic_context"

DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        "claude-code",
        (("x-claude-code-session-id",),),
        (
            *_read("session", "x-claude-code-agent-id", "x-claude-code-session-id"),
            Carrier("parent", "x-claude-code-parent-agent-id"),
            # A subagent of the main agent names no parent: it is the session itself.
            Carrier("parent", "x-claude-code-session-id", given="x-claude-code-agent-id"),
            *_read("run", "x-claude-code-session-id"),
            *_read("class", "x-claude-code-request-class"),
        ),
        "https://code.claude.com/docs/en/llm-gateway-protocol",
        256,
    ),
    Dialect(
        "codex",
        (("thread-id",), ("x-codex-turn-metadata",), ("conversation_id",)),
        (
            # `session-id` is shared by all that a session starts.
            *_read("session", "thread-id", "conversation_id", "x-codex-turn-metadata#thread_id"),
            *_read("session", "body:prompt_cache_key"),
            *_read("parent", "x-codex-parent-thread-id"),
            *_read("run", "session-id", "session_id"),
            *_read("class", "x-openai-subagent", "x-codex-turn-metadata#request_kind"),
        ),
        "https://github.com/openai/codex/pull/27122, 21329 and 24160",
        256,
    ),
    Dialect(
        "deepseek-harness",
        (("x-deepseek-harness-session-id",),),
        (
            *_read("session", "x-deepseek-harness-session-id"),
            *_read("parent", "x-deepseek-harness-parent-session-id"),
        ),
        _DYNAMO,
        256,
    ),
    Dialect(
        "opencode-go",
        (("x-opencode-session",),),
        _read("session", "x-opencode-session"),
        "https://github.com/microsoft/vscode/issues/334186",
    ),
    Dialect(
        "dynamo",
        (("x-dynamo-session-id",),),
        (
            *_read("session", "x-dynamo-session-id"),
            *_read("parent", "x-dynamo-parent-session-id"),
        ),
        _DYNAMO,
        256,
    ),
    Dialect(
        "litellm",
        (("x-litellm-session-id",), ("x-pass-x-session-id",)),
        (
            *_read("session", "x-litellm-session-id", "x-pass-x-session-id"),
            *_read("run", "x-pass-x-agent-run-id", "x-litellm-trace-id"),
        ),
        "https://docs.litellm.ai/docs/proxy/forward_client_headers",
        256,
    ),
    Dialect(
        "bifrost",
        (("x-bf-session-id",),),
        _read("session", "x-bf-session-id", "x-bf-eh-x-session-id"),
        "https://docs.getbifrost.ai/providers/session-affinity",
        255,
    ),
    Dialect(
        "smg",
        (("x-smg-routing-key",),),
        _read("session", "x-smg-routing-key", "body:rid"),
        "https://raw.githubusercontent.com/smg-project/smg-docs/main/src/lib/content/concepts/"
        "routing/sticky-sessions.md",
        128,
    ),
    Dialect(
        "aibrix",
        (("x-aibrix-session-key",),),
        # Its `x-session-id` is a token that the server gives.
        (*_read("session", "x-aibrix-session-key"), *_read("affinity", "x-session-id")),
        "https://github.com/vllm-project/aibrix/blob/e3e10f9e4aebe9aac5e7d992fb87d2648e01628b/"
        "pkg/plugins/gateway/algorithms/simple_session_affinity.go#L54-L98",
        256,
    ),
    Dialect(
        "llm-d",
        (("x-llm-d-inference-fairness-id",), ("x-session-token",)),
        (
            *_read("session", "x-session-id", "x-session-affinity"),
            *_read("parent", "x-parent-session-id"),
            *_read("run", "x-llm-d-inference-fairness-id"),
            *_read("affinity", "x-session-token"),
        ),
        "https://github.com/llm-d/llm-d-router/blob/ebab687927f5331c1b39defcb579a07951bce56c/"
        "pkg/epp/framework/plugins/scheduling/scorer/sessionaffinity/README.md",
    ),
    Dialect(
        "vllm",
        (("x-agent-run-id",), ("x-agent-turn",), ("x-agent-affinity",)),
        (
            *_read("session", "x-session-id", "x-session-affinity"),
            *_read("parent", "x-parent-session-id"),
            *_read("run", "x-agent-run-id"),
            *_read("n", "x-agent-turn#n"),
            *_read("attempt", "x-agent-turn#attempt"),
            *_read("class", "x-agent-turn#class"),
            *_read("fork", "x-agent-turn#fork"),
            *_read("affinity", "x-agent-affinity"),
        ),
        "protocol 1, docs/protocol.md",
    ),
    Dialect(
        "vllm-router",
        (
            (_AGENTIC,),
            ("body:vllm_xargs.session_id",),
            ("body:session_params.session_id",),
            ("x-session-id", "body:session_id"),
        ),
        (
            *_read("session", "x-session-id", f"{_AGENTIC}.program_id", f"{_AGENTIC}.session_id"),
            *_read("session", "body:session_params.session_id", "body:session_id"),
            *_read("session", "body:vllm_xargs.session_id"),
            *_read("parent", "x-parent-session-id", f"{_AGENTIC}.parent_program_id"),
            *_read("parent", f"{_AGENTIC}.parent_id", f"{_AGENTIC}.parent_agent_id"),
            *_read("run", f"{_AGENTIC}.task_id", f"{_AGENTIC}.root_program_id"),
            *_read("n", f"{_AGENTIC}.step_id"),
        ),
        "https://github.com/vllm-project/router/blob/main/docs/program_scheduling.md",
        256,
    ),
    Dialect(
        "generic",
        (("x-session-id",),),
        (
            *_read("session", "x-session-id", "x-session-affinity"),
            *_read("parent", "x-parent-session-id"),
        ),
        "https://github.com/anomalyco/opencode/blob/05f35982/packages/opencode/src/session/llm/"
        "request.ts",
    ),
    Dialect(
        "fireworks",
        (("x-session-affinity",), ("x-multi-turn-session-id",)),
        _read("session", "x-session-affinity", "x-multi-turn-session-id"),
        "https://reference.langchain.com/python/langchain-fireworks/middleware",
    ),
    Dialect(
        "mistral",
        (("x-affinity",),),
        _read("session", "x-affinity"),
        "https://github.com/badlogic/pi-mono/blob/83378aad7e74a0e2bb8f37c007a9685fb4609d8a/"
        "packages/ai/src/providers/mistral.ts#L213-L216",
        256,
    ),
    Dialect(
        "xai",
        (("x-grok-conv-id",),),
        _read("session", "x-grok-conv-id"),
        "https://github.com/NousResearch/hermes-agent/pull/5252",
        256,
    ),
    Dialect(
        "goose",
        (("agent-session-id",),),
        _read("session", "agent-session-id"),
        "https://github.com/block/goose/issues/11066",
        256,
    ),
    Dialect(
        "helicone",
        (("helicone-session-id",),),
        _read("session", "helicone-session-id"),
        "https://www.mintlify.com/Helicone/helicone/observability/sessions",
        256,
    ),
    Dialect(
        "openrouter",
        (("body:session_id",),),
        _read("session", "body:session_id"),
        "https://openrouter.ai/docs/guides/best-practices/prompt-caching",
        256,
    ),
    Dialect(
        "openai",
        (("body:prompt_cache_key",),),
        _read("session", "body:prompt_cache_key"),
        "https://github.com/openai/openai-python/blob/main/src/openai/types/chat/"
        "completion_create_params.py",
        256,
    ),
    Dialect(
        "correlation",
        (("x-correlation-id",),),
        _read("session", "x-correlation-id"),
        "https://github.com/ai-dynamo/aiperf/pull/1312; TensorRT-LLM and vllm-router read it",
        256,
    ),
    Dialect(
        "baggage",
        (("baggage#session.id",), ("baggage#gen_ai.conversation.id",)),
        _read("session", "baggage#session.id", "baggage#gen_ai.conversation.id"),
        "https://github.com/w3c/baggage and https://github.com/BerriAI/litellm/pull/21763",
        256,
    ),
    # Those below are told from others by nobody but the user, who names them.
    Dialect(
        "trtllm",
        (),
        (
            *_read("session", "body:conversation_params.conversation_id", "x-session-id"),
            *_read("session", "x-correlation-id", "x-session-affinity"),
            *_read("session", "x-multi-turn-session-id"),
            *_read("parent", "x-dynamo-parent-session-id"),
        ),
        "https://nvidia.github.io/TensorRT-LLM/1.4.0rc4/features/subagent-routing.html",
    ),
    Dialect(
        "production-stack",
        (),
        (
            *_read("session", "x-session-id", "body:session_id", "x-user-id"),
            *_read("parent", "x-parent-session-id"),
        ),
        "https://github.com/vllm-project/production-stack/blob/"
        "a6c01db05f65f556235413ba8dbcfb0c01132fff/src/vllm_router/routers/routing_logic.py",
    ),
    Dialect(
        "sglang",
        (),
        _read("session", "body:session_id", "body:session_params.id"),
        "https://docs.sglang.io/docs/advanced_features/session_radix_cache",
        256,
    ),
)
