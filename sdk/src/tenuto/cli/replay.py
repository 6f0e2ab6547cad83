"""`tenuto replay`: play traces against servers, repeat by repeat, into result files."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

from openai import OpenAI, OpenAIError
from tqdm import tqdm

from tenuto.cli.replay_options import parser
from tenuto.cli.replay_report import report
from tenuto.dialects import named
from tenuto.errors import ConfigError
from tenuto.replay.series import How, Side, play_series
from tenuto.replay.target import Embedded, started
from tenuto.results import Header, TurnResult
from tenuto.trace import Trace, digest, read, scale

_INTERRUPTED = 130
_TOKENS_PER_RANK = 1_000_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status.

    0: every call was answered; 1: some were not, or it could not begin; 130: interrupted.

    Raises:
        ConfigError: there is no such dialect.
    """
    given = parser().parse_args(argv)
    try:
        identity = _identity(given)
        traces = _traces(given)
        with ExitStack() as engines:
            sides = _sides(traces, given, identity, engines)
            is_whole = _play(traces, sides, given)
    except ConfigError:
        raise
    except (OSError, ValueError, RuntimeError, OpenAIError) as error:
        print(f"tenuto replay: {error}", file=sys.stderr)
        return 1
    turns = [turn for side in sides for turn in (*side.kept, *side.done)]
    report(sides, as_json=given.json, route=given.route)
    if not is_whole:
        print("tenuto replay: interrupted; --resume takes it up", file=sys.stderr)
        return _INTERRUPTED
    return 1 if any(turn.error for turn in turns) else 0


def _play(traces: Sequence[Trace], sides: Sequence[Side], given: argparse.Namespace) -> bool:
    """Return whether it came to its end."""
    how = How(
        route=given.route,
        vocab=given.vocab if given.prompt_form == "tokens" else None,
        cache_bust=given.cache_bust,
        reset=given.reset,
        fail_fast=given.fail_fast,
        new_connections=given.new_connections,
        timeout_s=given.timeout,
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
    )
    repeats = range(given.repeat)
    calls = sum(
        trace.requests
        for side in sides
        for repeat in repeats
        for trace in side.missing(traces, repeat)
    )
    with tqdm(total=calls, unit="call", disable=given.quiet or None, file=sys.stderr) as bar:

        def on_turn(side: Side, turn: TurnResult) -> None:
            bar.set_description(f"{side.header.name} {turn.repeat}", refresh=False)
            bar.update()

        async def run() -> None:
            playing = asyncio.current_task()
            # Not on every system, and not outside of the main thread.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                if playing is not None:
                    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
            await play_series(traces, sides, how, on_turn)

        try:
            asyncio.run(run())
        except (KeyboardInterrupt, asyncio.CancelledError):
            return False
        except Exception as error:
            if not (given.fail_fast and any(turn.error for side in sides for turn in side.done)):
                raise
            print(f"tenuto replay: stopped by {type(error).__name__}: {error}", file=sys.stderr)
    return True


def _traces(given: argparse.Namespace) -> list[Trace]:
    traces: list[Trace] = []
    for path in given.traces:
        for trace in read(path):
            if given.limit is not None and len(traces) == given.limit:
                break
            if not given.id or trace.id in given.id:
                traces.append(scale(trace, given.factor))
    if not traces:
        raise ValueError("no trace in what was given")
    if len({trace.id for trace in traces}) < len(traces):
        raise ValueError("two traces have one id")
    return traces


def _sides(
    traces: Sequence[Trace], given: argparse.Namespace, identity: str | None, engines: ExitStack
) -> list[Side]:
    names = _names(given)
    paths = _paths(given.out, names)
    if not given.resume and (there := [path.name for path in paths if path.exists()]):
        raise ValueError(f"{', '.join(there)} is there; --resume takes it up")
    sides: list[Side] = []
    for place, (target, name, path) in enumerate(zip(given.target, names, paths, strict=True)):
        engine = _embedded(target, traces, given)
        url = engines.enter_context(started(engine)) if engine is not None else _root(target)
        header = _header(
            traces,
            given,
            name=name,
            identity=identity,
            model=_model(url, given),
            engine=engine,
            url=url,
        )
        block_size = engine.block_size if engine is not None else given.block_size
        side = Side(header, url, path, block_size, place)
        if given.resume and path.exists():
            side.take_up(traces)
        path.parent.mkdir(parents=True, exist_ok=True)
        sides.append(side)
    return sides


def _header(
    traces: Sequence[Trace],
    given: argparse.Namespace,
    *,
    name: str,
    identity: str | None,
    model: str,
    engine: Embedded | None,
    url: str,
) -> Header:
    ranks = engine.ranks if engine is not None else given.ranks
    return Header(
        name=name,
        traces={trace.id: digest(trace) for trace in traces},
        seed=given.seed,
        identity=identity,
        mode=given.mode,
        time_scale=given.time_scale,
        gap_cap_s=given.gap_cap,
        live_sessions=given.live_sessions,
        concurrency=given.concurrency,
        max_output_tokens=given.max_output,
        repeats=given.repeat,
        target="embedded" if engine is not None else url,
        model=model,
        ranks=ranks,
        gpus=float(ranks) if given.gpus is None and ranks else given.gpus,
        engine=engine.settings() if engine is not None else {},
        machine=f"{platform.machine()} {platform.system()} Python {platform.python_version()}",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _identity(given: argparse.Namespace) -> str | None:
    if given.unmarked:
        return None
    identity: str = given.dialect or os.environ.get("TENUTO_DIALECT") or "vllm"
    named(identity)
    return identity


def _embedded(target: str, traces: Sequence[Trace], given: argparse.Namespace) -> Embedded | None:
    kind, _, options = target.partition(":")
    if kind != "embedded":
        return None
    sizes = {trace.block_size for trace in traces}
    size = given.block_size or (sizes.pop() if len(sizes) == 1 else Embedded().block_size)
    longest = max(
        turn.input_tokens + max(1, turn.output_tokens)
        for trace in traces
        for session in trace.sessions
        for turn in session.turns
    )
    engine = Embedded(
        ranks=given.ranks or Embedded().ranks,
        blocks=given.blocks or _TOKENS_PER_RANK // size + 1,
        block_size=size,
        placement=given.placement,
        retention=given.retention,
        extension=given.extension,
        latency=given.latency,
        max_model_len=longest + 1,
    )
    return engine.with_options(options) if options else engine


def _root(target: str) -> str:
    if not target.startswith(("http://", "https://")):
        raise ValueError(f"a target is a URL or embedded, got {target!r}")
    return target.rstrip("/").removesuffix("/v1").rstrip("/")


def _model(url: str, given: argparse.Namespace) -> str:
    if given.model:
        return given.model
    key = os.environ.get("OPENAI_API_KEY", "none")
    with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=30.0) as client:
        models = client.models.list().data
    if not models:
        raise ValueError(f"{url} serves no model; name one with --model")
    return models[0].id


def _names(given: argparse.Namespace) -> list[str]:
    targets = given.target
    if given.name and len(given.name) != len(targets):
        raise ValueError(f"{len(given.name)} names for {len(targets)} targets")
    names: list[str] = given.name or list(targets)
    if len(set(names)) < len(names):
        names = [f"{name} {place}" for place, name in enumerate(names)]
    return names


def _paths(out: Path, names: Sequence[str]) -> list[Path]:
    if len(names) == 1 and out.suffix in {".jsonl", ".gz"}:
        return [out]
    files = [re.sub(r"[^\w.=-]+", "-", name).strip("-") + ".jsonl" for name in names]
    if len(set(files)) < len(files):
        raise ValueError(f"the names of the targets give one file: {', '.join(files)}")
    return [out / file for file in files]
