"""What vLLM's engine client tells of its ranks. Duck-typed: it imports nothing of vLLM."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

# Below it a queue is short-lived, and vLLM counts it as nothing more.
_FULL = 0.5
_FIT = "healthy"
# `vllm serve` makes this folder at each start for its API processes, if there are several.
_SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"


class VllmView:
    """`tenuto_vllm.model.EngineView` on vLLM's `AsyncLLM` (`app.state.engine_client`).

    Args:
        engine_client: the `AsyncLLM`.
    """

    def __init__(self, engine_client: Any) -> None:
        self.engine_client = engine_client
        self._instance = ""

    def ranks(self) -> int:
        """Return the ranks that a request of this API process may name, counted from 0.

        With a hybrid load balancer they are those of this node, with an external one its own.
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
        """Return 16 hex characters.

        All API processes of an endpoint make it of the same, and a restart changes it:

        | part | shared by |
        |---|---|
        | the coordinator's address | all endpoints of one data-parallel group |
        | the first rank that it addresses | the API processes of one endpoint |
        | the folder of their metrics; of a lone process its `instance_id` | the same |
        """
        if not self._instance:
            source = "|".join(map(str, self._source()))
            self._instance = hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
        return self._instance

    def _source(self) -> tuple[str | None, int, str]:
        core = self.engine_client.engine_core
        address: str | None = getattr(core, "stats_update_address", None)
        own: str = self.engine_client.vllm_config.instance_id
        if getattr(core, "client_count", 1) > 1:
            # Each process has another `instance_id`.
            own = os.environ.get(_SHARED_FOLDER, "" if address else own)
        return address, next(iter(getattr(core, "engine_ranks_managed", ())), 0), own

    def capacity(self) -> int | None:
        """Return the tokens that each rank's cache holds; None before the engine has said it.

        Of a vLLM that does not say it of one engine, the blocks of all are shared out.
        """
        config = self.engine_client.vllm_config.cache_config
        told: int | None = getattr(config, "kv_cache_size_tokens", None)
        if told:
            return told
        blocks, size = config.num_gpu_blocks, config.block_size
        engines = len(getattr(self.engine_client.engine_core, "core_engines", ())) or 1
        return blocks * size // engines if blocks and size else None

    def dead(self) -> frozenset[int]:
        """Return the ranks that vLLM's fault tolerance takes for unfit, counted as in `ranks`.

        Without `--enable-fault-tolerance` it watches none: an engine's death ends the server.
        """
        core = self.engine_client.engine_core
        told = getattr(core, "_engine_status", None)
        if not told:
            return frozenset()
        managed = getattr(core, "engine_ranks_managed", range(len(told)))
        return frozenset(
            index
            for index, rank in enumerate(managed)
            if told.get(rank, {}).get("status", _FIT) != _FIT
        )

    def loads(self) -> Sequence[float]:
        """Return the load of each rank by vLLM's own rule, shape (ranks,).

        The rule is that of `DPLBAsyncMPClient.get_core_engine_for_request` (0.32): the
        larger of this process's unfinished requests times the number of API processes
        and the coordinator's snapshot (every 100 ms), plus up to three times the
        waiting requests as the KV cache fills. Of a rank alone, the first of the two.
        """
        core = self.engine_client.engine_core
        if len(getattr(core, "core_engines", ())) <= 1:
            unfinished = self.engine_client.output_processor.get_num_unfinished_requests()
            return [float(core.client_count * unfinished)]
        # `get`, since a Counter makes up its zeros in Python.
        get, clients = core.engine_inflight.get, core.client_count
        return [
            (own if (own := clients * get(engine, 0)) > waiting + running else waiting + running)
            + (waiting * 6.0 * (kv_usage - _FULL) if kv_usage > _FULL and waiting else 0)
            for engine, (waiting, running, kv_usage) in zip(
                core.core_engines, core.lb_engines, strict=False
            )
        ]
