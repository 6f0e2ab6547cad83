"""`tenuto replay`: play traces against servers, repeat by repeat, into result files."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import Any

from openai import OpenAI, OpenAIError
from tqdm import tqdm

from tenuto.cli.ending import ending_as_interrupt, ending_signals
from tenuto.cli.replay_options import parser
from tenuto.cli.replay_places import side_names, side_paths
from tenuto.cli.replay_report import report
from tenuto.cli.replay_traces import chosen_traces
from tenuto.dialects import named
from tenuto.errors import ConfigError
from tenuto.replay.failure import failure_text
from tenuto.replay.series import How, Side, play_series, reset
from tenuto.replay.target import Embedded, started
from tenuto.results import Header, TurnResult
from tenuto.trace import Trace, digest

_INTERRUPTED = 130
_TOKENS_PER_RANK = 1_000_000
# Whom the embedded engine's `/v1/models` names.
_EMBEDDED_OWNER = "tenuto"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status.

    0: every call was answered; 1: some were not, or it could not begin; 130: interrupted.

    Raises:
        ConfigError: there is no such dialect.
    """
    given = parser().parse_args(argv)
    try:
        identity = _identity(given)
        traces = chosen_traces(given)
        with ending_as_interrupt(), ExitStack() as engines:
            sides = _sides(traces, given, identity, engines)
            is_whole = _play(traces, sides, given)
    except ConfigError:
        raise
    except (OSError, ValueError, RuntimeError, OpenAIError) as error:
        print(f"tenuto replay: {error}", file=sys.stderr)
        return 1
    except MemoryError:
        print("tenuto replay: a prompt of the traces is too long for the memory", file=sys.stderr)
        return 1
    turns = [turn for side in sides for turn in (*side.kept, *side.done)]
    report(sides, traces, as_json=given.json, route=given.route)
    if not is_whole:
        print("tenuto replay: interrupted; --resume takes it up", file=sys.stderr)
        return _INTERRUPTED
    return 1 if any(turn.error for turn in turns) else 0


def _play(traces: Sequence[Trace], sides: Sequence[Side], given: argparse.Namespace) -> bool:
    """Return whether it came to its end."""
    how = How(
        fail_fast=given.fail_fast,
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
                for number in ending_signals():
                    if playing is not None:
                        asyncio.get_running_loop().add_signal_handler(number, playing.cancel)
            await play_series(traces, sides, how, on_turn)

        try:
            asyncio.run(run())
        except (KeyboardInterrupt, asyncio.CancelledError):
            return False
        except Exception as error:
            if not (given.fail_fast and any(turn.error for side in sides for turn in side.done)):
                raise
            print(f"tenuto replay: stopped by {failure_text(error)}", file=sys.stderr)
    return True


def _sides(
    traces: Sequence[Trace], given: argparse.Namespace, identity: str | None, engines: ExitStack
) -> list[Side]:
    names = side_names(given)
    paths = side_paths(given, names)
    sides: list[Side] = []
    for place, (target, name, path) in enumerate(zip(given.target, names, paths, strict=True)):
        engine = _embedded(target, traces, given)
        url = engines.enter_context(started(engine)) if engine is not None else _root(target)
        block_size = engine.block_size if engine is not None else given.block_size
        model, is_modelled = _model(url, given)
        if given.reset:
            reset(url)
        header = _header(
            traces,
            given,
            name=name,
            identity=identity,
            model=model,
            ranks=engine.ranks if engine is not None else given.ranks,
            engine=engine.settings() if engine is not None else _told(block_size, is_modelled),
            target="embedded" if engine is not None else url,
        )
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
    ranks: int | None,
    engine: dict[str, Any],
    target: str,
) -> Header:
    return Header(
        name=name,
        traces={trace.id: digest(trace) for trace in traces},
        calls={trace.id: trace.requests for trace in traces},
        seed=given.seed,
        identity=identity,
        mode=given.mode,
        time_scale=given.time_scale,
        gap_cap_s=given.gap_cap,
        live_sessions=given.live_sessions,
        concurrency=given.concurrency,
        max_output_tokens=given.max_output,
        repeats=given.repeat,
        route=given.route,
        prompt_form=given.prompt_form,
        vocab=given.vocab if given.prompt_form == "tokens" else None,
        cache_bust=given.cache_bust,
        reset=given.reset,
        new_connections=given.new_connections,
        target=target,
        model=model,
        ranks=ranks,
        gpus=float(ranks) if given.gpus is None and ranks else given.gpus,
        engine=engine,
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


def _model(url: str, given: argparse.Namespace) -> tuple[str, bool]:
    """Return the served model's name, and whether an embedded engine serves it."""
    if given.model:
        return given.model, False
    key = os.environ.get("OPENAI_API_KEY", "none")
    with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=30.0) as client:
        try:
            models = [(one.id, one.owned_by) for one in client.models.list().data]
        except OpenAIError as error:
            raise ValueError(f"{url}/v1/models: {failure_text(error)}") from error
        except (AttributeError, TypeError, ValueError) as error:
            # A web site answers something too.
            raise ValueError(f"{url} is no OpenAI API: /v1/models lists no models") from error
    if not models:
        raise ValueError(f"{url} serves no model; name one with --model")
    name, owner = models[0]
    return name, owner == _EMBEDDED_OWNER


def _told(block_size: int | None, is_modelled: bool) -> dict[str, Any]:
    """Return what a header says of a server that others have started."""
    said: dict[str, Any] = {} if block_size is None else {"block_size": block_size}
    return {**said, "is_modelled": True} if is_modelled else said
