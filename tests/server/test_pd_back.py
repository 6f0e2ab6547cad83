"""What a decode server wrote is fetched for the prompt that goes on with it, and for no other."""

from __future__ import annotations

import pytest

from tests.server.pd_fakes import SESSION, TRANSFER, WRITTEN, FakeServer, stack

BACK = {**TRANSFER, "do_remote_prefill": False, "do_remote_decode": True, "remote_num_tokens": 101}
PROMPT = list(range(100))
GOES_ON = [*PROMPT, *WRITTEN, 1, 2, 3]


@pytest.fixture
def prefill():
    return FakeServer("prefill")


@pytest.fixture
def decode():
    one = FakeServer("decode")
    one.back = BACK
    return one


def fetched(app, prefill, first, second):
    """Ask two turns; return what the prefill server is told to fetch for the second."""
    headers = {"X-Session-ID": SESSION}
    for more in (first, second):
        body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 8, "return_token_ids": True}
        answer = app.client.post("/v1/completions", json={**body, **more}, headers=headers)
        assert answer.status_code == 200
    body, _ = prefill.asked[-1]
    return body["kv_transfer_params"].get("remote_num_tokens")


def test_a_prompt_that_goes_on_is_fetched_once(prefill, decode):
    with stack([prefill], [decode], always="remote", is_bidirectional=True) as app:
        assert fetched(app, prefill, {}, {"prompt": GOES_ON}) == 101
        assert prefill.asked[-1][0]["kv_transfer_params"] == BACK
        decode.back = None
        assert fetched(app, prefill, {"prompt": GOES_ON}, {"prompt": [*GOES_ON, 4]}) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"prompt": [9, *GOES_ON[1:]]}),
        ({}, {"prompt": [*PROMPT, WRITTEN[0], 9, 1, 2]}),
        ({}, {"prompt": [*PROMPT, WRITTEN[0]]}),
        ({}, {"prompt": [7] * 200}),
        ({}, {"prompt": "a" * 800}),
        ({}, {"prompt": GOES_ON, "model": "other"}),
        ({}, {"prompt": GOES_ON, "cache_salt": "b"}),
        ({"cache_salt": "a"}, {"prompt": GOES_ON}),
        ({"return_token_ids": False}, {"prompt": GOES_ON}),
        ({"prompt": "a" * 400}, {"prompt": GOES_ON}),
        ({"stream": True}, {"prompt": GOES_ON}),
    ],
)
def test_what_is_not_seen_to_go_on_is_computed_again(prefill, decode, first, second):
    with stack([prefill], [decode], always="remote", is_bidirectional=True) as app:
        assert fetched(app, prefill, first, second) is None


def test_an_answer_of_fewer_tokens_than_were_written_is_not_gone_on_with(prefill, decode):
    decode.writes = 3
    with stack([prefill], [decode], always="remote", is_bidirectional=True) as app:
        assert fetched(app, prefill, {}, {"prompt": GOES_ON}) is None


def test_a_prompt_that_was_cut_is_not_gone_on_with(prefill, decode):
    decode.cuts = 3
    with stack([prefill], [decode], always="remote", is_bidirectional=True) as app:
        assert fetched(app, prefill, {}, {"prompt": GOES_ON}) is None
