"""Protocol 1 survives every byte string, and means what RFC 9651 says."""

from __future__ import annotations

import string
import tracemalloc

import http_sf
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto import _wire
from tenuto._structured import Token, parse_dictionary
from tenuto._wire import Decoded, Markers, Served, Turn

HEAD = string.ascii_letters + string.digits
ids = st.text(HEAD + "_-", min_size=8, max_size=64).filter(_wire.is_id)


def number(key: str) -> st.SearchStrategy[int | None]:
    low, high = _wire._INTS[key]
    return st.none() | st.integers(low, high)


def word(words: frozenset[str]) -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from(sorted(words))


def fits(turn: Turn) -> bool:
    return _wire.encode_turn(turn).count('"') == (2 if turn.drop else 0) and (
        not turn.drop or f'drop="{" ".join(turn.drop)}"' in _wire.encode_turn(turn)
    )


turns = st.builds(
    Turn,
    n=number("n"),
    attempt=number("attempt"),
    phase=word(_wire.PHASES),
    next=word(_wire.NEXTS),
    gap=number("gap"),
    ttl=number("ttl"),
    append=number("append"),
    prefix=number("prefix"),
    keep=number("keep"),
    at=st.lists(st.integers(-9999, 9999), max_size=_wire.MAX_AT).map(tuple),
    kind=word(_wire.CLASSES),
    fork=word(_wire.FORKS),
    prio=number("prio"),
    drop=st.lists(ids, max_size=6).map(tuple),
)
markers = st.builds(
    Markers,
    session=ids,
    parent=st.none() | ids,
    run=st.none() | ids,
    turn=turns,
    affinity=st.none()
    | st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=128),
)


def as_asgi(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("ascii")) for name, value in headers.items()]


def size(headers: dict[str, str]) -> int:
    return sum(len(name) + len(value) + len(": \r\n") for name, value in headers.items())


@settings(max_examples=3_000)
@given(markers)
def test_what_is_encoded_is_decoded_and_never_over_1_kb(said: Markers) -> None:
    headers = _wire.encode(said)
    assert size(headers) <= 1024
    assert len(headers.get(_wire.TURN, "")) <= _wire.TURN_BYTES
    if turn := headers.get(_wire.TURN):
        assert list(http_sf.parse(turn.encode(), tltype="dictionary"))
    got = _wire.decode(as_asgi(headers))
    assert got.dropped == ()
    assert got.markers is not None
    if fits(said.turn):
        assert got.markers == said
    else:
        # Only `drop` can be too long; then its leading ids go, and nothing else is lost.
        kept = got.markers.turn.drop
        assert kept == said.turn.drop[: len(kept)]
        assert len(kept) < len(said.turn.drop)


known_names = st.sampled_from(
    [
        name.lower().encode()
        for name in (
            _wire.SESSION,
            _wire.SESSION_AFFINITY,
            _wire.PARENT,
            _wire.RUN,
            _wire.TURN,
            _wire.AFFINITY,
        )
    ]
)
near_keys = [key.encode() for key in _wire._KEYS] + [b"x", b"*", b""]
near_items = [
    *(b"1", b"-1", b"9" * 16, b"1.5", b"tool", b'"tool"', b"()", b"(1 2)", b"(1 2", b"?1"),
    *(b"a;b=1", b":AA==:", b"@1", b'%"%c3"', b'"abcdefgh abcdefgh_t1"', b"\xef\xbc\x97", b"\x00"),
]
near_members = st.sampled_from([key + b"=" + item for key in near_keys for item in near_items])
near_values = st.lists(near_members, min_size=1, max_size=3).map(b", ".join)


@settings(max_examples=3_000)
@given(
    st.lists(
        st.tuples(known_names | st.binary(max_size=24), st.binary(max_size=300) | near_values),
        max_size=4,
    )
)
def test_decode_never_raises_and_answers_only_valid_markers(raw: list[tuple[bytes, bytes]]) -> None:
    got = _wire.decode(raw)
    assert isinstance(got, Decoded)
    assert set(got.dropped) <= {
        "session",
        "parent",
        "run",
        "affinity",
        "turn",
        *(f"turn.{key}" for key in _wire._KEYS),
    }
    if got.markers is not None:
        again = _wire.decode(as_asgi(_wire.encode(got.markers)))
        assert again.markers == got.markers


bare = (
    st.integers(-(10**15) + 1, 10**15 - 1)
    | st.booleans()
    | st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=12)
    | st.from_regex(r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]{0,8}", fullmatch=True).map(
        http_sf.Token
    )
    | st.binary(max_size=8)
)
members = bare | st.lists(bare.map(lambda item: (item, {})), max_size=4)
dictionaries = st.dictionaries(
    st.from_regex(r"[a-z*][a-z0-9_.*-]{0,6}", fullmatch=True), members, max_size=6
)


def plain(value: object) -> object:
    """Take an oracle's value down to ours: no parameters."""
    if isinstance(value, tuple):
        return plain(value[0])
    if isinstance(value, list):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, http_sf.Token) else value


def ours(value: object) -> object:
    if isinstance(value, list):
        return [ours(item) for item in value]
    return str(value) if isinstance(value, Token) else value


@given(dictionaries)
def test_every_dictionary_that_an_rfc_9651_library_writes_is_read_alike(
    items: dict[str, object],
) -> None:
    text = http_sf.ser({key: (value, {}) for key, value in items.items()}) if items else ""
    oracle = http_sf.parse(text.encode(), tltype="dictionary") if text else {}
    mine = {key: ours(value) for key, value in parse_dictionary(text).items()}
    assert mine == {key: plain(value) for key, value in oracle.items()}


structured_noise = st.text(st.sampled_from(list('ab1-.*="\\:;?@%,() \tAé/_~')), max_size=24)


@settings(max_examples=2_000)
@given(structured_noise)
def test_what_an_rfc_9651_library_refuses_is_refused_and_what_it_takes_is_taken(text: str) -> None:
    try:
        oracle = {k: plain(v) for k, v in http_sf.parse(text.encode(), tltype="dictionary").items()}
    except Exception:
        oracle = None
    try:
        mine = {key: ours(value) for key, value in parse_dictionary(text).items()}
    except ValueError:
        mine = None
    assert mine == oracle


def test_of_two_equal_names_the_first_counts_and_turn_lines_join() -> None:
    got = _wire.decode(
        [
            (b"x-session-id", b"session-one"),
            (b"X-Session-ID", b"session-two"),
            (b"x-agent-turn", b"n=1"),
            (b"x-agent-turn", b"phase=tool"),
        ]
    )
    assert got == Decoded(Markers("session-one", turn=Turn(n=1, phase="tool")))


def test_a_server_answer_is_read_back_and_a_bad_one_is_left_out() -> None:
    said = Served(rank=1, home=1, why="home", lease=120)
    assert _wire.encode_served(said) == "rank=1, home=1, why=home, lease=120"
    assert _wire.decode_served(_wire.encode_served(said)) == said
    assert _wire.decode_served("rank=-1, home=x, why=lunch, more=1") == Served()
    assert _wire.decode_served("((") is None


def test_an_id_with_a_line_break_or_a_nul_is_no_id() -> None:
    for evil in (
        b"session-one\r\nX-Evil: 1",
        b"session-one\n",
        b"session-one\x00",
        b"\rsession-one",
    ):
        assert _wire.decode([(b"x-session-id", evil)]) == Decoded(None, ("session",))
        assert _wire.encode(Markers(evil.decode())) == {}
        token = [(b"x-session-id", b"session-one"), (b"x-agent-affinity", evil)]
        assert _wire.decode(token) == Decoded(Markers("session-one"), ("affinity",))


def test_a_flood_of_turn_lines_is_dropped_without_being_joined() -> None:
    flood = [(b"x-session-id", b"session-one")] + [(b"x-agent-turn", b"n=1" * 200)] * 20_000
    tracemalloc.start()
    got = _wire.decode(flood)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert got == Decoded(Markers("session-one"), ("turn",))
    assert peak_bytes < 100_000
