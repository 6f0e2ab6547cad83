"""Header names by which other programs name a session: data, and one reader.

Sources: Dynamo's `lib/llm/src/protocols/agents.rs` at 004e2c53 (Dynamo, Claude Code, Codex,
DeepSeek, in this order), Claude Code's gateway protocol
(https://code.claude.com/docs/en/llm-gateway-protocol), openai/codex#21329 and #24160. Programs
come before routers and gateways, whose one key may stand for a program's several agents.

Left out on purpose: `x-user-id` and `x-tenant-id` (many sessions), `x-request-id`,
`x-trace-id` and `x-correlation-id` (vllm-router takes the last for a request's id too, and
services that know nothing of sessions send a fresh one each time), and tokens that name a
worker (`x-session-token`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tenuto_vllm._wire import CLASSES, Markers, Turn
from tenuto_vllm.carriers.values import foreign_id, foreign_text


class Family(NamedTuple):
    """The headers of one program; of several names for one thing the first that is there counts.

    Attributes:
        session: names of the session; the finest comes first.
        parent: names of the parent; one that names the session itself is no parent.
        kind: name of the request's class.
        kinds: what its words mean among the classes of protocol 1.
        last: name of the flag of a session's last call.
    """

    session: tuple[bytes, ...]
    parent: tuple[bytes, ...] = ()
    kind: bytes = b""
    kinds: Mapping[str, str] = {}
    last: bytes = b""


FAMILIES = (
    Family(
        (b"x-dynamo-session-id",),
        (b"x-dynamo-parent-session-id",),
        last=b"x-dynamo-session-final",
    ),
    Family(
        # An agent id is fresh for each spawned agent; agents share the session id.
        (b"x-claude-code-agent-id", b"x-claude-code-session-id"),
        (b"x-claude-code-parent-agent-id", b"x-claude-code-session-id"),
        b"x-claude-code-request-class",
        {word: word for word in CLASSES},
    ),
    Family(
        # A session id is shared by all descendants, a thread id is not. Codex before 0.131
        # has the names with an underscore.
        (b"thread-id", b"conversation_id", b"session-id", b"session_id"),
        (b"x-codex-parent-thread-id",),
        b"x-openai-subagent",
        {
            "review": "subagent",
            "collab_spawn": "subagent",
            "compact": "compaction",
            "memory_consolidation": "auxiliary",
        },
    ),
    Family(
        (b"x-deepseek-harness-session-id",),
        (b"x-deepseek-harness-parent-session-id",),
        b"x-deepseek-harness-compact",
        {"1": "compaction"},
    ),
    Family((b"x-opencode-session",)),
    Family((b"agent-session-id",)),  # goose
    Family((b"x-multi-turn-session-id",)),  # TensorRT-LLM, Fireworks
    Family((b"x-grok-conv-id",)),  # xAI
    Family((b"x-affinity",)),  # Mistral
    Family((b"x-litellm-session-id",)),
    Family((b"x-bf-session-id",)),  # Bifrost
    Family((b"x-smg-routing-key",)),
    Family((b"x-aibrix-session-key",)),
)

_NAMES = frozenset(
    name
    for family in FAMILIES
    for name in (*family.session, *family.parent, family.kind, family.last)
    if name
)


def read_aliases(headers: Iterable[tuple[bytes, bytes]], dropped: list[str]) -> Markers | None:
    """Return the markers of the first family that gives a session.

    Args:
        headers: (name, value) pairs, names in lower case, any bytes. The first of two equal
            names counts, and an empty value counts as absent.
        dropped: gets `alias.session`, `alias.parent` and `alias.class` for bad values.
    """
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _NAMES and name not in found and (value := value.strip(b" \t")):
            found[name] = value
    if not found:
        return None
    for family in FAMILIES:
        session = _id(found, family.session, "alias.session", dropped)
        if session is not None:
            return _markers(session, family, found, dropped)
    return None


def _markers(
    session: str, family: Family, found: Mapping[bytes, bytes], dropped: list[str]
) -> Markers:
    parent = _id(found, family.parent, "alias.parent", dropped)
    kind = None
    if family.kind in found:
        kind = family.kinds.get(foreign_text(found[family.kind]) or "")
        if kind is None:
            dropped.append("alias.class")
    is_last = found.get(family.last, b"").lower() == b"true"
    turn = Turn(kind=kind, next="end" if is_last else None)
    return Markers(session, parent if parent != session else None, turn=turn)


def _id(
    found: Mapping[bytes, bytes], names: tuple[bytes, ...], kind: str, dropped: list[str]
) -> str | None:
    for name in names:
        if name in found:
            value = foreign_id(foreign_text(found[name]))
            if value is None:
                dropped.append(kind)
            return value
    return None
