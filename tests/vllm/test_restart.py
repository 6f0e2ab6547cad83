"""An engine process is killed under load, and the server started again at its address."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import openai

import tenuto
from examples.demo.engines import vllm_server
from tests.loopback import eventually

from .conftest import OBSERVER
from .processes import alive_in_group

SIZE = {
    "ranks": 2,
    "num_blocks": 2048,
    "middleware": ("tenuto_vllm.TurnMiddleware", OBSERVER),
}
SESSIONS, TURNS = 6, 14


class Program:
    """A session a thread, whose calls openai's own retries make until they are answered."""

    def __init__(self, base_url: str) -> None:
        client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=90, timeout=60)
        self._client = tenuto.wrap(client)
        self._run = tenuto.run()
        self.served: list[list[tuple[str, str]]] = [[] for _ in range(SESSIONS)]
        self._threads = [
            threading.Thread(target=self._session, args=(number,), daemon=True)
            for number in range(SESSIONS)
        ]
        for thread in self._threads:
            thread.start()

    def end(self, timeout_s: float) -> None:
        for thread in self._threads:
            thread.join(timeout_s)

    def _session(self, number: int) -> None:
        with self._run.agent(f"agent-{number}"):
            prompt = f"{number} policy " * 60
            for turn in range(TURNS):
                prompt += f"turn {turn}: evidence " * 8
                answer = self._client.chat.completions.with_raw_response.create(
                    model="tiny", messages=[{"role": "user", "content": prompt}], max_tokens=4
                )
                token = answer.headers["x-agent-affinity"]
                self.served[number].append((token, answer.headers["x-engine-rank"]))


def engine_of(server_pid: int) -> int:
    """Return the process id of one of a server's engines."""
    for pid in alive_in_group(server_pid):
        with suppress(OSError):
            if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text():
                return pid
    raise LookupError("the server has no engine process")


def test_all_sessions_go_on_after_a_killed_engine_and_a_restart_and_are_rehomed_once():
    with vllm_server(**SIZE) as server:
        program = Program(server.base_url)
        assert eventually(lambda: min(map(len, program.served)) >= 3, timeout_s=120)
        os.kill(engine_of(server.pid), signal.SIGKILL)
    with vllm_server(**SIZE, port=urlsplit(server.root_url).port):
        program.end(timeout_s=120)
    assert [len(served) for served in program.served] == [TURNS] * SESSIONS
    for served in program.served:
        assert all(token.endswith(f".{rank}") for token, rank in served)
        moves = sum(one != other for one, other in itertools.pairwise(served))
        assert moves == 1
    assert {served[-1][1] for served in program.served} == {"0", "1"}
