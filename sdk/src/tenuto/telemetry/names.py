"""Every name that is put on a span, and where it comes from.

`gen_ai.*` and `error.type` are OpenTelemetry's, which are in development and change:
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-spans.md
and gen-ai-agent-spans.md beside it. What those have no word for is `tenuto.*`, in the words of
docs/protocol.md. The convention's conversation is a session: the one history that an agent goes
on with, never a trace.
"""

from __future__ import annotations

from typing import Any, Final

OPERATION: Final = "gen_ai.operation.name"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT_NAME: Final = "gen_ai.agent.name"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
TOOL_NAME: Final = "gen_ai.tool.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
ERROR: Final = "error.type"
GEN_AI: Final = "gen_ai."
OURS: Final = "tenuto."

RUN: Final = "tenuto.run.id"
SESSION: Final = "tenuto.session.id"
PARENT_SESSION: Final = "tenuto.session.parent.id"
AGENT_PATH: Final = "tenuto.agent.path"
TURN: Final = "tenuto.turn.index"
PHASE: Final = "tenuto.turn.phase"
ATTEMPT: Final = "tenuto.turn.attempt"
RANK: Final = "tenuto.served.rank"
HOME: Final = "tenuto.served.home"
WHY: Final = "tenuto.served.why"
LEASE_S: Final = "tenuto.served.lease_s"
CACHED_SHARE: Final = "tenuto.prompt.cached_share"

# An event, and why the try before it is not the last: its status, or `Unanswered`.
RETRY: Final = "tenuto.retry"
RETRY_REASON: Final = "tenuto.retry.reason"

INVOKE_WORKFLOW: Final = "invoke_workflow"
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
_MODEL_CALLS: Final = frozenset(
    {"chat", "text_completion", "generate_content", "embeddings", "response", "responses"}
)
_OPERATIONS: Final = _MODEL_CALLS | {
    *(INVOKE_WORKFLOW, INVOKE_AGENT, EXECUTE_TOOL),
    *("create_agent", "plan", "retrieval"),
}

# What others call a span by: OpenInference's semantic_conventions.md, Langfuse's SDK.
_OPENINFERENCE: Final = "openinference.span.kind"
_LANGFUSE: Final = "langfuse.observation.type"


def is_gen_ai(name: str, attributes: dict[str, object]) -> bool:
    """Tell whether a span that has just begun is one of the conventions'."""
    return name.partition(" ")[0] in _OPERATIONS or any(
        key.startswith(GEN_AI) for key in attributes
    )


def is_model_call(attributes: dict[str, object]) -> bool:
    """Tell whether a span stands for one call of a model, whoever made it."""
    return (
        attributes.get(OPERATION) in _MODEL_CALLS
        or (OPERATION not in attributes and REQUEST_MODEL in attributes)
        or attributes.get(_OPENINFERENCE) in {"LLM", "EMBEDDING"}
        or attributes.get(_LANGFUSE) in {"generation", "embedding"}
    )


def is_tool(name: str, attributes: dict[str, object]) -> bool:
    """Tell whether a span stands for one run of a tool, whoever made it."""
    return (
        attributes.get(OPERATION) == EXECUTE_TOOL
        or name.partition(" ")[0] == EXECUTE_TOOL
        or TOOL_NAME in attributes
        or attributes.get(_OPENINFERENCE) == "TOOL"
        or attributes.get(_LANGFUSE) == "tool"
    )


def unscrubbed(match: Any) -> Any:
    """Keep what is ours, which is no secret, from Logfire's scrubbing of every "session".

    For `logfire.configure(scrubbing=logfire.ScrubbingOptions(callback=unscrubbed))`.

    Args:
        match: logfire's `ScrubMatch`.
    """
    return match.value if str(match.path[-1]).startswith(OURS) else None
