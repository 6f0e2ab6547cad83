"""The view reads vLLM's engine client as vLLM 0.32 shapes it; tests/vllm uses the real one."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm.embedded.stock import RankLoad
from tenuto_vllm.embedded.stock import place as stock_place
from tenuto_vllm.engine.view import VllmView


def client(engines: int, *, local: int | None = None, **core: Any) -> Any:
    first = core.pop("first", 0)
    names = [bytes([first + i]) for i in range(engines)]
    inflight = Counter(dict(zip(names, core.pop("inflight", [0] * engines), strict=True)))
    return SimpleNamespace(
        vllm_config=SimpleNamespace(
            instance_id=core.pop("own", "abcde"),
            cache_config=SimpleNamespace(num_gpu_blocks=60, block_size=32, **core.pop("cache", {})),
            parallel_config=SimpleNamespace(
                data_parallel_size=core.pop("size", engines),
                data_parallel_size_local=local if local is not None else engines,
                local_engines_only=local is not None,
            ),
        ),
        output_processor=SimpleNamespace(get_num_unfinished_requests=lambda: 3),
        engine_core=SimpleNamespace(
            core_engines=names,
            engine_ranks_managed=[first + i for i in range(engines)],
            engine_inflight=inflight,
            client_count=core.pop("clients", 1),
            lb_engines=core.pop("lb", [[0, 0, 0.0] for _ in names]),
            stats_update_address=core.pop("address", "ipc://one"),
        ),
    )


def test_the_ranks_are_those_that_this_process_can_address() -> None:
    assert VllmView(client(4)).ranks() == 4
    assert VllmView(client(2, local=2, size=8)).ranks() == 2
    assert VllmView(client(1, size=8)).ranks() == 1


def test_ranks_and_loads_follow_an_engine_that_grows() -> None:
    engine = client(2)
    view = VllmView(engine)
    assert len(view.loads()) == view.ranks() == 2
    grown = client(3)
    engine.vllm_config, engine.engine_core = grown.vllm_config, grown.engine_core
    assert len(view.loads()) == view.ranks() == 3


FOLDER = "PROMETHEUS_MULTIPROC_DIR"


def test_the_api_processes_of_an_endpoint_share_an_instance_and_its_group_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(FOLDER, "folder")
    processes = [VllmView(client(2, clients=2, own=own)).instance() for own in ("abc", "def")]
    node = VllmView(client(2, clients=2, first=2)).instance()
    group = VllmView(client(2, clients=2, address="ipc://two")).instance()
    monkeypatch.setenv(FOLDER, "another folder")
    restarted = VllmView(client(2, clients=2)).instance()
    assert processes[0] == processes[1]
    assert len({processes[0], node, group, restarted}) == 4


@pytest.mark.parametrize("address", ["ipc://one", None])
def test_an_instance_is_a_lone_processs_own_although_its_operator_set_the_folder(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, "folder")
    one, other = (
        VllmView(client(1, address=address, own=own)).instance() for own in ("abc", "def")
    )
    assert one != other


@pytest.mark.parametrize(("address", "shared"), [("ipc://one", True), (None, False)])
def test_without_the_folder_processes_share_what_the_coordinator_gives_or_nothing(
    address: str | None, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    one, other = (
        VllmView(client(2, clients=2, address=address, own=own)).instance()
        for own in ("abc", "def")
    )
    assert (one == other) is shared


def test_a_ranks_capacity_is_what_one_engine_says_of_itself_else_its_part_of_all_blocks() -> None:
    assert VllmView(client(2, cache={"kv_cache_size_tokens": 512})).capacity() == 512
    assert VllmView(client(2)).capacity() == 30 * 32
    assert VllmView(client(1)).capacity() == 60 * 32


def test_the_load_of_a_rank_alone_is_what_its_processes_have_not_finished() -> None:
    alone = client(1, clients=2)
    del alone.engine_core.engine_inflight, alone.engine_core.lb_engines
    assert list(VllmView(alone).loads()) == [6.0]


states = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.floats(0, 1)),
    min_size=2,
    max_size=8,
)


@given(states, st.integers(1, 4))
def test_the_least_load_is_the_rank_that_stock_vllm_would_choose(
    ranks: list[tuple[int, int, int, float]], clients: int
) -> None:
    view = VllmView(
        client(
            len(ranks),
            clients=clients,
            inflight=[inflight for inflight, *_ in ranks],
            lb=[[waiting, running, usage] for _, waiting, running, usage in ranks],
        )
    )
    loads = view.loads()
    stock, _ = stock_place([RankLoad(*rank) for rank in ranks], start=0, client_count=clients)
    assert loads[stock] == min(loads)
