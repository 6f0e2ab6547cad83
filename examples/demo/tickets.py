"""What the demo's agent programs work on: three tickets, each with a fixed plan of tool calls.

The served model has random weights and cannot choose tools, so the script does. Its text
still goes into the history, where a real model's would.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from examples.demo.tools import ToolCall


@dataclass(frozen=True, slots=True)
class Ticket:
    """One task: its name, what is asked, and the tool calls of each round."""

    name: str
    question: str
    rounds: tuple[tuple[ToolCall, ...], ...]

    def first(self, rounds: int) -> Ticket:
        """Return the ticket with only its first rounds."""
        return replace(self, rounds=self.rounds[:rounds])


def _read(path: str, start: int = 1) -> ToolCall:
    return ToolCall("read_file", {"path": path, "start": str(start)})


def _grep(pattern: str, path: str) -> ToolCall:
    return ToolCall("grep", {"pattern": pattern, "path": path})


def _run(module: str, path: str) -> ToolCall:
    return ToolCall("run_command", {"module": module, "path": path})


_SDK = "sdk/src/tenuto"
_SERVER = "server_ext/src/tenuto_vllm"

TICKETS = (
    Ticket(
        "headers",
        "A user asks which headers the client adds to a request, how long they may be, and "
        "what happens to a header that the caller has set himself. Answer with file and line.",
        (
            (_grep(r"X-", _SDK), _read(f"{_SDK}/_wire.py"), _grep(r"_BYTES\b", _SDK)),
            (
                _grep(r"def wrap|def _stamp", _SDK),
                _read(f"{_SDK}/openai.py"),
                _run("ast", f"{_SDK}/errors.py"),
            ),
            (
                _grep(r"decided", _SDK),
                _read(f"{_SDK}/_wire.py", 140),
                _run("tokenize", f"{_SDK}/__init__.py"),
            ),
        ),
    ),
    Ticket(
        "placement",
        "A session's second turn was served by another rank. Find where the rank of a request "
        "is chosen, which loads it is given, and in which cases it may leave its home.",
        (
            (
                _grep(r"class Placement|def place", _SERVER),
                _read(f"{_SERVER}/model.py"),
                _run("ast", f"{_SERVER}/model.py"),
            ),
            (
                _grep(r"loads", _SERVER),
                _grep(r"rank", f"{_SERVER}/asgi"),
                _read(f"{_SERVER}/_wire.py", 60),
            ),
            (
                _grep(r"moved|home", _SERVER),
                _read(f"{_SERVER}/model.py", 30),
                _run("tokenize", f"{_SERVER}/__init__.py"),
            ),
        ),
    ),
    Ticket(
        "replay",
        "The replayed prompts of a recorded session have to share exactly the blocks that the "
        "recording shared. Find how block ids become text and whether two ids can collide.",
        (
            (
                _grep(r"def block_text|salt", f"{_SDK}/replay"),
                _read(f"{_SDK}/replay/text.py"),
                _run("ast", f"{_SDK}/trace/scale.py"),
            ),
            (
                _read(f"{_SDK}/trace/model.py"),
                _grep(r"block_size", _SDK),
                _read(f"{_SDK}/replay/drive.py", 60),
            ),
            (
                _grep(r"ValueError", f"{_SDK}/trace"),
                _read(f"{_SDK}/trace/weka.py", 40),
                _run("tokenize", f"{_SDK}/trace/scale.py"),
            ),
        ),
    ),
)
