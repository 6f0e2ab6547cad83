"""The rows of routers and control planes."""

from __future__ import annotations

from tenuto import _wire
from tenuto.dialects.model import BodyField, Dialect, Echo, EndRule, Priority, Route
from tenuto.dialects.servers import (
    AFFINITY,
    GENERATING,
    PROTOCOL_HEADERS,
    VLLM_PRIORITY,
    VLLM_SOURCES,
)

_ROUTER = "https://github.com/vllm-project/router/blob/"
_ROUTER_KEYS = f"{_ROUTER}b6f455eb/src/policies/hash_key.rs"
_ROUTER_STICKY = f"{_ROUTER}335c57e2/src/policies/sticky_least_loaded.rs"
_ROUTER_PROGRAMS = f"{_ROUTER}main/docs/program_scheduling.md"
_ROUTER_MEASURED = "measured on vllm-router 0.1.17: tests/router"
_STACK = (
    "https://github.com/vllm-project/production-stack/blob/"
    "a6c01db05f65f556235413ba8dbcfb0c01132fff/src/vllm_router/"
)
_STACK_KEY = f"{_STACK}routers/routing_logic.py#L107-L247"
_STACK_FORWARDS = f"{_STACK}services/request_service/request.py#L205-L219"
_STACK_PD = f"{_STACK}services/request_service/request.py#L693-L730"
_DYNAMO = "https://github.com/ai-dynamo/dynamo/blob/004e2c53/lib/llm/src/protocols/agents.rs"
_DYNAMO_PRIORITY = (
    "https://github.com/ai-dynamo/dynamo/blob/acdd2497/lib/llm/src/protocols/openai/nvext/"
    "extensions.rs"
)
_SMG = (
    "https://github.com/lightseekorg/smg/blob/73da68ca9472bbc0ff5f63d31a8a21fbb8696359/"
    "model_gateway/src/"
)
_SMG_KEY = f"{_SMG}routers/common/header_utils.rs#L10-L27"
_SMG_CLASS = f"{_SMG}middleware/scheduler/class.rs#L6-L60"
_LLM_D = (
    "https://github.com/llm-d/llm-d-router/blob/ebab687927f5331c1b39defcb579a07951bce56c/pkg/epp/"
)
_LLM_D_SESSION = f"{_LLM_D}framework/plugins/scheduling/util/sessionaffinity/"
_LLM_D_AGENT = (
    f"{_LLM_D}framework/plugins/requestcontrol/requestheader/agentidentity/"
    "agent_identity.go#L42-L62"
)
_AIBRIX = "https://github.com/vllm-project/aibrix/blob/e3e10f9e4aebe9aac5e7d992fb87d2648e01628b/"
_AIBRIX_SESSION = f"{_AIBRIX}pkg/plugins/gateway/algorithms/simple_session_affinity.go#L54-L98"
# Both stand behind Envoy, whose filters take nothing of ours away.
_ENVOY = "https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/headers"

_SESSION_ID = BodyField("session_id", "session", GENERATING)
_WITH_MESSAGES: frozenset[Route] = frozenset({*GENERATING, "messages"})
_CONTEXT_PATH = "vllm_xargs.agentic_context"
_CONTEXT_WORDS = ("Program identity", "program_id", "step_id")

VLLM_ROUTER = Dialect(
    "vllm-router",
    carries=PROTOCOL_HEADERS,
    # The router forwards no header on these two routes.
    body=(
        BodyField("session_id", "session", frozenset({"responses"})),
        BodyField(_CONTEXT_PATH, "context", frozenset({"responses", "messages"}), _CONTEXT_WORDS),
        BodyField("vllm_xargs.session_id", "session", frozenset({"messages"})),
    ),
    echo=(AFFINITY,),
    priority=(VLLM_PRIORITY,),
    end=(EndRule("/finish_session", "query"),),
    id_limit=256,
    speaks_protocol=True,
    news="session",
    passes="",
    returns="",
    passes_body=True,
    note="vllm-project/router in regular mode; it hashes `X-Session-ID`.",
    sources=(
        *VLLM_SOURCES,
        (_wire.SESSION, _ROUTER_KEYS),
        ("session_id", _ROUTER_MEASURED),
        (_CONTEXT_PATH, _ROUTER_PROGRAMS),
        ("vllm_xargs.session_id", _ROUTER_MEASURED),
        ("end", _ROUTER_STICKY),
        ("limit", _ROUTER_PROGRAMS),
        ("passes", _ROUTER_MEASURED),
        ("returns", _ROUTER_MEASURED),
    ),
)
VLLM_ROUTER_PD = Dialect(
    "vllm-router-pd",
    carries=PROTOCOL_HEADERS,
    body=(
        BodyField("session_id", "session", GENERATING),
        BodyField(_CONTEXT_PATH, "context", _WITH_MESSAGES, _CONTEXT_WORDS),
    ),
    echo=(AFFINITY,),
    end=(EndRule("/finish_session", "query"),),
    id_limit=256,
    speaks_protocol=True,
    passes_body=True,
    returns="",
    note="vllm-project/router in prefill/decode mode: headers stop there, the body goes on.",
    sources=(
        *VLLM_SOURCES[:-1],
        (_wire.SESSION, _ROUTER_KEYS),
        ("session_id", _ROUTER_MEASURED),
        (_CONTEXT_PATH, _ROUTER_PROGRAMS),
        ("end", _ROUTER_STICKY),
        ("limit", _ROUTER_PROGRAMS),
        ("returns", _ROUTER_MEASURED),
    ),
)
PRODUCTION_STACK = Dialect(
    "production-stack",
    carries=PROTOCOL_HEADERS,
    # Its prefill/decode path makes the headers anew and keeps the body.
    body=(_SESSION_ID,),
    echo=(AFFINITY,),
    priority=(VLLM_PRIORITY,),
    speaks_protocol=True,
    passes="",
    returns="",
    passes_body=True,
    note="vLLM production-stack; name its `--session-key` as `production-stack:<header>`.",
    sources=(
        *VLLM_SOURCES,
        (_wire.SESSION, _STACK_KEY),
        ("session_id", _STACK_PD),
        ("passes", _STACK_FORWARDS),
        ("returns", _STACK_FORWARDS),
    ),
)
DYNAMO = Dialect(
    "dynamo",
    carries=(("X-Dynamo-Session-ID", "session"), ("X-Dynamo-Parent-Session-ID", "parent")),
    priority=(Priority("X-Dynamo-Request-Priority"),),
    final=(("X-Dynamo-Session-Final", "true"),),
    note="NVIDIA Dynamo; a higher priority is more important there.",
    sources=(
        ("X-Dynamo-Session-ID", _DYNAMO),
        ("X-Dynamo-Parent-Session-ID", _DYNAMO),
        ("X-Dynamo-Request-Priority", _DYNAMO_PRIORITY),
        ("X-Dynamo-Session-Final", _DYNAMO),
    ),
)
SMG = Dialect(
    "smg",
    carries=(("X-SMG-Routing-Key", "session"),),
    watches=("x-smg-routed-worker-id",),
    # `system` is its own: a client has no business there.
    priority=(Priority("X-SMG-Priority", 1, ((1, "interactive"), (0, "default"), (-8, "bulk"))),),
    id_limit=128,
    note="SGLang Model Gateway; without a key it hashes the API key, one worker for all.",
    sources=(
        ("X-SMG-Routing-Key", _SMG_KEY),
        ("X-SMG-Priority", _SMG_CLASS),
        (
            "x-smg-routed-worker-id",
            "https://raw.githubusercontent.com/smg-project/smg-docs/main/src/lib/content/concepts/"
            "routing/sticky-sessions.md",
        ),
        ("limit", _SMG_KEY),
    ),
)
LLM_D = Dialect(
    "llm-d",
    carries=(
        (_wire.SESSION, "session"),
        (_wire.SESSION_AFFINITY, "session"),
        # Its metrics keep 1000 values of this one, so that it is the run's.
        ("x-llm-d-inference-fairness-id", "run"),
    ),
    echo=(
        Echo("x-session-token", "x-session-token"),
        Echo("x-session-token-prefill", "x-session-token-prefill"),
    ),
    passes="",
    returns="",
    passes_body=True,
    note="llm-d's router; its own tokens go back to it.",
    sources=(
        (_wire.SESSION, f"{_LLM_D_SESSION}session_id.go#L37-L90"),
        (_wire.SESSION_AFFINITY, _LLM_D_AGENT),
        ("x-llm-d-inference-fairness-id", f"{_LLM_D}metadata/consts.go#L36-L67"),
        ("x-session-token", f"{_LLM_D_SESSION}header.go"),
        ("x-session-token-prefill", f"{_LLM_D_SESSION}header.go"),
        ("passes", _ENVOY),
        ("returns", _ENVOY),
    ),
)
AIBRIX = Dialect(
    "aibrix",
    carries=(("x-aibrix-session-key", "session"),),
    echo=(Echo("x-session-id", "x-session-id"),),
    id_limit=256,
    passes="",
    returns="",
    passes_body=True,
    # There it is the gateway's own token, base64 of a pod's address.
    withholds=frozenset({"x-session-id"}),
    note="AIBrix; name a policy for its `routing-strategy` header as `aibrix:<policy>`.",
    sources=(
        ("x-aibrix-session-key", _AIBRIX_SESSION),
        ("x-session-id", _AIBRIX_SESSION),
        ("routing-strategy", f"{_AIBRIX}docs/source/features/gateway-plugins.rst#L202-L225"),
        ("limit", _AIBRIX_SESSION),
        ("passes", _ENVOY),
        ("returns", _ENVOY),
    ),
)

ROWS = (VLLM_ROUTER, VLLM_ROUTER_PD, PRODUCTION_STACK, DYNAMO, SMG, LLM_D, AIBRIX)
