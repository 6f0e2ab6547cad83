"""What one API process has seen of its sessions and ranks. Bounded; the time is passed in.

It prefers and never decides what is right: exactness comes from the token that the client
echoes. Another API process sees other turns of the same sessions, so what is missing here is
no evidence: a home is taken to be lost only by the process that served the turn before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tenuto_vllm.placement.shelf import Shelf

HALF_LIFE_S = 7200.0
_MOST_LIVES = 30.0
# Of its context; what is left of a home below that is not worth going back for.
_LOST = 0.1


@dataclass(slots=True)
class Seat:
    """Where a session was served last.

    Attributes:
        rank: that served it.
        tokens: of its context: the last prompt.
        turn: index of the turn, None where it was not said.
        is_warm: the first token of a turn there is out.
        running: turns that have been sent and are not over.
        moved_s: when it last changed its rank; None if it never did.
    """

    rank: int
    tokens: int = 0
    turn: int | None = None
    is_warm: bool = False
    running: int = 0
    moved_s: float | None = None


class Ledger:
    """Seats of sessions, and of each rank what it holds, serves and has computed.

    Args:
        ranks: how many, >= 1.
        capacity: tokens of each rank's cache; None where that is not known, and then no home
            is ever taken to be lost.
        most_sessions: that are remembered; the longest unseen are forgotten first.
    """

    def __init__(
        self, ranks: int, capacity: int | None = None, *, most_sessions: int = 32_768
    ) -> None:
        self._capacity = capacity
        self._most = most_sessions
        self._seats: OrderedDict[str, Seat] = OrderedDict()
        self._shelves = [Shelf(capacity, most_sessions) for _ in range(ranks)]
        self._live = [0] * ranks
        self._homes = [0] * ranks
        self._computed = [0.0] * ranks
        self._since_s = 0.0

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self._shelves)

    def __len__(self) -> int:
        """Return how many sessions are remembered."""
        return len(self._seats)

    def seat(self, session: str) -> Seat | None:
        """Return where a session was served last, if that is remembered."""
        return self._seats.get(session)

    def seats(self) -> Iterator[tuple[str, Seat]]:
        """Return the sessions that are remembered with their seats, the last seen first."""
        return reversed(self._seats.items())

    def homes(self) -> Sequence[int]:
        """Return how many of the remembered sessions live on each rank, shape (ranks,)."""
        return self._homes

    def held(self, session: str, rank: int, keep: int | None = None) -> int:
        """Return how many tokens of a session's context a rank most likely has.

        Args:
            session: whose context.
            rank: any there is.
            keep: leading tokens of the context that count; None for all.
        """
        held = self._shelves[rank].held(session)
        return held if keep is None else min(held, keep)

    def has_lost(self, session: str, rank: int, turn: int | None) -> bool:
        """Whether a session's home most likely holds next to nothing of it any more."""
        return self.use(session, rank, turn) <= _LOST

    def use(self, session: str, rank: int, turn: int | None, keep: int | None = None) -> float:
        """Return what a session's home is good for: the share of its context that is there, 0..1.

        Args:
            session: whose home.
            rank: its home.
            turn: index of the turn that is to go there.
            keep: leading tokens of the context that the turn has too; None for all.
        """
        seat = self._seats.get(session)
        if seat is None or seat.rank != rank or not seat.is_warm or not seat.tokens:
            return 1.0
        tokens = seat.tokens if keep is None else min(keep, seat.tokens)
        was_here = turn is not None and seat.turn is not None and turn - seat.turn in {0, 1}
        if self._capacity is not None and was_here:
            tokens = min(tokens, self.held(session, rank))
        return tokens / seat.tokens

    def live(self) -> Sequence[int]:
        """Return the tokens of the contexts at home on each rank, shape (ranks,)."""
        return self._live

    def computed(self) -> Sequence[float]:
        """Return how much each rank has computed beside the others, shape (ranks,).

        What was computed two hours before counts half. The unit is a token at no certain time.
        """
        return self._computed

    def resize(self, ranks: int) -> None:
        """Follow an engine that has grown or shrunk; what is unchanged keeps its numbers."""
        while len(self._shelves) < ranks:
            self._shelves.append(Shelf(self._capacity, self._most))
            self._live.append(0)
            self._homes.append(0)
            self._computed.append(0.0)
        if len(self._shelves) > ranks:
            gone = [session for session, seat in self._seats.items() if seat.rank >= ranks]
            for session in gone:
                self.ended(session)
            for of_ranks in (self._shelves, self._live, self._homes, self._computed):
                del of_ranks[ranks:]

    def sent(self, session: str, rank: int, turn: int | None, now_s: float) -> None:
        """Note that a turn is on its way to a rank."""
        seat = self._seats.get(session)
        if seat is None:
            seat = self._seats[session] = Seat(rank)
            self._homes[rank] += 1
            if len(self._seats) > self._most:
                self.ended(next(iter(self._seats)))
        elif seat.rank != rank:
            self._live[seat.rank] -= seat.tokens
            self._live[rank] += seat.tokens
            self._homes[seat.rank] -= 1
            self._homes[rank] += 1
            seat.rank, seat.is_warm, seat.moved_s = rank, False, now_s
        seat.turn = turn
        seat.running += 1
        self._seats.move_to_end(session)

    def over(self, session: str) -> None:
        """Note that a turn that was sent is over, however it ended."""
        seat = self._seats.get(session)
        if seat is not None and seat.running:
            seat.running -= 1

    def begun(
        self, session: str, rank: int, tokens: int, now_s: float, found: int | None = None
    ) -> None:
        """Note that the first token of an answer is out: the rank has the prompt cached.

        Args:
            session: whose prompt it is.
            rank: that served it.
            tokens: length of the prompt.
            now_s: the time, never before that of an earlier call.
            found: tokens that the rank had cached; what it held of the session if None.
        """
        shelf = self._shelves[rank]
        found = shelf.held(session) if found is None else found
        weight = self._weight(now_s)
        self._computed[rank] += max(0, tokens - found) * weight
        shelf.used(session, tokens, found)
        seat = self._seats.get(session)
        if seat is not None and seat.rank == rank:
            self._live[rank] += tokens - seat.tokens
            seat.tokens, seat.is_warm = tokens, True

    def ended(self, session: str) -> None:
        """Forget a session: it has ended."""
        seat = self._seats.pop(session, None)
        if seat is not None:
            self._live[seat.rank] -= seat.tokens
            self._homes[seat.rank] -= 1

    def passed(self, rank: int, tokens: int, now_s: float) -> None:
        """Note that a prompt of no session has been computed.

        Args:
            rank: that served it.
            tokens: length of the prompt.
            now_s: the time, never before that of an earlier call.
        """
        self._computed[rank] += tokens * self._weight(now_s)
        self._shelves[rank].passed(tokens)

    def emptied(self, rank: int) -> None:
        """Note that a rank has lost its cache."""
        self._shelves[rank].clear()

    def _weight(self, now_s: float) -> float:
        """Return what a token counts now. It grows, so that nothing older needs to fade."""
        lives = (now_s - self._since_s) / HALF_LIFE_S
        if lives < _MOST_LIVES:
            return 2.0**lives
        self._computed = [tokens * 2.0**-lives for tokens in self._computed]
        self._since_s = now_s
        return 1.0
