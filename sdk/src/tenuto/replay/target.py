"""Where a replay goes: a server's URL, or an embedded engine that is started for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_STOP_LIMIT_S = 10.0
_LISTENING = "listening on "
_LEAST = {"ranks": 1, "blocks": 2}


@dataclass(frozen=True, slots=True)
class Embedded:
    """An embedded engine, in a process of its own; see `python -m tenuto_vllm.embedded`.

    Attributes:
        ranks: data-parallel ranks.
        blocks: cache blocks of each rank.
        block_size: tokens in a block.
        placement: where calls go; None is the engine's default.
        retention: whose blocks are evicted first; None is the engine's default.
        extension: whether the server extension is in front of it.
        latency: file of a latency model.
        max_model_len: longest prompt and output together, in tokens.
    """

    ranks: int = 2
    blocks: int = 4096
    block_size: int = 16
    placement: str | None = None
    retention: str | None = None
    extension: bool = False
    latency: str | None = None
    max_model_len: int = 32768

    def arguments(self) -> list[str]:
        """Return the engine's command line, without the program."""
        given: dict[str, object] = {
            "--ranks": self.ranks,
            "--blocks": self.blocks,
            "--block-size": self.block_size,
            "--max-model-len": self.max_model_len,
            "--placement": self.placement,
            "--retention": self.retention,
            "--latency": self.latency,
            "--middleware": "tenuto_vllm.TurnMiddleware" if self.extension else None,
        }
        said = [
            part
            for name, value in given.items()
            if value is not None
            for part in (name, f"{value}")
        ]
        return ["--port", "0", "--exit-with-stdin", *said]

    def settings(self) -> dict[str, Any]:
        """Return what a result file's header says of the engine.

        Raises:
            OSError: the latency model cannot be read.
            ValueError: it is not JSON.
        """
        latency = Path(self.latency).read_text(encoding="utf-8") if self.latency else None
        return {
            "ranks": self.ranks,
            "tokens_per_rank": (self.blocks - 1) * self.block_size,
            "placement": self.placement or "default",
            "retention": self.retention or "default",
            "block_size": self.block_size,
            "extension": self.extension,
            **({} if latency is None else {"latency": json.loads(latency)}),
        }

    def with_options(self, text: str) -> Embedded:
        """Return the same with options such as `placement=round-robin,ranks=4`.

        Raises:
            ValueError: an option that there is not, or a value that is none.
        """
        changed: dict[str, Any] = {}
        for part in text.split(","):
            name, has_value, value = part.strip().partition("=")
            if name == "extension":
                if value not in {"", "yes", "no"}:
                    raise ValueError(f"extension is yes or no, got {value!r}")
                changed[name] = value != "no"
            elif name in _LEAST and value.isascii() and value.isdigit():
                changed[name] = int(value)
                if changed[name] < _LEAST[name]:
                    raise ValueError(f"{name} is {value}; the least is {_LEAST[name]}")
            elif name in {"placement", "retention", "latency"} and has_value:
                changed[name] = value
            else:
                known = "ranks, blocks, placement, retention, latency, extension"
                raise ValueError(f"no option {part!r} of an embedded engine; there are {known}")
        return replace(self, **changed)


@contextmanager
def started(engine: Embedded) -> Generator[str]:
    """Start an engine, yield its root URL, and stop it.

    Raises:
        RuntimeError: it does not start; it has said why on stderr.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "tenuto_vllm.embedded", *engine.arguments()],
        # Never written to: it closes with this process, however that ends, and the engine ends.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # A Ctrl-C at the terminal is for us: the engine is needed until we have stopped.
        start_new_session=True,
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            if not line.startswith(_LISTENING):
                raise RuntimeError("the embedded engine did not start")
            yield line.removeprefix(_LISTENING).strip()
        finally:
            process.terminate()
            try:
                process.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
