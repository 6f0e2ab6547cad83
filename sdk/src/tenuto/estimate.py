"""What is known of a turn before it is sent: what opened it, and its tokens. Pure."""

from __future__ import annotations

from typing import Any

from tenuto.prompt import Prompt, goes_on, kept_items, share
from tenuto.sessions import Opened
from tenuto.shape import is_list, is_object
from tenuto.turn import Phase, has_history, is_handoff, phase_of

# Of a prompt that the server holds only the addition is seen, so that no ratio is learned.
_TOKENS_A_BYTE = 0.25


def kept_of(prompt: Prompt | None, opened: Opened) -> int | None:
    """Return how many items a prompt keeps of the last one's, None when it goes on from it."""
    if prompt is None or prompt.stateful or goes_on(opened.before, prompt):
        return None
    return kept_items(opened.before, prompt)


def tokens(
    prompt: Prompt | None, opened: Opened, kept: int | None, size: int
) -> tuple[int | None, int, int | None]:
    """Estimate the tokens of a turn that follows an answer with usage: (append, prefix, keep).

    Args:
        prompt: the turn's.
        opened: what was before it.
        kept: as `kept_of` returns it.
        size: of the turn's body, bytes.

    Returns:
        `prefix`: prompt and output of the last answered turn, as the server counted them.
        `append`: tokens that this prompt adds to it, by the session's own tokens for each
        byte of body. `keep`: where the prompt does not go on from the last one, how many
        tokens from the start are unchanged. None where nothing is known.
    """
    prompt_tokens, output_tokens, body_bytes = opened.usage or (0, 0, 0)
    prefix = prompt_tokens + output_tokens
    if prompt is None or not size:
        return None, prefix, None
    if prompt.stateful:
        return round(size * _TOKENS_A_BYTE), prefix, None
    ratio = prompt_tokens / body_bytes if body_bytes else _TOKENS_A_BYTE
    if kept is None:
        return max(0, round((size - body_bytes) * ratio) - output_tokens), prefix, None
    whole = size * ratio
    keep = round(whole * share(prompt, kept))
    return max(0, round(whole) - keep), prefix, keep


def phase(
    prompt: Prompt | None, opened: Opened, kept: int | None, body: Any, *, is_resumable: bool
) -> Phase | None:
    """Infer what opened a turn.

    | the turn | phase |
    |---|---|
    | answers a call of a tool `transfer_to_…` | `handoff` |
    | is the process's first of the session, with an earlier one before it, or with a model's words in a prompt of a run that has a name | `resume` |
    | is the session's first | `start` |
    | has fewer messages than the last, and keeps none that a model said | `compact` |
    | answers a tool's call while a child session has called | `child` |
    | ends in a tool's result, a user's words or a compaction | `tool`, `user`, `compact` |
    | ends in anything else | None |
    """  # noqa: E501 - a table row
    last = prompt.last if prompt is not None else None
    seen = phase_of(last) if prompt is not None else None
    if seen == "tool" and is_handoff(body, last):
        return "handoff"
    if opened.n == 0:
        return "resume" if is_resumable and has_history(body) else "start"
    if opened.is_first:
        return "resume"
    if kept is not None and prompt is not None and _is_compacted(prompt, opened, kept, body):
        return "compact"
    return "child" if seen == "tool" and opened.child_ran else seen


def _is_compacted(prompt: Prompt, opened: Opened, kept: int, body: Any) -> bool:
    if len(prompt.items) >= opened.before.items:
        return False
    items = body.get("messages", body.get("input")) if is_object(body) else None
    if not is_list(items):
        return False
    # Instructions stand before the items and are no item of the list.
    before = len(prompt.items) - len(items)
    return not has_history({"messages": items[: max(0, kept - before)]})
