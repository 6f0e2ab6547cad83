"""Where the messages of a prompt begin, told by its tokens. Pure.

A chat template begins each message with a special token: `<|im_start|>`, `<start_of_turn>`,
`<|user|>`. Which one is learnt from how the template renders a conversation of known texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

Chat = list[dict[str, str]]
Render = Callable[[Chat, bool], str]
Encode = Callable[[str], Sequence[int]]

_SYSTEM = {"role": "system", "content": "alpha"}
_CHAT = [
    {"role": "user", "content": "bravo"},
    {"role": "assistant", "content": "charlie"},
    {"role": "user", "content": "delta"},
]
# Of the families whose template is often given to the API server alone.
_KNOWN = (
    *("<|im_start|>", "<|start_header_id|>", "<|header_start|>", "<start_of_turn>"),
    *("<|start_of_role|>", "<|turn>", "<|start|>"),
)
# More than stands before the first message anywhere, as `[gMASK]<sop>` does.
_PREAMBLE = 8


class Roles(NamedTuple):
    """How the messages of one model's prompts begin.

    Attributes:
        starters: the tokens that begin a message.
        instructions: the same of the system prompt's messages, with the token that follows, None
            for any; empty where the template gives the system prompt no message of its own.
        opens_answer: a prompt ends with the beginning of the answer.
    """

    starters: frozenset[int]
    instructions: frozenset[tuple[int, int | None]]
    opens_answer: bool = True


def message_starts(ids: Sequence[int], roles: Roles) -> list[int]:
    """Return where messages begin, ascending.

    A system prompt that begins with no special token begins at 0.
    """
    found: list[int] = []
    for token in roles.starters:
        at = -1
        try:
            while True:
                at = ids.index(token, at + 1)
                found.append(at)
        except ValueError:
            continue
    found.sort()
    return [0, *found] if found and found[0] > _PREAMBLE else found


def message_ends(ids: Sequence[int], starts: Sequence[int], roles: Roles) -> list[int]:
    """Return where each message ends; the beginning of the answer is none."""
    return [*starts[1:]] if roles.opens_answer or not starts else [*starts[1:], len(ids)]


def system_end(ids: Sequence[int], starts: Sequence[int], roles: Roles) -> int:
    """Return where the system prompt ends, 0 where that cannot be told.

    Without a system prompt, and where it is a part of the first message, that message counts:
    it is the start that stays when a session is compacted.
    """
    for index, start in enumerate(starts):
        if _is_instruction(ids, start, roles):
            continue
        return starts[max(index, 1)] if len(starts) > 1 else 0
    return 0


def _is_instruction(ids: Sequence[int], start: int, roles: Roles) -> bool:
    token, after = ids[start], ids[start + 1] if start + 1 < len(ids) else None
    if token not in roles.starters:
        return True
    return (token, after) in roles.instructions or (token, None) in roles.instructions


def learn(render: Render, encode: Encode, added: Mapping[str, int]) -> Roles | None:
    """Learn from a chat template how messages begin; None where it does not tell.

    Args:
        render: makes a prompt of messages, with the beginning of an answer or without.
        encode: makes tokens of a part of a prompt.
        added: tokens that the tokenizer has beside its vocabulary, by their text.
    """
    try:
        return _from_template(render, encode, frozenset(added.values()))
    except Exception:
        # The template is a program of the model's: it may be absent or refuse what it likes.
        return _from_names(encode, added)


def _from_template(render: Render, encode: Encode, added: frozenset[int]) -> Roles:
    def parts(chat: Chat, opens_answer: bool = False) -> list[Sequence[int]]:
        """Return the tokens before, between and after the messages' texts."""
        left, found = render(chat, opens_answer), list[Sequence[int]]()
        for message in chat:
            part, left = left.split(message["content"], 1)
            found.append(encode(part))
        return [*found, encode(left)]

    before, to_answer, to_user, end = parts(_CHAT)
    closers = {*end, *parts(_CHAT[:2])[-1]}

    def openers(part: Iterable[int]) -> list[int]:
        return [token for token in part if token in added and token not in closers]

    starters = {openers(to_answer)[0], openers(to_user)[0]}
    opens_answer = not starters.isdisjoint(parts(_CHAT, True)[-1])
    inner = {*openers(to_answer), *openers(to_user), *before} - starters
    try:
        first, second = parts([_SYSTEM, *_CHAT])[:2]
    except Exception:
        first, second = (), ()
    if starters.isdisjoint(second):
        # The system prompt is refused, or becomes a part of the first message.
        return Roles(frozenset(starters), frozenset(), opens_answer)
    openings = {(token, after) for token, after in pairwise(first) if token in starters}
    own = [token for token in openers(first) if token not in inner]
    if not openings and own:
        starters.add(own[0])
        openings = {(own[0], None)}
    return Roles(frozenset(starters), frozenset(openings), opens_answer)


def _from_names(encode: Encode, added: Mapping[str, int]) -> Roles | None:
    try:
        starter = next(added[name] for name in _KNOWN if name in added)
        openings = {(starter, encode(word)[0]) for word in ("system", "developer")}
    except Exception:
        return None
    return Roles(frozenset({starter}), frozenset(openings))
