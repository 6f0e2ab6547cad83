"""Where each prompt stands: which answer it continues, which tool call started it.

Kept by the server while it records, since its script goes by the same.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from tenuto.conformance.captured import Place
from tenuto.conformance.marks import answer_name
from tenuto.conformance.prompts import Prompt


class _Answer(NamedTuple):
    number: int
    row: int
    depth: int
    rounds: int
    started_by: tuple[int, int] | None


class Histories:
    """The answers given so far, by name."""

    def __init__(self) -> None:
        self._answers: dict[str, _Answer] = {}
        self._tries: Counter[str] = Counter()
        self._repeats: Counter[str] = Counter()
        self._rows: dict[str, int] = {}
        self._conversations: dict[str, str] = {}

    def place(self, prompt: Prompt, conversation: Any = None) -> Place:
        """Return where a prompt stands, and count it.

        Args:
            prompt: the prompt.
            conversation: the server-held conversation that it names, if any.
        """
        names = [*prompt.answers, self._conversations.get(str(conversation), "")]
        known = [self._answers[name] for name in names if name in self._answers]
        tries = self._tries[prompt.digest]
        self._tries[prompt.digest] += 1
        if known:
            # A history repeats all its answers; the last is the one that it goes on from.
            last = max(known, key=lambda answer: (answer.depth, answer.number))
            rounds = last.rounds + 1 if prompt.after_tool else 0
            return Place(last.number, last.started_by, last.row, last.depth + 1, rounds, tries)
        row = self._rows.setdefault(prompt.digest, len(self._rows))
        return Place(None, self._starter(prompt), row, 0, 0, tries)

    def answer(self, number: int, prompt: Prompt, place: Place, conversation: Any = None) -> str:
        """Note that a request is answered; return the answer's name, for its marks."""
        name = answer_name(prompt.digest, self._repeats[prompt.digest])
        self._repeats[prompt.digest] += 1
        self._answers[name] = _Answer(
            number, place.row, place.depth, place.rounds, place.started_by
        )
        if conversation is not None:
            self._conversations[str(conversation)] = name
        return name

    def _starter(self, prompt: Prompt) -> tuple[int, int] | None:
        for mark in prompt.calls:
            if mark.call is not None and mark.answer in self._answers:
                return self._answers[mark.answer].number, mark.call
        return None
