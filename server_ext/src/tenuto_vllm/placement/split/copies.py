"""What each node most likely has cached of each session."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from tenuto_vllm.placement.split.room import Room


class Copies:
    """A ledger of sessions and nodes, in tokens: whole blocks of the session's last context.

    A node that decoded a turn has its prompt and all it wrote but the last token, which was
    never fed back; a node that only prefilled has the prompt. It foretells a cache that evicts
    nothing, or one of the size that `sized` tells; `reported` and `lost` say where it was wrong.

    The order of calls within a turn is that of the events: `forked` or `edited` and `sent` when
    it is placed, `reported` and `prefilled` when its prompt is computed, `decoded` when it is
    answered. A node is any string that is the same each time, such as its URL. For one event
    loop, so without a lock.

    Args:
        block_size: tokens in a block of the servers' caches, >= 1.
        sessions: that are remembered; the longest unseen are forgotten first.
    """

    __slots__ = ("_block_size", "_most", "_rooms", "_sessions", "_shared")

    def __init__(self, block_size: int, sessions: int = 8192) -> None:
        self._block_size = block_size
        self._most = sessions
        self._sessions: OrderedDict[str, dict[str, int]] = OrderedDict()
        # Of what it began with, by node: its parent takes the room for it.
        self._shared: dict[str, dict[str, int]] = {}
        self._rooms: dict[str, Room] = {}

    def __len__(self) -> int:
        """Return how many sessions are remembered."""
        return len(self._sessions)

    @property
    def block_size(self) -> int:
        """Tokens in a block."""
        return self._block_size

    def of(self, session: str) -> Mapping[str, int]:
        """Return the tokens of a session's context on each node that has any; read only."""
        return self._sessions.get(session) or {}

    def floor(self, tokens: int) -> int:
        """Return the tokens of the whole blocks in so many, >= 0."""
        return max(0, tokens) // self._block_size * self._block_size

    def sized(self, node: str, capacity: int) -> None:
        """Say how many tokens a node's cache holds, before anything is noted of the node."""
        self._rooms[node] = Room(capacity)

    def expected(self, session: str, node: str, keep: int | None = None) -> int:
        """Return how many tokens of a session's next prompt a node should have cached.

        Args:
            session: whose prompt.
            node: that would serve it.
            keep: leading tokens of the last context that the prompt has too; None for all.
        """
        held = self.of(session).get(node, 0)
        return held if keep is None else min(held, self.floor(keep))

    def sent(self, session: str, node: str, prompt_tokens: int) -> None:
        """Note that a node is given a prompt: it takes room there from here on.

        The length may be estimated; `reported` takes it back where nothing was computed.
        """
        held = self._touched(session)
        self._takes(session, node, max(held.get(node, 0), self.floor(prompt_tokens)))

    def prefilled(self, session: str, node: str, prompt_tokens: int) -> None:
        """Note that a node has computed a prompt, and another goes on with it."""
        self._holds(session, node, prompt_tokens, prompt_tokens)

    def decoded(self, session: str, node: str, prompt_tokens: int, output_tokens: int) -> None:
        """Note that a node has answered a prompt, wherever the prompt was computed."""
        held = prompt_tokens + max(0, output_tokens - 1)
        self._holds(session, node, held, prompt_tokens)

    def edited(self, session: str, keep: int) -> None:
        """Note that the context was rewritten behind its first `keep` tokens."""
        self._cut(session, keep)

    def forked(self, child: str, parent: str, keep: int | None = None) -> None:
        """Note that a session begins with another's context.

        Args:
            child: that begins.
            parent: whose context it is.
            keep: leading tokens of that context that they share; None for all.
        """
        held = self._sessions.get(parent)
        if not held or child == parent:
            return
        theirs = self._touched(child)
        parents = self._shared.setdefault(child, {})
        for node, tokens in held.items():
            parents[node] = tokens if keep is None else min(tokens, self.floor(keep))
            theirs[node] = max(theirs.get(node, 0), parents[node])

    def reported(self, session: str, node: str, cached_tokens: int) -> None:
        """Note what an answer says that the node which prefilled it had cached before."""
        held, tokens = self._touched(session), self.floor(cached_tokens)
        room, less = self._rooms.get(node), held.get(node, 0) - tokens
        if room is not None and less > 0:
            room.gone(session, less)
        if less < 0:
            self._takes(session, node, tokens)
        elif tokens:
            held[node] = tokens
        else:
            held.pop(node, None)

    def lost(self, node: str) -> None:
        """Note that a node has restarted or emptied its cache."""
        for held in self._sessions.values():
            held.pop(node, None)
        for shared in self._shared.values():
            shared.pop(node, None)
        if node in self._rooms:
            self.sized(node, self._rooms[node].capacity)

    def forget(self, session: str) -> None:
        """Forget a session: it has ended."""
        for node in self._sessions.pop(session, ()):
            if node in self._rooms:
                self._rooms[node].forgotten(session)
        self._shared.pop(session, None)

    def _holds(self, session: str, node: str, tokens: int, prompt_tokens: int) -> None:
        """Set what a node has; of a longer, older context the others have no more than this one.

        A context that has become shorter was rewritten, though nobody said where.
        """
        self._touched(session)
        self._cut(session, prompt_tokens)
        self._takes(session, node, self.floor(tokens))

    def _takes(self, session: str, node: str, tokens: int) -> None:
        self._sessions[session][node] = tokens
        room = self._rooms.get(node)
        if room is None:
            return
        room.used(session, max(0, tokens - self._shared.get(session, {}).get(node, 0)))
        for other, lost in room.evicted():
            theirs = self._sessions.get(other)
            if theirs is not None and node in theirs:
                theirs[node] = self.floor(theirs[node] - lost)

    def _cut(self, session: str, tokens: int) -> None:
        most, held = self.floor(tokens), self._sessions.get(session, {})
        shared = self._shared.get(session, {})
        for node, has in held.items():
            if has > most:
                held[node] = most
                if node in self._rooms:
                    own = has - max(most, shared.get(node, 0))
                    self._rooms[node].left(session, max(0, own))
                if node in shared:
                    shared[node] = min(shared[node], most)

    def _touched(self, session: str) -> dict[str, int]:
        held = self._sessions.get(session)
        if held is None:
            held = self._sessions[session] = {}
            if len(self._sessions) > self._most:
                self.forget(next(iter(self._sessions)))
        else:
            self._sessions.move_to_end(session)
        return held
