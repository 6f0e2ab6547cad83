"""What goes wrong between two real servers, and what a client sees of it: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from examples.demo.processes import Server
from tenuto_vllm.engine.transfers import DEADLINE
from tenuto_vllm.pd import stages
from tests.loopback import eventually
from tests.pd.pair import LEASE_S, PREFILL_BLOCKS, alone, ask, counters, ids, pair, since, tokens
from tests.pd.script import application
from tests.vllm.processes import alive_in_group

ASK = json.loads(stages.prefill(b'{"a":1}', {}, None))[stages.PARAMS]
HEADERS = {"X-Session-ID": "pd-failures-0001"}


def handed(servers, prompt):
    """Have a prompt computed; return what the decode server is to be given."""
    answer = ask(servers.prefill.root_url, prompt, 1, kv_transfer_params=ASK)
    return answer["kv_transfer_params"]


def outlived(servers, before, seed):
    """Wait for a lease to end and let other prompts take all blocks of the prefill server.

    `before`: what that server counted before it gave the lease.
    """
    url = servers.prefill.root_url

    def is_over():
        # A server that does nothing does not count.
        ask(url, tokens(8, seed), 1)
        return since(url, before)["expired"] >= 1

    assert eventually(is_over, 60)
    for number in range(2):
        ask(url, tokens(14_000, seed + number), 1)


def test_stock_servers_answer_a_late_transfer_with_wrong_tokens_and_keep_them():
    with pair(is_stock=True) as servers:
        url = servers.decode.root_url
        # The two have met: what is seen to fail is answered 500.
        ask(url, tokens(400, 99), kv_transfer_params=handed(servers, tokens(400, 99)))
        prompt = tokens(3000, 100)
        right = alone(url, prompt)
        before = counters(servers.prefill.root_url)
        transfer = handed(servers, prompt)
        assert DEADLINE not in transfer
        outlived(servers, before, 101)
        late = ask(url, prompt, kv_transfer_params=transfer)
        again = ask(url, prompt)
    assert late["status"] == 200
    assert ids(late) != right
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 2900
    assert ids(again) != right


def test_with_the_extension_on_both_a_late_transfer_is_dropped_and_the_prompt_computed(servers):
    url = servers.decode.root_url
    prompt = tokens(3000, 110)
    right = alone(url, prompt)
    before = counters(servers.prefill.root_url)
    transfer = handed(servers, prompt)
    assert LEASE_S / 2 < transfer[DEADLINE] - time.time() < LEASE_S
    outlived(servers, before, 111)
    before = counters(url)
    late = ask(url, prompt, kv_transfer_params=transfer)
    came = since(url, before)
    again = ask(url, prompt)
    assert ids(late) == right
    assert (came["computed"], came["external_hits"]) == (3000, 0)
    assert ids(again) == right


class Way:
    """A way to a server, on which one request can be held up as by a network or a queue."""

    def __init__(self, server: Server) -> None:
        self._port = int(server.root_url.rpartition(":")[2])
        self.hold_up = b""
        self.may_pass = threading.Event()

    async def _one(self, reader: Any, writer: Any) -> None:
        up, down = await asyncio.open_connection("127.0.0.1", self._port)

        async def there() -> None:
            while part := await reader.read(1 << 20):
                if self.hold_up and self.hold_up in part:
                    self.hold_up = b""
                    # A connection on which a request begins is not closed as idle.
                    down.write(part[:1])
                    part = part[1:]
                    await asyncio.to_thread(self.may_pass.wait, 120)
                down.write(part)
            down.close()

        async def back() -> None:
            while part := await up.read(1 << 20):
                writer.write(part)
            writer.close()

        try:
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(there(), back())
        finally:
            for one in (down, writer):
                one.close()

    async def _serve(self, started: queue.Queue[Any]) -> None:
        server = await asyncio.start_server(self._one, "127.0.0.1", 0)
        over = asyncio.Event()
        port = server.sockets[0].getsockname()[1]
        started.put((f"http://127.0.0.1:{port}", asyncio.get_running_loop(), over))
        await over.wait()
        server.close()
        ways = asyncio.all_tasks() - {asyncio.current_task()}
        for one in ways:
            one.cancel()
        await asyncio.gather(*ways, return_exceptions=True)

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        started: queue.Queue[Any] = queue.Queue()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)))
        thread.start()
        url, loop, over = started.get(timeout=10)
        try:
            yield url
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join(10)


@contextlib.contextmanager
def held_up(servers, told, **options):
    """Serve the application with a way to the decode server; yields the way and its URL."""
    way = Way(servers.decode)
    with way.running() as root_url:
        behind = servers._replace(decode=replace(servers.decode, root_url=root_url))
        with application(behind, told, always="remote", **options) as (app, url):
            yield way, app, url


def test_a_hand_over_that_is_held_up_on_its_way_is_answered_right(servers):
    prompt = tokens(3000, 120)
    right = alone(servers.decode.root_url, prompt)
    with held_up(servers, told := []) as (way, _, url), ThreadPoolExecutor() as pool:
        before = counters(servers.decode.root_url)
        prefill = counters(servers.prefill.root_url)
        way.hold_up = b"remote_block_ids"
        asked = pool.submit(ask, url, prompt, headers=HEADERS)
        outlived(servers, prefill, 121)
        way.may_pass.set()
        answer = asked.result()
    assert [one.fallback for one in told] == [""]
    assert ids(answer) == right
    assert since(servers.decode.root_url, before)["computed"] == 3000


def nothing_is_stranded(server, lease_s=LEASE_S):
    """Whether no block is in use, once the lease of what nobody fetched is over."""
    return eventually(lambda: counters(server.root_url)["kv_use"] == 0, lease_s + 10)


def kill(server):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    assert eventually(lambda: not alive_in_group(server.pid), 60)


@pytest.mark.skipif("TENUTO_PD_PAIR" in os.environ, reason="kills a server")
def test_a_prefill_server_that_dies_costs_no_client_an_error():
    """It dies once: while one answer is streamed, and between the stages of another."""
    streamed, held, told, lease_s = tokens(2000, 130), tokens(2000, 131), [], 30.0
    with (
        pair(kv_lease_duration=int(lease_s)) as servers,
        held_up(servers, told, lease_s=lease_s) as (way, app, url),
    ):
        right = [alone(servers.decode.root_url, one, 200) for one in (streamed, held)]
        body = {"model": "tiny", "prompt": streamed, "max_tokens": 200, "stream": True}
        body |= {"temperature": 0, "ignore_eos": True, "return_token_ids": True}
        with (
            ThreadPoolExecutor() as pool,
            httpx.stream("POST", url + "/v1/completions", json=body, timeout=200) as answer,
        ):
            lines = answer.iter_lines()
            got = [next(lines)]
            way.hold_up = b"remote_block_ids"
            asked = pool.submit(ask, url, held, 200, HEADERS)
            assert eventually(lambda: not way.hold_up, 60)
            kill(servers.prefill)
            way.may_pass.set()
            got += lines
            other = asked.result()
        events = [json.loads(line[6:]) for line in got if line.startswith("data: {")]
        written = [one for each in events for one in each["choices"][0]["token_ids"] or ()]
        assert (written, ids(other)) == tuple(right)
        assert eventually(lambda: len(told) == 2)
        assert sorted(bool(one.fallback) for one in told) == [False, True]

        # The next turn finds it gone.
        assert ask(url, tokens(2000, 132), headers=HEADERS)["status"] == 200
        assert eventually(lambda: not app.fleet.prefills[0].is_up)
        assert told[-1].prefiller != servers.prefill.root_url
        assert nothing_is_stranded(servers.decode, lease_s)


def test_blocks_that_nobody_fetches_are_free_after_the_lease(servers):
    url = servers.prefill.root_url
    before = counters(url)
    handed(servers, tokens(3000, 140))
    assert counters(url)["kv_use"] > 90 / PREFILL_BLOCKS
    assert eventually(lambda: since(url, before)["expired"] == 1, LEASE_S + 60)
    assert nothing_is_stranded(servers.prefill)
