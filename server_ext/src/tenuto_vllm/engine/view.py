"""What vLLM's engine client tells of its ranks. Duck-typed: it imports nothing of vLLM."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

# Below it a queue is short-lived, and vLLM counts it as nothing more.
_FULL = 0.5


class VllmView:
    """`tenuto_vllm.model.EngineView` on vLLM's `AsyncLLM` (`app.state.engine_client`)."""

    def __init__(self, engine_client: Any) -> None:
        self.engine_client = engine_client
        self._instance: tuple[object, str] = (None, "")

    def ranks(self) -> int:
        """Return the ranks that a request of this API process may name.

        With an external load balancer a process addresses its own engine only.
        """
        core = self.engine_client.engine_core
        engines = len(getattr(core, "core_engines", ())) or 1
        if engines == 1:
            return 1
        parallel = self.engine_client.vllm_config.parallel_config
        local_only = getattr(parallel, "local_engines_only", False)
        sized = parallel.data_parallel_size_local if local_only else parallel.data_parallel_size
        return max(1, min(engines, sized))

    def instance(self) -> str:
        """Return a name made of the coordinator's address, 16 hex characters.

        All API processes of a server share that address and a restart changes it,
        whereas `vllm_config.instance_id` differs between the processes of one server.
        """
        core = self.engine_client.engine_core
        address = getattr(core, "stats_update_address", None)
        if self._instance[0] != address or not self._instance[1]:
            source = address or getattr(self.engine_client.vllm_config, "instance_id", "")
            digest = hashlib.blake2b(str(source).encode(), digest_size=8).hexdigest()
            self._instance = (address, digest)
        return self._instance[1]

    def capacity(self) -> int | None:
        """Return the tokens that each rank's cache holds; None before the engine has said it.

        The API process adds the blocks of all engines up as they report.
        """
        config = self.engine_client.vllm_config
        blocks = config.cache_config.num_gpu_blocks
        size = config.cache_config.block_size
        engines = len(getattr(self.engine_client.engine_core, "core_engines", ())) or 1
        return blocks * size // engines if blocks and size else None

    def loads(self) -> Sequence[float]:
        """Return the load of each rank by vLLM's own rule, shape (ranks,).

        The rule is that of `DPLBAsyncMPClient.get_core_engine_for_request` (0.32): the
        larger of this process's unfinished requests times the number of API processes
        and the coordinator's snapshot (every 100 ms), plus up to three times the
        waiting requests as the KV cache fills.
        """
        core = self.engine_client.engine_core
        # `get`, since a Counter makes up its zeros in Python.
        get, clients = core.engine_inflight.get, core.client_count
        return [
            float(
                own if (own := clients * get(engine, 0)) > waiting + running else waiting + running
            )
            + (waiting * 6.0 * (kv_usage - 0.5) if waiting and kv_usage > _FULL else 0.0)
            for engine, (waiting, running, kv_usage) in zip(
                core.core_engines, core.lb_engines, strict=False
            )
        ]
