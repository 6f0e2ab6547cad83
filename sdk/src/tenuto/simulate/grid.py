"""Many set-ups at once, over the cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tenuto.results import Results, TurnResult, write
from tenuto.simulate.drive import simulate
from tenuto.simulate.outcome import Outcome, outcome_of
from tenuto.simulate.setup import Setup
from tenuto.trace import Trace

_shared: list[Sequence[Trace]] = []
_ENDING = {
    signal.Signals[name]
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if name in signal.Signals.__members__
}


def simulate_all(
    traces: Sequence[Trace],
    setups: Sequence[Setup],
    *,
    jobs: int | None = None,
    out: Sequence[Path] | None = None,
    on_turn: Callable[[TurnResult], None] | None = None,
) -> Iterator[Outcome]:
    """Yield the outcome of each set-up, in their order.

    Args:
        traces: what is played.
        setups: against what.
        jobs: processes at once; as many as cores by default. One runs here.
        out: a result file for each set-up.
        on_turn: told of each result as it comes, where all runs here.
    """
    jobs = min(jobs or os.cpu_count() or 1, len(setups))
    files: Sequence[Path | None] = out if out is not None else [None] * len(setups)
    # Forked workers find the traces in their memory: 29,000 calls are slow to send.
    if jobs <= 1 or "fork" not in multiprocessing.get_all_start_methods():
        for setup, file in zip(setups, files, strict=True):
            yield _outcome(traces, setup, file, on_turn)
        return
    # Workers end when this process closes its end of the pipe, also by being killed.
    reader, writer = os.pipe()
    # What a signal raises while a process forks is dropped with a note, and nothing would end.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    workers = ProcessPoolExecutor(
        jobs,
        multiprocessing.get_context("fork"),
        initializer=_begin_worker,
        initargs=(traces, reader, writer, mask),
    )
    try:
        try:
            outcomes = workers.map(_in_worker, setups, files)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield from outcomes
    finally:
        os.close(writer)
        workers.shutdown(cancel_futures=True)
        os.close(reader)


def _begin_worker(traces: Sequence[Trace], reader: int, writer: int, mask: Iterable[int]) -> None:
    _shared.append(traces)
    # Forked, it has this end too, and would keep it open for the others.
    os.close(writer)
    # A Ctrl-C at the terminal is for the process that waits for this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in _ENDING - {signal.SIGINT}:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    threading.Thread(target=_end_with, args=(reader,), daemon=True).start()


def _end_with(reader: int) -> None:
    os.read(reader, 1)
    os._exit(1)


def _in_worker(setup: Setup, file: Path | None) -> Outcome:
    return _outcome(_shared[0], setup, file)


def _outcome(
    traces: Sequence[Trace],
    setup: Setup,
    file: Path | None,
    on_turn: Callable[[TurnResult], None] | None = None,
) -> Outcome:
    results = simulate(traces, setup, on_turn=on_turn)
    if file is not None:
        _write(file, results)
    return outcome_of(results)


def _write(path: Path, results: Results) -> None:
    with write(path) as writer:
        writer.header(results.header)
        for turn in results.turns:
            writer.add(turn)
