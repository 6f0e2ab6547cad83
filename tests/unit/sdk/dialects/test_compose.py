"""Stacks of dialects: what an outer gateway lets through, and what none ever sends."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto import ConfigError, _wire, dialects
from tenuto.dialects.headers import echoes, fixed, varying
from tenuto.dialects.model import TARGETING, Dialect, Raw, check_name

NAME = re.compile(rb"[!#$%&'*+.^`|~0-9A-Za-z-]+")
PARTS = st.sampled_from(
    [*dialects.DIALECTS, "production-stack:x-user-flow", "aibrix:session-affinity"]
)
LONGEST = _wire.Markers("s" * 64, "p" * 64, "r" * 64)


def stacked(parts: list[str]) -> Dialect | None:
    try:
        return dialects.named(parts)
    except ConfigError:
        return None


def everything(dialect: Dialect, markers: _wire.Markers = LONGEST) -> list[Raw]:
    """Return all that may be sent at once, each value at its longest."""
    turn = b"t" * _wire.TURN_BYTES
    tokens = echoes(dialect, lambda _: "a" * _wire.AFFINITY_BYTES)
    return [*fixed(dialect, markers), *varying(dialect, turn, -8, is_final=True), *tokens]


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_every_stack_has_valid_header_names_once_each_and_visible_values(parts: list[str]) -> None:
    dialect = stacked(parts)
    if dialect is None:
        return
    items = everything(dialect)
    lowers = [lower for _, lower, _ in items]
    assert len(set(lowers)) == len(lowers)
    assert set(lowers) <= dialect.sends
    for name, lower, value in items:
        assert NAME.fullmatch(name)
        assert b"_" not in name
        assert name.lower() == lower
        assert re.fullmatch(rb"[\x21-\x7e]+", value)


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_no_stack_names_a_worker(parts: list[str]) -> None:
    dialect = stacked(parts)
    if dialect is None:
        return
    for name in dialect.sends:
        assert not name.decode().endswith(TARGETING)
        assert b"x-gateway-destination-endpoint" not in name


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_a_stack_is_one_object_however_often_it_is_asked_for(parts: list[str]) -> None:
    dialect = stacked(parts)
    if dialect is not None:
        assert dialects.named(tuple(parts)) is dialect
        assert dialects.named(",".join(parts)) is dialect
        assert dialect.name == ",".join(parts)


def test_a_gateway_and_a_server_fit_in_one_kilobyte_with_the_longest_ids() -> None:
    stacks = [*([name] for name in dialects.DIALECTS)]
    stacks += [list(pair) for pair in itertools.permutations(dialects.DIALECTS, 2)]
    own = {"x-session-token", "x-session-token-prefill", "x-session-id"}
    for parts in stacks:
        dialect = stacked(parts)
        # A router's own tokens are as long as it makes them.
        items = everything(dialect) if dialect else []
        sizes = [
            len(name) + len(value) + len(": \r\n")
            for name, lower, value in items
            if not (lower.decode() in own and value[:1] == b"a")
        ]
        assert sum(sizes) <= 1024, parts


@pytest.mark.parametrize(
    "name",
    [*TARGETING, "X-Data-Parallel-Rank", "x-gateway-destination-endpoint-subset", "Target-Pod"],
)
def test_a_row_that_names_a_worker_cannot_be_made(name: str) -> None:
    with pytest.raises(ConfigError, match="worker"):
        Dialect("mine", carries=((name, "session"),))
    with pytest.raises(ConfigError, match="worker"):
        Dialect("mine", carries=((f"x-pass-{name}", "session"),))


@pytest.mark.parametrize("name", ["", "a b", "x_session", "x:y", "é", "x\r\ny", "-x", "x" * 65])
def test_a_name_that_no_proxy_is_sure_to_pass_is_no_header_name(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a header"):
        check_name(name)


def test_a_row_with_a_tighter_limit_than_the_protocols_ids_cannot_be_made() -> None:
    with pytest.raises(ConfigError, match="64"):
        Dialect("mine", id_limit=63)


def test_litellm_passes_on_by_its_prefix_and_never_a_parent() -> None:
    # LiteLLM takes any x-<name>-session-id for the session: the parent's must not be there.
    dialect = dialects.named(["litellm", "vllm"])
    sent = {name.decode() for name in dialect.headers}
    assert {"x-litellm-session-id", "x-pass-x-session-id", "x-pass-X-Agent-Turn"} <= sent
    assert not any("parent" in name.lower() for name in sent)
    assert dialect.speaks_protocol
    [echo] = dialect.echo
    assert echo == ("llm_provider-X-Agent-Affinity", "x-pass-X-Agent-Affinity")


def test_a_router_in_front_of_litellm_sends_no_parent_either() -> None:
    dialect = dialects.named("production-stack,litellm,vllm")
    assert not any(b"parent" in name for name in dialect.sends)


def test_bifrost_passes_headers_on_but_brings_none_back() -> None:
    dialect = dialects.named("bifrost,vllm")
    assert b"x-bf-eh-X-Agent-Turn" in dialect.headers
    assert dialect.echo == ()


@settings(max_examples=300)
@given(st.lists(PARTS, min_size=1, max_size=4))
def test_no_session_of_ours_reaches_aibrix_as_its_token(parts: list[str]) -> None:
    # https://github.com/vllm-project/aibrix: there x-session-id is base64 of a pod's address.
    dialect = stacked(parts)
    if dialect is None or not any(part.startswith("aibrix") for part in parts):
        return
    prefix = ""
    for part in parts:
        if part.startswith("aibrix"):
            break
        passes = dialects.named(part).passes
        if passes is None:
            return
        prefix += passes
    arrives = f"{prefix}x-session-id".encode()
    assert arrives not in {lower for _, lower, _ in fixed(dialect, LONGEST)}


def test_a_vllm_behind_aibrix_gets_the_session_by_the_protocols_other_name() -> None:
    dialect = dialects.named("aibrix,vllm")
    sent = {name.decode(): value.decode() for name, _, value in fixed(dialect, LONGEST)}
    assert sent["X-Session-Affinity"] == sent["x-aibrix-session-key"] == LONGEST.session
    # The token, sent back, would be the session there.
    assert [echo.request for echo in dialect.echo] == ["X-Agent-Affinity"]


def test_a_body_goes_through_what_keeps_bodies_only() -> None:
    assert dialects.named("production-stack,sglang").body[-1].path == "session_id"
    assert dialects.named("llm-d,vllm-router-pd").body == dialects.named("vllm-router-pd").body
    assert dialects.named("litellm,openai").body == ()


@pytest.mark.parametrize("parts", ["vllm,litellm", "openai,vllm", "dynamo,vllm", "silent,vllm"])
def test_a_stack_whose_outer_part_passes_nothing_on_is_refused(parts: str) -> None:
    with pytest.raises(ConfigError, match="passes nothing on"):
        dialects.named(parts)


def test_baggage_joins_a_stack_without_changing_what_else_is_sent() -> None:
    plain = dialects.named("vllm-router-pd")
    for stack in ("vllm-router-pd,baggage", "baggage,vllm-router-pd"):
        dialect = dialects.named(stack)
        assert (dialect.baggage, dialect.carries, dialect.body) == (True, plain.carries, plain.body)
    assert not any(row.baggage for name, row in dialects.DIALECTS.items() if name != "baggage")
