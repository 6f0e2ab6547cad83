"""The view reads vLLM's engine client as vLLM 0.32 shapes it; tests/vllm uses the real one."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm.embedded.stock import RankLoad
from tenuto_vllm.embedded.stock import place as stock_place
from tenuto_vllm.engine.view import VllmView


def client(engines: int, *, local: int | None = None, **core: Any) -> Any:
    names = [bytes([i]) for i in range(engines)]
    inflight = Counter(dict(zip(names, core.pop("inflight", [0] * engines), strict=True)))
    return SimpleNamespace(
        vllm_config=SimpleNamespace(
            instance_id="abcde",
            parallel_config=SimpleNamespace(
                data_parallel_size=core.pop("size", engines),
                data_parallel_size_local=local if local is not None else engines,
                local_engines_only=local is not None,
            ),
        ),
        engine_core=SimpleNamespace(
            core_engines=names,
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


def test_the_instance_is_the_coordinators_and_changes_with_it() -> None:
    one, again = VllmView(client(2)), VllmView(client(2))
    other = VllmView(client(2, address="ipc://two"))
    assert one.instance() == again.instance() != other.instance()
    assert VllmView(client(1, address=None)).instance()


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
