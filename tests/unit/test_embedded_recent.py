"""Fading counts of the sessions that began on each rank."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm.embedded.recent import Recent


@given(st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 3)), max_size=20))
def test_recent_counts_fade_and_never_exceed_the_placements(
    events: list[tuple[float, int]],
) -> None:
    recent, placed = Recent(), Counter()
    for now_s, rank in sorted(events):
        recent = recent.placed(rank, now_s, 4)
        placed[rank] += 1
    end_s = max((at for at, _ in events), default=0.0)
    for rank, count in enumerate(recent.at(end_s, 4)):
        assert 0.0 <= count <= placed[rank]
    assert sum(recent.at(end_s + 1e6, 4)) < 1e-9
    assert len(recent.at(end_s, 2)) == 2
