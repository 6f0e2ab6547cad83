"""What one API process orders of the ranks, every other one of the server does."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from tenuto_vllm.standing import LOOK_EVERY_S, Standing

OWN = f"tenuto-vllm-{os.getuid()}"


def test_a_drained_rank_is_drained_in_every_process_until_it_is_restored(tmp_path: Path) -> None:
    one, two = Standing("server", tmp_path), Standing("server", tmp_path)
    one.drain(1, 4)
    two.look(0.0)
    assert one.drained() == two.drained() == {1}
    two.drain(0, 4)
    two.restore(1)
    one.look(0.0)
    assert one.drained() == {0}


def test_a_lost_cache_has_a_later_epoch_in_every_process_and_is_told_once(tmp_path: Path) -> None:
    one, two = Standing("server", tmp_path), Standing("server", tmp_path)
    one.lost([0, 2])
    assert two.look(0.0) == {0, 2}
    assert [two.epoch(rank) for rank in range(3)] == [1, 0, 1]
    assert set(two.look(1.0)) == set()
    two.lost([2])
    assert one.look(0.0) == {2}
    assert [one.epoch(rank) for rank in range(3)] == [1, 0, 2]


def test_a_loss_that_is_met_while_giving_an_order_is_told_all_the_same(tmp_path: Path) -> None:
    one, two = Standing("server", tmp_path), Standing("server", tmp_path)
    one.lost([0])
    two.drain(1, 4)
    assert two.look(0.0) == {0}
    assert set(two.look(1.0)) == set()


def test_orders_to_one_server_are_none_to_another(tmp_path: Path) -> None:
    one, other = Standing("server", tmp_path), Standing("another", tmp_path)
    one.drain(1, 4)
    other.look(0.0)
    assert other.drained() == frozenset()


def test_the_file_is_looked_at_a_few_times_a_second_at_most(tmp_path: Path) -> None:
    one, two = Standing("server", tmp_path), Standing("server", tmp_path)
    two.look(0.0)
    one.drain(1, 4)
    two.look(LOOK_EVERY_S * 0.9)
    assert two.drained() == frozenset()
    two.look(LOOK_EVERY_S)
    assert two.drained() == {1}


def test_what_many_processes_see_by_themselves_ends_an_epoch_once(tmp_path: Path) -> None:
    one, two = Standing("server", tmp_path), Standing("server", tmp_path)
    one.lost([0], {0: 0})
    two.lost([0], {0: 0})
    one.look(0.0)
    assert (one.epoch(0), two.epoch(0)) == (1, 1)
    two.lost([0], {0: 1})
    assert two.epoch(0) == 2


def test_of_a_rank_that_is_gone_nothing_is_remembered_but_that_it_was_another(
    tmp_path: Path,
) -> None:
    one, two = Standing("server", tmp_path), Standing("server", tmp_path)
    one.drain(2, 4)
    two.look(0.0)
    for each in (one, two):
        each.removed([2, 3])
    for each in (one, two):
        each.look(1.0)
        assert each.drained() == frozenset()
        assert [each.epoch(rank) for rank in range(4)] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"drained": 1}',
        '{"drained": ["a"]}',
        "null",
        '{"drained": [Infinity], "epochs": {}}',
        "[" * 100_000,
    ],
)
def test_a_file_that_is_none_of_ours_orders_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / OWN).mkdir(mode=0o700)
    (tmp_path / OWN / "server.json").write_text(content)
    standing = Standing("server", tmp_path)
    assert set(standing.look(0.0)) == set()
    standing.drain(1, 4)
    assert standing.drained() == {1}
    assert set(Standing("server", tmp_path).look(0.0)) == set()


@pytest.mark.parametrize("how", ["link", "open to others", "a file", "nothing can be made"])
def test_without_a_folder_of_ones_own_a_process_knows_its_own_orders(
    tmp_path: Path, how: str
) -> None:
    folder = tmp_path / "shared"
    own = folder / OWN
    if how == "nothing can be made":
        folder.write_text("")
    else:
        folder.mkdir()
    if how == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        own.symlink_to(tmp_path / "real")
    elif how == "open to others":
        own.mkdir()
        own.chmod(0o777)
    elif how == "a file":
        own.write_text("")
    standing = Standing("server", folder)
    assert not standing.is_shared
    standing.drain(1, 4)
    standing.lost([0])
    assert (standing.drained(), standing.epoch(0)) == ({1}, 1)
    other = Standing("server", folder)
    other.look(0.0)
    assert other.drained() == frozenset()


def test_an_order_that_could_not_be_shared_holds_here_and_is_shared_as_soon_as_it_can_be(
    tmp_path: Path,
) -> None:
    one, two = Standing("server", tmp_path), Standing("server", tmp_path)
    with (tmp_path / OWN / "server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        one.drain(1, 4)
        one.lost([2])
        assert (one.drained(), one.epoch(2), one.is_shared) == ({1}, 1, False)
    two.lost([2])
    two.drain(0, 4)
    for each in (one, two, one):
        each.look(0.0 if each is two else time.monotonic())
    assert one.drained() == two.drained() == {0, 1}
    assert one.epoch(2) == two.epoch(2) == 2
    assert one.is_shared


def test_a_folder_that_goes_away_is_made_again(tmp_path: Path) -> None:
    standing = Standing("server", tmp_path)
    (tmp_path / OWN).rmdir()
    standing.drain(1, 4)
    other = Standing("server", tmp_path)
    other.look(1.0)
    assert standing.drained() == other.drained() == {1}


def test_the_last_open_rank_is_not_drained_whoever_asks(tmp_path: Path) -> None:
    one, two = Standing("server", tmp_path), Standing("server", tmp_path)
    assert one.drain(0, 2)
    assert not two.drain(1, 2)
    assert two.drained() == {0}


def test_files_of_servers_that_are_long_gone_are_cleared_away(tmp_path: Path) -> None:
    own = tmp_path / OWN
    own.mkdir(mode=0o700)
    day_s = 86_400
    aged = {own / "old.json": 8 * day_s, own / "young.json": 60, tmp_path / "other.txt": 8 * day_s}
    for path, age_s in aged.items():
        path.write_text("{}")
        then = time.time() - age_s
        os.utime(path, (then, then))
    Standing("server", tmp_path).drain(0, 4)
    assert {path.name for path in own.iterdir()} == {"young.json", "server.json", "server.lock"}
    assert (tmp_path / "other.txt").exists()


def _lose(folder: Path, times: int) -> None:
    standing = Standing("server", folder)
    for _ in range(times):
        standing.lost([0])


def test_orders_of_processes_at_once_are_all_kept(tmp_path: Path) -> None:
    start = multiprocessing.get_context("spawn").Process
    processes = [start(target=_lose, args=(tmp_path, 50)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    standing = Standing("server", tmp_path)
    standing.look(0.0)
    assert standing.epoch(0) == 150
