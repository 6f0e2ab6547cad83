"""A `ProcessPoolExecutor` whose workers are agents of the run: the carrier is an argument."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import tenuto
from examples.processes.calls import ask, server


def search(carrier: dict[str, str], index: int) -> str:
    # One session is one history: workers that run at once are instances of an agent.
    with tenuto.extract(carrier) as planner, planner.agent("search", instance=index):
        return ask(f"search {index}")


def main() -> None:
    spawn = multiprocessing.get_context("spawn")
    run = tenuto.run("ticket-4711")
    with server(), ProcessPoolExecutor(2, mp_context=spawn) as pool, run.agent("planner"):
        ask("plan")
        found = [pool.submit(search, tenuto.inject(), index) for index in range(3)]
        for future in found:
            future.result()
        ask("conclude")


if __name__ == "__main__":
    main()
