"""Claude Code's session logs: a JSON object a line, subagents as sidechains. No text is kept.

| in the log                                   | in the trace                                  |
|----------------------------------------------|-----------------------------------------------|
| `sessionId`                                  | the run                                       |
| lines with one message id and request id     | one call: each of its lines repeats the usage |
| `isSidechain` with `agentId`                 | a child session of the main one               |
| a sidechain without `agentId` (older logs)   | a child session for each chain of parents     |
| `input_tokens` and both cache counts, summed | input tokens                                  |
| `cache_read_input_tokens`                    | cached tokens                                 |
| time of the line that the answer follows     | start; the log has no other                   |
| `tool_use` to its `tool_result`              | a tool of the call that brings the result     |
| messages on the chain of parents             | block ids; system prompt and tools are unseen |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tenuto.trace.assemble import assembled
from tenuto.trace.formats.claude_calls import calls_of
from tenuto.trace.formats.claude_rows import Entry
from tenuto.trace.lines import bad, lines
from tenuto.trace.model import Trace
from tenuto.trace.parse import validated
from tenuto.trace.problem import Problem, Tell

_SHAPE = re.compile(rb'"sessionId"\s*:')
_CHAIN = re.compile(rb'"(parentUuid|isSidechain|leafUuid|permissionMode)"\s*:')
_ENTRY = TypeAdapter(Entry)


def sniff(begin: bytes) -> bool:
    """Whether the first lines have Claude Code's ids."""
    return _SHAPE.search(begin) is not None and _CHAIN.search(begin) is not None


def read(path: Path, tell: Tell) -> Iterator[Trace]:
    """Yield a trace for each session id, named after it."""
    runs: dict[str, dict[str, tuple[int, Entry]]] = {}
    for line in lines(path, tell):
        try:
            entry = validated(_ENTRY, line.data)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            place = ".".join(map(str, fault["loc"]))
            what = f"not a line of Claude Code: {place}: {fault['msg']}"
            tell(bad(line, path.name, what, is_json=fault["type"] != "json_invalid"))
            continue
        if entry.session_id is None or entry.uuid is None:
            continue
        run = runs.setdefault(entry.session_id, {})
        if entry.uuid in run:
            what = f"{entry.uuid} stands in line {run[entry.uuid][0]} too; left out"
            tell(Problem(line.number, what, path.name))
        else:
            run[entry.uuid] = (line.number, entry)

    def say(line: int | None, what: str) -> None:
        tell(Problem(line, what, path.name))

    for run_id, entries in runs.items():
        if calls := calls_of(run_id, list(entries.values()), say):
            yield from assembled(calls, path.name, tell, source="claude-code")
