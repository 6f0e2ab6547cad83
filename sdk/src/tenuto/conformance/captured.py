"""One request as it came over the wire, and how it was answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tenuto.conformance.prompts import Prompt

Origin = Literal["first", "second"]
# What became of a request: `answered`, or the trouble that the script made instead.
Outcome = Literal["open", "answered", "500", "429", "drop", "redirect"]
FAILURES = frozenset({"500", "429", "drop"})


class Place(NamedTuple):
    """Where a prompt stands among the others, by the marks that it repeats.

    Attributes:
        continues: number of the answered request whose answer it goes on from.
        started_by: (number of the answered request, call) of the tool call that started it.
        row: which opening of a history it descends from, in order of arrival.
        depth: how many answers lie before it.
        rounds: tool results that were given since the user last spoke.
        tries: how many requests with this prompt came before.
    """

    continues: int | None
    started_by: tuple[int, int] | None
    row: int
    depth: int
    rounds: int
    tries: int


@dataclass(slots=True)
class Request:
    """One HTTP request. Not frozen: it is numbered on arrival and completed later.

    Attributes:
        number: 1, 2, … in order of arrival, over both origins.
        origin: which of the two servers it came to.
        connection: 1, 2, …: requests of one number came over one connection.
        at_s: seconds from the start of the recording until the request was read.
        headers: (name in lower case, value) in order.
        body: the JSON of the body, None when there is none.
        prompt: None when the request runs no model.
        hop_of: number of the request that was redirected here.
        answered_s: when the head of the answer was sent, on the clock of `at_s`.
        end_s: when the answer was sent whole.
        token: the affinity token that the answer gave.
        usage_tokens: prompt and output tokens that the answer told.
        was_garbled: the answer's own markers were malformed on purpose.
    """

    number: int
    origin: Origin
    connection: int
    at_s: float
    method: str
    path: str
    query: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: Any = None
    prompt: Prompt | None = None
    place: Place | None = None
    hop_of: int | None = None
    outcome: Outcome = "open"
    status: int | None = None
    answered_s: float = float("inf")
    end_s: float = float("inf")
    token: str | None = None
    usage_tokens: int | None = None
    was_garbled: bool = False
    _texts: dict[str, str] = field(default_factory=dict[str, str], repr=False)

    def header(self, name: str) -> str | None:
        """Return the first value of a header, by its name in lower case."""
        if not self._texts:
            for key, value in reversed(self.headers):
                self._texts[key.decode("latin-1")] = value.decode("latin-1").strip(" \t")
        return self._texts.get(name)

    @property
    def failed(self) -> bool:
        """Tell whether the script refused an answer."""
        return self.outcome in FAILURES
