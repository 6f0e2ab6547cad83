"""Two real vLLM servers with NIXL on this machine's CPUs: one prefills, one decodes."""

from __future__ import annotations

import json
import os
import random
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from examples.demo.engines import vllm_server
from examples.demo.processes import Server, free_ports
from examples.demo.tiny_model import make_tiny_model
from tests.vllm.processes import alive_in_group
from tests.vllm.tiny_models import write_weights

BLOCK = 32
LEASE_S = 12
"""Short, so that a test need not wait long for it to end; vLLM's own is 30.

On few cores it cannot be much shorter: a hand-off waits seconds for its turn.
"""
PREFILL_BLOCKS = 640

_READ = {
    "computed": r"prompt_tokens_by_source_total\{[^}]*local_compute",
    "cache_hits": r"prompt_tokens_by_source_total\{[^}]*local_cache_hit",
    "transferred": r"prompt_tokens_by_source_total\{[^}]*external_kv_transfer",
    "external_hits": r"external_prefix_cache_hits_total\{",
    "bytes": r"nixl_bytes_transferred_sum\{",
    "expired": r"nixl_num_kv_expired_reqs_total\{",
    "failed": r"nixl_num_failed_transfers_total\{",
    "kv_use": r"kv_cache_usage_perc\{",
}


class Pair(NamedTuple):
    """The two servers."""

    prefill: Server
    decode: Server


def make_model(folder: Path) -> Path:
    """Write a model whose answers depend on all of its prompt: random weights, not vLLM's own."""
    make_tiny_model(folder)
    write_weights(folder)
    return folder


@contextmanager
def server(
    model: Path, role: str, ports: list[int], *, is_stock: bool, **connector: Any
) -> Iterator[Server]:
    """Run one of the two.

    Args:
        model: its folder; both have to name it alike.
        role: `prefill` or `decode`.
        ports: on which it answers, and on which it tells the other where its blocks are.
        is_stock: it is started with nothing of ours.
        connector: of the connector's own settings.
    """
    ours = () if is_stock else ("--scheduler-cls", "tenuto_vllm.TurnScheduler")
    config = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer" if role == "prefill" else "kv_consumer",
        "kv_buffer_device": "cpu",
        "kv_connector_extra_config": {"kv_lease_duration": LEASE_S, **connector},
    }
    port, side = ports
    env = {
        "PYTHONPATH": str(Path(__file__).parent / "patient"),
        "UCX_TLS": "tcp",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side),
        "PYTHONHASHSEED": "0",
        "TENUTO_LOG": "info",
    }
    with vllm_server(
        ranks=1,
        middleware=() if is_stock else ("tenuto_vllm.TurnMiddleware",),
        block_size=BLOCK,
        num_blocks=PREFILL_BLOCKS if role == "prefill" else 4096,
        extra_args=(
            *("--model", str(model), "--load-format", "safetensors"),
            # In 16 bits two tokens are often equally likely, and the way a prompt is cut decides.
            *("--dtype", "float32"),
            *("--kv-transfer-config", json.dumps(config)),
            *ours,
        ),
        env=env,
        port=port,
    ) as started:
        yield started


def wait_last(server: Server) -> None:
    """Let what never sleeps go last: a thread of NIXL's takes a whole core in every worker."""
    for pid in alive_in_group(server.pid):
        for stat in Path(f"/proc/{pid}/task").glob("[0-9]*/stat"):
            with suppress(OSError):
                told, thread = stat.read_text().rpartition(")")[2].split(), int(stat.parent.name)
                ticks = int(told[11]) + int(told[12])
                if thread != pid and ticks > os.sysconf("SC_CLK_TCK"):
                    os.setpriority(os.PRIO_PROCESS, thread, 19)


@contextmanager
def pair(*, is_stock: bool = False, **connector: Any) -> Iterator[Pair]:
    """Run both; `TENUTO_PD_PAIR` may name two that run already, as `URL URL`."""
    given = os.environ.get("TENUTO_PD_PAIR")
    if given and not is_stock and not connector:
        urls = given.split()
        yield Pair(*(Server(url, 0, Path(os.devnull), 0.0) for url in urls))
        return
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="tenuto-pd-")))
        model = make_model(folder / "tiny")
        begun = time.monotonic()
        ports = free_ports(4)

        def start(role: str, mine: list[int]) -> Server:
            return running.enter_context(server(model, role, mine, is_stock=is_stock, **connector))

        # One that runs takes a whole core, and the other would take twice as long to start.
        with ThreadPoolExecutor() as starting:
            both = starting.map(start, ("prefill", "decode"), (ports[:2], ports[2:]))
        prefill, decode = both
        for one in (prefill, decode):
            # A first answer takes seconds longer, and a lease would end with it.
            ask(one.root_url, tokens(64, 0))
            wait_last(one)
        print(f"both are up after {time.monotonic() - begun:.0f} s")
        yield Pair(prefill, decode)


def counters(url: str) -> dict[str, float]:
    """Return what a server says that it has computed, found and fetched."""
    text = httpx.get(url + "/metrics", timeout=30, trust_env=False).text
    told = {}
    for name, pattern in _READ.items():
        found = re.findall(rf"^vllm:{pattern}.* (\S+)$", text, re.MULTILINE)
        told[name] = sum(map(float, found))
    return told


def since(url: str, before: Mapping[str, float]) -> dict[str, float]:
    """Return what has come since."""
    return {name: value - before[name] for name, value in counters(url).items()}


def tokens(count: int, seed: int) -> list[int]:
    """Return a prompt of letters, one token each."""
    letters = random.Random(seed)
    return [letters.randrange(97, 123) for _ in range(count)]


def ask(
    url: str, prompt: list[int], max_tokens: int = 16, headers: Any = None, **more: Any
) -> dict[str, Any]:
    """Return a greedy answer; `token_ids` are among it."""
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        **more,
    }
    answer = httpx.post(
        url + "/v1/completions", json=body, headers=headers, timeout=300, trust_env=False
    )
    return {"status": answer.status_code, **answer.json()}


def ids(answer: Mapping[str, Any]) -> list[int]:
    """Return the tokens of an answer."""
    return list(answer["choices"][0]["token_ids"])


def alone(url: str, prompt: list[int], max_tokens: int = 16) -> list[int]:
    """Return what a server answers that shares no block with anything: the reference."""
    salt = f"salt-{random.SystemRandom().random()}"
    return ids(ask(url, prompt, max_tokens, cache_salt=salt))
