"""Looking after the servers: up or down, warmed up, and alike."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from tenuto_vllm import logs
from tenuto_vllm.pd import stages
from tenuto_vllm.pd.alike import cache_tokens, differences, facts, untold
from tenuto_vllm.pd.fleet import Fleet, Server
from tenuto_vllm.pd.options import Options
from tenuto_vllm.pd.upstream import Unreachable, Upstreams
from tenuto_vllm.placement.split import Copies

_LOOK_S = 5.0
# A server under load may be slow to say that it is well.
_SLOW_LOOKS = 3
_SLOW = frozenset({"TimeoutError"})
# The first hand-off of a server compiles kernels and shakes hands.
_WARM_S = 300.0
_WARM_TEXT = "Warm up. " * 64
_UNTRIED = "not handed over yet"


class Watch:
    """Keeps `fleet` true.

    A decode server whose first work is what follows a transfer may die of it (AMX CPUs), so
    each server answers an ordinary request before any other, and each prefill server then
    hands one over to each decode server, if both are alike.
    """

    def __init__(
        self, options: Options, fleet: Fleet, upstreams: Upstreams, copies: Copies
    ) -> None:
        self._options = options
        self._fleet = fleet
        self._upstreams = upstreams
        self._copies = copies
        # How often a decode server has become ready.
        self._joined = 0
        self._headers = [(b"content-type", b"application/json")]
        if options.key:
            self._headers.append((b"authorization", f"Bearer {options.key}".encode()))

    async def run(self) -> None:
        """Look after all servers until it is cancelled."""
        await asyncio.gather(*(self._follow(one) for one in self._fleet.all()))

    def down(self, server: Server) -> None:
        """Take a server that did not answer out, until it does."""
        if server.is_up:
            logs.tell(logging.WARNING, "server_down", role=server.role, url=server.url)
        server.is_up = False

    def doubt(self, source: Server) -> None:
        """Let a prefill server hand nothing over until a hand-off is tried and ends."""
        if not source.problem:
            self._refuse(source, "a hand-off took too long")

    async def _follow(self, server: Server) -> None:
        slow, is_missed = 0, False
        while True:
            try:
                await self._look(server)
                slow = 0
            except Unreachable as error:
                slow += 1
                if slow >= _SLOW_LOOKS or str(error) not in _SLOW:
                    self.down(server)
                if not is_missed and not server.began:
                    # It may be starting still; said once, and then when it is ready.
                    is_missed = True
                    logs.tell(
                        logging.INFO,
                        "server_missing",
                        role=server.role,
                        url=server.url,
                        kind=str(error),
                    )
            except Exception as error:
                # Whatever a server says, the others are looked after.
                logs.tell(logging.WARNING, "look_failed", url=server.url, kind=type(error).__name__)
            self._upstreams.sweep()
            await asyncio.sleep(self._options.look_every_s)

    async def _look(self, server: Server) -> None:
        status, _ = await self._get(server, "/health")
        if status != 200:
            self.down(server)
            return
        _, metrics = await self._get(server, "/metrics")
        if server.seen(metrics):
            # It has begun anew, with an empty cache and nothing compiled.
            self._copies.lost(server.url)
            if (tokens := cache_tokens(metrics)) is not None:
                self._copies.sized(server.url, tokens)
            server.is_ready, server.problem = False, _UNTRIED
        server.is_up = True
        if not server.is_ready:
            await self._warm(server, metrics)
        if server.role == "prefill" and server.is_ready and server.problem:
            await self._match(server)

    async def _warm(self, server: Server, metrics: bytes) -> None:
        _, models = await self._get(server, "/v1/models")
        _, version = await self._get(server, "/version")
        server.facts = facts(version, models, metrics)
        body = self._body(server, models)
        status, _ = await self._post(server, body)
        if status != 200:
            problem = f"a first request was answered with {status}"
            if server.problem != problem:
                logs.tell(logging.WARNING, "warm_up_failed", url=server.url, status=status)
            server.problem = problem
            return
        # What the extension tells is there from its first request on.
        _, metrics = await self._get(server, "/metrics")
        server.facts = facts(version, models, metrics)
        told = server.facts.get("block_size")
        if told not in (None, str(self._copies.block_size)):
            # What is cached is foretold in whole blocks.
            used = self._copies.block_size
            logs.tell(logging.WARNING, "block_size", url=server.url, told=told, used=used)
        server.is_ready, server.problem = True, _UNTRIED
        logs.tell(logging.INFO, "server_ready", role=server.role, url=server.url)
        if server.role == "decode":
            self._joined += 1
            for source in self._fleet.prefills:
                source.problem = source.problem or _UNTRIED

    async def _match(self, source: Server) -> None:
        """Compare a prefill server with the decode servers, and hand each of them a prompt."""
        joined, ready = self._joined, [one for one in self._fleet.decodes if one.is_fit]
        for target in ready:
            if differing := differences(source.facts, target.facts):
                self._refuse(source, f"differs in {', '.join(differing)}", target)
                return
            if missing := untold(source.facts, target.facts):
                logs.tell(logging.INFO, "not_compared", url=source.url, names=missing)
            if not await self._hand_over(source, target):
                self._refuse(source, "a hand-off failed", target)
                return
        # One that became ready meanwhile is tried at the next look.
        if ready and joined == self._joined:
            source.problem = ""
            logs.tell(logging.INFO, "hands_over", url=source.url, decodes=len(ready))

    def _refuse(self, source: Server, problem: str, target: Server | None = None) -> None:
        if source.problem != problem:
            to = {} if target is None else {"to": target.url}
            logs.tell(logging.WARNING, "no_hand_off", url=source.url, why=problem, **to)
        source.problem = problem

    async def _hand_over(self, source: Server, target: Server) -> bool:
        _, models = await self._get(source, "/v1/models")
        # Another text each time: what is cached would not be fetched.
        body = self._body(source, models, f"{time.time_ns()} {_WARM_TEXT}")
        status, answer = await self._post(source, stages.prefill(body, {}, None))
        transfer: Any = json.loads(answer).get(stages.PARAMS) if status == 200 else None
        if not transfer:
            return False
        deadline_s = time.time() + self._options.lease_s / 2
        body = stages.decode(body, {}, transfer, deadline_s, is_stream=False)
        try:
            status, _ = await self._post(target, body)
        except Unreachable:
            # Its own look says what it is; the prefill server has done its part.
            return False
        return status == 200

    def _body(self, server: Server, models: bytes, text: str = _WARM_TEXT) -> bytes:
        listed = json.loads(models)["data"]
        model = listed[0]["id"] if listed else server.url
        return json.dumps(
            {"model": model, "prompt": text, "max_tokens": 2, "temperature": 0}
        ).encode()

    async def _get(self, server: Server, path: str) -> tuple[int, bytes]:
        return await self._upstreams.read("GET", server.url + path, self._headers, wait_s=_LOOK_S)

    async def _post(self, server: Server, body: bytes) -> tuple[int, bytes]:
        url = server.url + "/v1/completions"
        return await self._upstreams.read("POST", url, self._headers, body, wait_s=_WARM_S)
