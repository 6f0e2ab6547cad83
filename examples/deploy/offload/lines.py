"""A connector that writes what becomes of leases, for a KV manager in another process.

With this folder on `PYTHONPATH`:

    --kv-transfer-config '{"kv_connector": "LinesConnector", "kv_connector_module_path": "lines",
        "kv_role": "kv_both", "kv_connector_extra_config":
            {"cpu_bytes_to_use": 68719476736, "lease_events": "/run/leases.jsonl"}}'

It writes in the scheduler's thread, so that a slow disk would slow the engine.
"""

from __future__ import annotations

import json
import os
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector


class Lines:
    """For a connector: appends one JSON object a line to the file `lease_events`."""

    _file: int | None = None

    def on_tenuto_event(self, event: Any) -> None:
        """Write one event; an error ends them, and fails no request."""
        connector: Any = self
        line = event._asdict()
        line["rank"] = connector._vllm_config.parallel_config.data_parallel_index
        line["boundaries"] = [boundary._asdict() for boundary in event.boundaries]
        if self._file is None:
            config = connector._kv_transfer_config.kv_connector_extra_config
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._file = os.open(config["lease_events"], flags, 0o600)
        # A line at once, since the engines of several ranks write to one file.
        os.write(self._file, json.dumps(line, default=bytes.hex).encode() + b"\n")


class LinesConnector(Lines, OffloadingConnector):
    """vLLM's own tier in host memory, with lines."""
