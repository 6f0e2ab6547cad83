"""What a script starts, seen by a program that only says how it was started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.deploy.test_files import DEPLOY

Ran = tuple[list[str], dict[str, str]]


def ran(folder: Path, script: str, program: str, *given: str, **env: str) -> Ran:
    """Run a script with a program that only says what it was started with: arguments, variables."""
    stub = folder / program
    say = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    stub.write_text(f"#!{sys.executable}\n{say}\n")
    stub.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    told = subprocess.run(
        ["sh", str(DEPLOY / script), *given],
        env={"PATH": path, **env},
        capture_output=True,
        check=True,
        text=True,
    )
    arguments, variables = json.loads(told.stdout)
    return arguments, variables


def valued(arguments: list[str]) -> dict[str, str]:
    """Return options as option → value, written apart or with `=`; empty for a switch."""
    apart = [
        part for one in arguments for part in (one.split("=", 1) if one.startswith("--") else [one])
    ]
    pairs = zip(apart, [*apart[1:], ""], strict=True)
    return {
        one: "" if value.startswith("-") else value for one, value in pairs if one.startswith("--")
    }


def allowed(said: dict[str, str], known: dict[str, set[str] | None]) -> None:
    """Fail unless a program has these options, with these values where it takes few."""
    assert said.keys() <= known.keys()
    assert [name for name, value in said.items() if value not in (known[name] or {value})] == []
