"""What only the decode server has is fetched by the prefill server, on two real servers."""

from __future__ import annotations

import os

import pytest

from tests.loopback import eventually
from tests.pd.pair import BLOCK, alone, ask, counters, ids, pair, since, tokens
from tests.pd.script import COSTS, application

OUTPUT = 300
LEASE_S = 60
"""Longer than any wait on a loaded machine: what is fetched is measured, not what is late."""


@pytest.mark.skipif("TENUTO_PD_PAIR" in os.environ, reason="takes servers of its own")
def test_a_prefill_server_fetches_what_the_decode_server_wrote_and_computes_what_is_new():
    told, headers = [], {"X-Session-ID": "pd-bidirectional"}
    costs = COSTS._replace(is_bidirectional=True)
    options = {"always": "remote", "is_bidirectional": True, "lease_s": float(LEASE_S)}
    with (
        pair(bidirectional_kv_xfer=True, kv_lease_duration=LEASE_S) as servers,
        application(servers, told, costs=costs, **options) as (_, url),
    ):
        node, prompt = servers.prefill.root_url, tokens(3000, 1)
        for turn in range(3):
            before = counters(node)
            answer = ask(url, prompt, OUTPUT, {**headers, "X-Agent-Turn": f"n={turn}"})
            came = since(node, before)
            assert eventually(lambda turn=turn: len(told) == turn + 1)
            assert told[-1].prefiller == node
            assert ids(answer) == alone(servers.decode.root_url, prompt, OUTPUT)
            if turn:
                # What was written less the last token, from the last whole block of the prompt on.
                assert OUTPUT - BLOCK <= came["transferred"] < OUTPUT + BLOCK
                assert came["computed"] < 200 + 2 * BLOCK
            prompt = prompt + ids(answer) + tokens(200, turn + 2)
