"""The tools of the demo's tool caller: real, read-only, on this repository's own files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

# One tool answer is at most this long: a dozen of them fit the demo's 16k context.
OUTPUT_CHARS = 700
_COMMAND_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of one of the three tools, as a model would write it."""

    name: str
    arguments: dict[str, str]

    @property
    def arguments_json(self) -> str:
        """The arguments as the chat API carries them."""
        return json.dumps(self.arguments, sort_keys=True)


def read_file(path: str, start: str = "1") -> str:
    """Return a file of the repository from line `start` on."""
    lines = _inside(path).read_text(encoding="utf-8").splitlines()
    return "\n".join(lines[int(start) - 1 :])


def grep(pattern: str, path: str) -> str:
    """Return the lines below a folder's Python files that match a regular expression."""
    wanted = re.compile(pattern)
    found: list[str] = []
    for file in sorted(_inside(path).rglob("*.py")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if wanted.search(line):
                found.append(f"{file.relative_to(ROOT).as_posix()}:{number}: {line.strip()}")
    return "\n".join(found) or "no match"


def run_command(module: str, path: str) -> str:
    """Run a read-only module of the standard library on a file: `ast` or `tokenize`."""
    if module not in {"ast", "tokenize"}:
        message = f"module {module} is not allowed; use ast or tokenize"
        raise ValueError(message)
    command = [sys.executable, "-m", module, str(_inside(path))]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False, cwd=ROOT
    )
    return f"exit status {done.returncode}\n{done.stdout}{done.stderr}"


_TOOLS = {"read_file": read_file, "grep": grep, "run_command": run_command}


def call_tool(call: ToolCall) -> str:
    """Run a tool and return its answer, cut to `OUTPUT_CHARS`; an error is an answer too."""
    try:
        output = _TOOLS[call.name](**call.arguments)
    except (KeyError, OSError, TypeError, ValueError, subprocess.TimeoutExpired) as error:
        output = f"error: {type(error).__name__}: {error}"
    # No file system path of this machine goes into a prompt.
    output = output.replace(f"{ROOT}/", "").replace(str(ROOT), ".")
    return output if len(output) <= OUTPUT_CHARS else output[: OUTPUT_CHARS - 6] + "\n[cut]"


def schemas() -> list[dict[str, Any]]:
    """Return the tools in the form that `chat.completions.create(tools=...)` takes."""
    return [
        _schema("read_file", read_file, path="file of the repository", start="first line"),
        _schema("grep", grep, pattern="regular expression", path="folder"),
        _schema("run_command", run_command, module="ast or tokenize", path="Python file"),
    ]


def _schema(name: str, tool: object, **arguments: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": tool.__doc__ or name,
            "parameters": {"type": "object", "properties": properties},
        },
    }


def _inside(path: str) -> Path:
    """Return a path of the repository.

    Raises:
        ValueError: when the path leads out of it.
    """
    full = (ROOT / path).resolve()
    if not full.is_relative_to(ROOT):
        message = f"{path} is outside of the repository"
        raise ValueError(message)
    return full
