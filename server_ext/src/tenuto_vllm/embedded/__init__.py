"""An OpenAI-shaped server with several ranks and no model: first steps and comparisons."""

from __future__ import annotations

try:
    import numpy as _numpy
    import starlette as _starlette
    import uvicorn as _uvicorn
except ModuleNotFoundError as error:
    raise ImportError(
        f"tenuto_vllm.embedded needs {error.name}: pip install 'tenuto-vllm[embedded]'"
    ) from error

from tenuto_vllm.embedded.app import create_app
from tenuto_vllm.embedded.clock import Clock, RealClock, VirtualClock
from tenuto_vllm.embedded.engine import Engine, Generation
from tenuto_vllm.embedded.errors import RequestError
from tenuto_vllm.embedded.latency import Latency
from tenuto_vllm.embedded.server import serve
from tenuto_vllm.embedded.settings import Answers, EngineSettings
from tenuto_vllm.embedded.tokens import Call as ToolCall

__all__ = [
    "Answers",
    "Clock",
    "Engine",
    "EngineSettings",
    "Generation",
    "Latency",
    "RealClock",
    "RequestError",
    "ToolCall",
    "VirtualClock",
    "create_app",
    "serve",
]
del _numpy, _starlette, _uvicorn
