"""The script is the same every time and lets every client with ordinary retries through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenuto.conformance.captured import FAILURES, Place
from tenuto.conformance.script import ONCE, TROUBLES, Script

PLACES = st.builds(
    Place,
    continues=st.none(),
    started_by=st.none(),
    row=st.integers(0, 40),
    depth=st.integers(0, 12),
    rounds=st.just(0),
    tries=st.integers(0, 5),
)


def tried(script: Script, row: int, depth: int, *, is_marked: bool = True) -> list[str]:
    """Return what goes wrong with one prompt until it is answered."""
    found: list[str] = []
    for tries in range(8):
        place = Place(None, None, row, depth, 0, tries)
        trouble = script.next(place, is_marked=is_marked)
        found += [trouble] if trouble else []
        if trouble not in FAILURES:
            return found
    raise AssertionError("the prompt is never answered")


def test_no_prompt_is_refused_more_than_twice_and_each_trouble_comes() -> None:
    script = Script()
    met: list[str] = []
    for row in range(12):
        for depth in range(8):
            found = tried(script, row, depth)
            assert len([one for one in found if one in FAILURES]) <= 2
            met += found
    assert set(met) == set(TROUBLES)
    assert [met.count(one) for one in ONCE] == [1] * len(ONCE)
    assert met.count("500") > 1


@given(st.lists(PLACES, max_size=60))
def test_the_same_requests_meet_the_same_troubles(places: list[Place]) -> None:
    one, two = Script(), Script()
    first = [one.next(place, is_marked=True) for place in places]
    assert first == [two.next(place, is_marked=True) for place in places]
    assert all(first.count(rare) <= 1 for rare in ONCE)


@given(st.lists(PLACES, max_size=60), st.sets(st.sampled_from(TROUBLES)))
def test_a_trouble_that_is_left_out_never_comes(places: list[Place], without: set[str]) -> None:
    script = Script(without)
    assert not {script.next(place, is_marked=True) for place in places} & without


def test_a_call_without_a_marker_is_not_redirected_and_spends_no_redirect() -> None:
    script = Script()
    assert tried(script, 0, 1, is_marked=False) == []
    assert tried(script, 0, 1) == ["redirect"]


def test_an_agent_of_single_calls_meets_a_redirect_too() -> None:
    script = Script()
    assert [row for row in range(6) if "redirect" in tried(script, row, 0)] == [3]
