"""Inside an engine: `TurnScheduler`, which writes down what reaches it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from vllm.v1.engine.core import EngineCore

from tenuto_vllm import TurnScheduler
from tenuto_vllm.retention.hint import ACTION

FOLDER = "TENUTO_TEST_FOLDER"


def _write(what: str, value: Any) -> None:
    file = Path(os.environ[FOLDER]) / f"{what}-{os.getpid()}"
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(value) + "\n")


class Recorded(TurnScheduler):
    """For `--scheduler-cls`; its name says nothing of whose it is made of."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        scheduler = super().__new__(cls, *args, **kwargs)
        add_request, hear = scheduler.add_request, EngineCore.tenuto_told

        def told(core: Any, text: str) -> None:
            _write("told", json.loads(text))
            hear(core, text)

        EngineCore.tenuto_told = told

        def recorded(request: Any) -> None:
            actions = request.kv_hints.actions if request.kv_hints is not None else ()
            hints = [one.payload["hint"] for one in actions if one.action_type == ACTION]
            _write("requests", {"hints": hints, "session_id": request.session_id})
            add_request(request)

        scheduler.add_request = recorded
        return scheduler
