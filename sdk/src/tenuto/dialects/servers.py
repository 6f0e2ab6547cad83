"""The rows of inference servers, and of hosts of which nothing is known."""

from __future__ import annotations

from tenuto import _wire
from tenuto.dialects.model import BodyField, Dialect, Echo, EndRule, Marker, Priority, Route

_PROTOCOL = "docs/protocol.md"
_VLLM_SESSION = "https://github.com/vllm-project/vllm/pull/48048"
_VLLM_PRIORITY = "https://github.com/vllm-project/vllm/issues/51023"
_TRTLLM = "https://nvidia.github.io/TensorRT-LLM/1.4.0rc4/features/subagent-routing.html"
_SGLANG = "https://docs.sglang.io/docs/advanced_features/session_radix_cache"
_OPENCODE = (
    "https://github.com/anomalyco/opencode/blob/05f35982/packages/opencode/src/session/llm/"
    "request.ts"
)

GENERATING: frozenset[Route] = frozenset({"chat", "completions", "responses"})

# What `tenuto-vllm` reads, and so what every way to a vLLM carries.
PROTOCOL_HEADERS: tuple[tuple[str, Marker], ...] = (
    (_wire.SESSION, "session"),
    (_wire.PARENT, "parent"),
    (_wire.RUN, "run"),
    (_wire.TURN, "turn"),
    (_wire.AFFINITY, "affinity"),
)
AFFINITY = Echo(_wire.AFFINITY, _wire.AFFINITY)
VLLM_PRIORITY = Priority("X-Vllm-Priority", -1)
VLLM_SOURCES = (
    (_wire.SESSION, _VLLM_SESSION),
    (_wire.PARENT, _PROTOCOL),
    (_wire.RUN, _PROTOCOL),
    (_wire.TURN, _PROTOCOL),
    (_wire.AFFINITY, _PROTOCOL),
    ("X-Vllm-Priority", _VLLM_PRIORITY),
)

GENERIC = Dialect(
    "generic",
    carries=(
        (_wire.SESSION, "session"),
        (_wire.SESSION_AFFINITY, "session"),
        (_wire.PARENT, "parent"),
    ),
    echo=(AFFINITY,),
    note="An unknown host: what most systems read and none refuses.",
    sources=(
        (_wire.SESSION, _OPENCODE),
        (_wire.SESSION_AFFINITY, _OPENCODE),
        (_wire.PARENT, _OPENCODE),
        (_wire.AFFINITY, _PROTOCOL),
    ),
)
SILENT = Dialect(
    "silent",
    note="Nothing at all.",
    sources=(("nothing", "for hosts whose documentation asks for nothing"),),
)
VLLM = Dialect(
    "vllm",
    carries=PROTOCOL_HEADERS,
    echo=(AFFINITY,),
    priority=(VLLM_PRIORITY,),
    speaks_protocol=True,
    news="batch",
    note="vLLM, with or without `tenuto-vllm`; a lower priority runs sooner there.",
    sources=VLLM_SOURCES,
)
TRTLLM = Dialect(
    "trtllm",
    carries=((_wire.SESSION, "session"), ("X-Dynamo-Parent-Session-ID", "parent")),
    note="TensorRT-LLM. Nothing in the body: it refuses unknown fields with 400.",
    sources=((_wire.SESSION, _TRTLLM), ("X-Dynamo-Parent-Session-ID", _TRTLLM)),
)
SGLANG = Dialect(
    "sglang",
    body=(BodyField("session_id", "session", frozenset({"chat", "completions"})),),
    end=(EndRule("/close_session", "json"),),
    note="SGLang with `--enable-session-radix-cache`; it reads no session header.",
    sources=(("session_id", _SGLANG), ("end", _SGLANG)),
)

ROWS = (GENERIC, SILENT, VLLM, TRTLLM, SGLANG)
