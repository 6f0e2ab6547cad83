"""What one API process orders of the ranks, every other one of the server does."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from tenuto_vllm.standing import LOOK_EVERY_S, Standing


def test_a_drained_rank_is_drained_in_every_process_until_it_is_restored(tmp_path: Path) -> None:
    one, two = Standing("server", tmp_path), Standing("server", tmp_path)
    one.drain(1)
    two.look(0.0)
    assert one.drained() == two.drained() == {1}
    two.drain(0)
    two.restore(1)
    one.look(0.0)
    assert one.drained() == {0}


def test_a_lost_cache_has_a_later_epoch_in_every_process_and_is_told_once(tmp_path: Path) -> None:
    one, two = Standing("server", tmp_path), Standing("server", tmp_path)
    one.lost([0, 2])
    assert two.look(0.0) == {0, 2}
    assert [two.epoch(rank) for rank in range(3)] == [1, 0, 1]
    assert two.look(1.0) == frozenset()
    two.lost([2])
    assert one.look(0.0) == {2}
    assert [one.epoch(rank) for rank in range(3)] == [1, 0, 2]


def test_a_loss_that_is_met_while_giving_an_order_is_told_all_the_same(tmp_path: Path) -> None:
    one, two = Standing("server", tmp_path), Standing("server", tmp_path)
    one.lost([0])
    two.drain(1)
    assert two.look(0.0) == {0}
    assert two.look(1.0) == frozenset()


def test_orders_to_one_server_are_none_to_another(tmp_path: Path) -> None:
    one, other = Standing("server", tmp_path), Standing("another", tmp_path)
    one.drain(1)
    other.look(0.0)
    assert other.drained() == frozenset()


def test_the_file_is_looked_at_a_few_times_a_second_at_most(tmp_path: Path) -> None:
    one, two = Standing("server", tmp_path), Standing("server", tmp_path)
    two.look(0.0)
    one.drain(1)
    two.look(LOOK_EVERY_S * 0.9)
    assert two.drained() == frozenset()
    two.look(LOOK_EVERY_S)
    assert two.drained() == {1}


@pytest.mark.parametrize("content", ["", "[]", "{", '{"drained": 1}', '{"drained": ["a"]}', "null"])
def test_a_file_that_is_none_of_ours_orders_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "server.json").write_text(content)
    standing = Standing("server", tmp_path)
    assert standing.look(0.0) == frozenset()
    standing.drain(1)
    assert standing.drained() == {1}
    assert Standing("server", tmp_path).look(0.0) == frozenset()


@pytest.mark.parametrize("how", ["link", "open to others", "a file", "nothing can be made"])
def test_without_a_folder_of_ones_own_a_process_knows_its_own_orders(
    tmp_path: Path, how: str
) -> None:
    folder = tmp_path / "shared"
    if how == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "real")
    elif how == "open to others":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.write_text("")
        folder = folder if how == "a file" else folder / "below"
    standing = Standing("server", folder)
    standing.drain(1)
    standing.lost([0])
    assert (standing.drained(), standing.epoch(0)) == ({1}, 1)
    other = Standing("server", folder)
    other.look(0.0)
    assert other.drained() == frozenset()


def test_a_folder_that_goes_away_costs_no_order(tmp_path: Path) -> None:
    standing = Standing("server", tmp_path / "shared")
    (tmp_path / "shared").rmdir()
    standing.drain(1)
    standing.look(1.0)
    assert standing.drained() == {1}


def test_files_of_servers_that_are_long_gone_are_cleared_away(tmp_path: Path) -> None:
    for name, age_s in (("old.json", 8 * 86_400), ("young.json", 60)):
        (tmp_path / name).write_text("{}")
        then = time.time() - age_s
        os.utime(tmp_path / name, (then, then))
    Standing("server", tmp_path).drain(0)
    assert not (tmp_path / "old.json").exists()
    assert (tmp_path / "young.json").exists()


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
