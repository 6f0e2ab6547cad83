"""Work that no caller waits for is done in order, and its errors reach nobody."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from tenuto.background import MAX_WAITING, Background
from tests.loopback import eventually


def test_all_that_is_given_is_done_in_order_and_in_one_thread_of_its_own() -> None:
    done: list[tuple[int, int]] = []
    batches: list[int] = []
    background = Background(lambda: batches.append(len(done)))
    for i in range(500):
        background.put(lambda i=i: done.append((i, threading.get_ident())))
    assert background.flush(5)
    assert [i for i, _ in done] == list(range(500))
    assert {thread for _, thread in done} != {threading.get_ident()}
    assert len({thread for _, thread in done}) == 1
    assert batches[-1] == 500
    assert len(batches) < 500


def test_an_error_in_one_piece_of_work_leaves_the_others() -> None:
    done: list[str] = []
    background = Background(lambda: 1 / 0)
    background.put(lambda: 1 / 0)
    background.put(done.append, "after")
    assert background.flush(5)
    background.put(done.append, "later")
    assert background.flush(5)
    assert done == ["after", "later"]


def test_what_is_given_while_it_works_is_done_too() -> None:
    done: list[str] = []
    background = Background(lambda: None)

    def more() -> None:
        background.put(done.append, "second")

    background.put(more)
    assert background.flush(5)
    assert background.flush(5)
    assert done == ["second"]


def test_of_more_than_it_can_hold_the_rest_is_not_taken_and_nobody_waits() -> None:
    go, done = threading.Event(), []
    background = Background(lambda: None)
    background.put(go.wait, 10)
    taken = [background.put(done.append, i) for i in range(3 * MAX_WAITING)]
    go.set()
    assert background.flush(10)
    assert done == [i for i, one in enumerate(taken) if one]
    assert MAX_WAITING // 2 < len(done) <= 2 * MAX_WAITING


def test_batches_end_however_much_more_is_given_meanwhile() -> None:
    batches: list[int] = []
    background = Background(lambda: batches.append(1))
    stop = threading.Event()

    def again() -> None:
        if not stop.is_set():
            background.put(again)

    for _ in range(10):
        background.put(again)
    assert eventually(lambda: len(batches) > 3)
    stop.set()
    assert background.flush(5)


def test_the_collector_may_give_work_in_the_midst_of_giving_some() -> None:
    background, done = Background(lambda: None), []

    class Dropped:
        def __del__(self) -> None:
            background.put(done.append, 1)

    for _ in range(200):
        one, two = Dropped(), Dropped()
        one.other, two.other = two, one  # type: ignore[attr-defined]
        del one, two
        background.put(gc.collect)
        background.put(list)
    gc.collect()
    # Two hundred collections, of all that a test run holds.
    assert background.flush(60)
    assert background.flush(60)
    assert len(done) == 400


def test_many_threads_start_one_worker() -> None:
    background, seen = Background(lambda: None), set()
    start = threading.Barrier(16)

    def give() -> None:
        start.wait()
        for _ in range(50):
            background.put(lambda: seen.add(threading.get_ident()))

    threads = [threading.Thread(target=give) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert background.flush(5)
    assert len(seen) == 1


# Python 3.12 and later warn of any fork beside threads.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_works_with_a_thread_of_its_own() -> None:
    background = Background(lambda: None)
    background.put(int)
    assert background.flush(5)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        background.put(os.write, write, b"done")
        background.flush(5)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 4) == b"done"
    os.close(read)
    os.close(write)
