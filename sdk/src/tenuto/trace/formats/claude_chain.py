"""What stands above each line of a Claude Code log: its chain of parents, walked once."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from tenuto.trace.cut import Cut, cut_on
from tenuto.trace.draft import Say
from tenuto.trace.formats.claude_rows import Entry
from tenuto.trace.formats.text import canonical, seconds_of
from tenuto.trace.runs import Runs


class Placed(NamedTuple):
    """A line of the log, its number in the file and its place in the order of the log."""

    place: int
    line: int
    entry: Entry


class Node(NamedTuple):
    """A message with all before it, as a prompt has them.

    Attributes:
        entry: the message's line.
        before: the message before it.
        cut: its own blocks, and where those of the next begin.
        latest_s: latest time of it and all before it; None where no line says one.
    """

    entry: Entry
    before: Node | None
    cut: Cut
    latest_s: float | None


class Chains:
    """The chains of a session, each message of which is cut once."""

    def __init__(self, log: Sequence[Placed], say: Say) -> None:
        self._say = say
        self._by_id = {one.entry.uuid: one for one in log if one.entry.uuid}
        self._results = _results(log)
        self._nodes: dict[str, Node] = {}
        self._roots: dict[str, Entry | None] = {}
        self._tell_missing(log)

    def prompt(self, answer: Placed) -> Node | None:
        """Return the last message of what an answer had for a prompt; None for no message.

        Of tools that ran at once only one result stands on the chain of parents; the others
        hang beside it, each on the line of the answer that called its tool.
        """
        for one in self._above(answer, self._nodes):
            uuid, parent = one.entry.uuid or "", one.entry.parent_uuid
            before = self._beside(self._node(parent), answer, uuid)
            self._nodes[uuid] = _node(before, one.entry)
        return self._beside(self._node(answer.entry.parent_uuid), answer)

    def root(self, placed: Placed) -> Entry:
        """Return the first line of a sidechain, by the chain of one of its lines."""
        for one in self._above(placed, self._roots):
            above = self._roots.get(one.entry.parent_uuid or "")
            self._roots[one.entry.uuid or ""] = above or (
                one.entry if one.entry.is_sidechain else None
            )
        return self._roots.get(placed.entry.parent_uuid or "") or placed.entry

    def _node(self, uuid: str | None) -> Node | None:
        return None if uuid is None else self._nodes.get(uuid)

    def _above(self, placed: Placed, known: Container[str]) -> list[Placed]:
        """Return what stands above a line and is not known, first to last."""
        above: list[Placed] = []
        seen = {placed.entry.uuid}
        at = placed
        while (uuid := at.entry.parent_uuid) and uuid not in known and uuid in self._by_id:
            if uuid in seen:
                self._say(at.line, f"line {uuid} is above itself; cut there")
                break
            seen.add(uuid)
            at = self._by_id[uuid]
            above.append(at)
        return above[::-1]

    def _beside(self, node: Node | None, answer: Placed, on_chain: str = "") -> Node | None:
        """Return a message followed by the results that hang on it and came before an answer."""
        if node is None or node.entry.type != "assistant":
            return node
        for one in self._results.get(node.entry.uuid or "", ()):
            if one.place < answer.place and one.entry.uuid != on_chain:
                node = _node(node, one.entry)
        return node

    def _tell_missing(self, log: Sequence[Placed]) -> None:
        told: set[str] = set()
        for one in log[1:]:
            parent = one.entry.parent_uuid
            if parent is not None and parent not in self._by_id and parent not in told:
                told.add(parent)
                self._say(one.line, f"its parent {parent} is not there; taken as a first line")


def back_from(node: Node | None) -> Iterator[Entry]:
    """Yield the lines of a prompt, last to first."""
    while node is not None:
        yield node.entry
        node = node.before


def runs_to(node: Node | None) -> Runs:
    """Return the block ids of a prompt."""
    runs: list[tuple[int, int]] = []
    while node is not None:
        runs.extend(reversed(node.cut.runs))
        node = node.before
    return tuple(reversed(runs))


def in_order(log: Sequence[tuple[int, Entry]], say: Say) -> list[Placed]:
    """Return a session's lines in the order in which they were written.

    A program writes a line behind its parent. Where one stands before it, the file was put
    together anew, and the times tell the order.
    """
    places = {entry.uuid: place for place, (_, entry) in enumerate(log)}
    early = (
        number
        for place, (number, entry) in enumerate(log)
        if places.get(entry.parent_uuid, -1) > place
    )
    number = next(early, None)
    ordered = list(log)
    if number is not None:
        say(number, "stands before its parent; the session's lines are put in the order of time")
        ordered.sort(key=lambda one: seconds_of(one[1].timestamp) or 0.0)
    return [Placed(place, number, entry) for place, (number, entry) in enumerate(ordered)]


def _node(before: Node | None, entry: Entry) -> Node:
    message = entry.message
    items = [canonical([message.role, message.content])] if message else []
    done = Cut() if before is None else before.cut._replace(runs=())
    times = (before.latest_s if before else None, seconds_of(entry.timestamp))
    latest_s = max((at for at in times if at is not None), default=None)
    return Node(entry, before, cut_on(done, items), latest_s)


def _results(log: Sequence[Placed]) -> Mapping[str, list[Placed]]:
    """Return the lines with tool results, by the line of the answer that called the tool."""
    found: dict[str, list[Placed]] = {}
    for one in log:
        if one.entry.parent_uuid and any(p.get("type") == "tool_result" for p in one.entry.parts):
            found.setdefault(one.entry.parent_uuid, []).append(one)
    return found
