"""`tenuto-vllm`: what the extension makes of its settings, and what vLLM is started with."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tenuto_vllm.config import TABLE, ConfigError, Settings, read_settings, variable
from tenuto_vllm.flags import Advice, Flag, Side, advise
from tenuto_vllm.pd import command as pd

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_LEAST_LEASE_S = 6


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        arguments: without the program's name; those of the process if None.
    """
    parser = argparse.ArgumentParser(
        prog="tenuto-vllm", description="Session-aware placement and retention for vLLM."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    about = "print the settings in effect and where each comes from"
    settings = commands.add_parser("settings", help=about, description=f"{about.capitalize()}.")
    settings.set_defaults(run=_settings)
    about = "print what `vllm serve` is started with for a model, and why"
    flags = commands.add_parser(
        "flags", help=about, description=f"{about.capitalize()}. Needs neither vLLM nor a GPU."
    )
    flags.add_argument(
        "model",
        metavar="MODEL",
        help="a folder with a config.json, that file, or the name of a model that is in the "
        "local Hugging Face cache; nothing is downloaded",
    )
    flags.add_argument("--json", action="store_true", help="print one JSON object")
    _add_role(flags)
    flags.set_defaults(run=_flags)
    pd.add(commands)
    given = parser.parse_args(arguments)
    try:
        _print(given.run(given))
    except ConfigError as error:
        print(f"tenuto: {error}", file=sys.stderr)
        return 2
    return 0


def _add_role(flags: argparse.ArgumentParser) -> None:
    group = flags.add_argument_group("prefill and decode on servers of their own")
    group.add_argument("--role", choices=("prefill", "decode"), help="which of the two it is")
    group.add_argument(
        "--gpus", type=int, metavar="N", help="that the servers of this role have together"
    )
    group.add_argument(
        "--bidirectional",
        action="store_true",
        help="prefill fetches what only decode has; for both roles or none",
    )
    group.add_argument(
        "--lease",
        type=int,
        metavar="S",
        help="seconds for which prefill keeps what was not fetched (vLLM: 30); the same for both",
    )


def _print(lines: Iterable[str]) -> None:
    try:
        for line in lines:
            print(line, flush=True)
    except BrokenPipeError:
        # Whoever reads has read enough; nothing is left for the interpreter to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _settings(_: argparse.Namespace) -> list[str]:
    settings, sources = read_settings(os.environ)
    rows = [(variable(key), _text(key, settings), sources[key]) for key in TABLE]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"{name:{widths[0]}}  {value:{widths[1]}}  {source}" for name, value, source in rows]


def _text(key: str, settings: Settings) -> str:
    value = getattr(settings, key)
    if TABLE[key].is_secret:
        return "(hidden)" if value else ""
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def _flags(given: argparse.Namespace) -> list[str]:
    side = _side(given)
    advice = advise(_read(find_config(given.model, os.environ)), side)
    if side is not None and advice.kind == "no cache":
        raise ConfigError(
            "vLLM caches no prefix of a model without attention, so no turn is ever warm: "
            "prefill and decode stay together."
        )
    path = Path(given.model).expanduser()
    # `vllm serve` takes the folder of a configuration, and not its file.
    model = str(path.parent) if path.is_file() else given.model
    if given.json:
        words = ("flags", "environment")
        lists = {name: [flag._asdict() for flag in getattr(advice, name)] for name in words}
        return [json.dumps({"model": model, **advice._asdict(), **lists}, indent=1)]
    return _told(model, advice)


def _side(given: argparse.Namespace) -> Side | None:
    if given.role is None:
        for name in ("gpus", "bidirectional", "lease"):
            if getattr(given, name) not in (None, False):
                raise ConfigError(f"--{name} tells of a server for prefill or decode: add --role.")
        return None
    if given.gpus is not None and given.gpus < 1:
        raise ConfigError("--gpus is above 0.")
    if given.lease is not None and given.lease < _LEAST_LEASE_S:
        raise ConfigError(
            f"--lease is at least {_LEAST_LEASE_S} s: vLLM renews it after each sixth, in whole "
            "seconds."
        )
    return Side(given.role, given.gpus, given.bidirectional, given.lease)


def _told(model: str, advice: Advice) -> list[str]:
    def word(flag: Flag) -> str:
        if not flag.name.startswith("-"):
            return f"{flag.name}={shlex.quote(flag.value)}"
        return f"{flag.name} {shlex.quote(flag.value)}" if flag.value else flag.name

    def needed(flags: tuple[Flag, ...]) -> list[str]:
        return [word(flag) for flag in flags if flag.is_needed]

    command = [*needed(advice.environment), f"vllm serve {shlex.quote(model)}"]
    return [
        f"# {advice.role + ': ' if advice.role else ''}{advice.layers}",
        " \\\n    ".join([" ".join(command), *needed(advice.flags)]),
        "",
        *(
            f"{word(flag)}\n    {'' if flag.is_needed else 'optional: '}{flag.why}"
            for flag in (*advice.environment, *advice.flags)
        ),
        *(f"\n{note}" for note in advice.notes),
    ]


def find_config(model: str, environ: Mapping[str, str]) -> Path:
    """Return the path of a model's `config.json`.

    Raises:
        ConfigError: there is none on this machine.
    """
    path = Path(model).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        if (path / "config.json").is_file():
            return path / "config.json"
        raise ConfigError(f"{model} has no config.json.")
    cache = _cache(environ)
    if _HUB_ID.fullmatch(model):
        folder = cache / f"models--{model.replace('/', '--')}"
        try:
            commit = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            commit = ""
        if commit and (found := folder / "snapshots" / commit / "config.json").is_file():
            return found
    raise ConfigError(
        f"{model} is neither a folder, nor a file, nor a model in {cache}; nothing is downloaded "
        f"here. `hf download {shlex.quote(model)} config.json` brings a model's configuration."
    )


def _cache(environ: Mapping[str, str]) -> Path:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(name):
            return Path(environ[name]).expanduser()
    home = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(environ.get("HF_HOME") or f"{home}/huggingface").expanduser() / "hub"


def _read(path: Path) -> Mapping[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {type(error).__name__}.") from error
    if not isinstance(told, dict):
        raise ConfigError(f"{path} is no model's configuration: it holds no JSON object.")
    return told  # pyright: ignore[reportUnknownVariableType]


if __name__ == "__main__":
    sys.exit(main())
