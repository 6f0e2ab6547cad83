"""The Starlette application: routes, counts and the order of middleware."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tenuto_vllm.embedded import chat, completions, responses
from tenuto_vllm.embedded.answer import (
    Dialect,
    GenerationRoute,
    error_response,
    json_response,
)
from tenuto_vllm.embedded.clock import Clock
from tenuto_vllm.embedded.engine import Engine
from tenuto_vllm.embedded.errors import RequestError
from tenuto_vllm.embedded.settings import EngineSettings
from tenuto_vllm.model import EngineView

_GENERATION = {
    "/v1/chat/completions": Dialect(chat.read, chat.whole, chat.events),
    "/v1/completions": Dialect(completions.read, completions.whole, completions.events),
    "/v1/responses": Dialect(responses.read, responses.whole, responses.events),
}


def create_app(
    settings: EngineSettings | None = None,
    middleware: Sequence[type[Any]] = (),
    *,
    clock: Clock | None = None,
) -> Starlette:
    """Return an application with an engine of its own.

    `app.state.tenuto_view` is the engine, an `EngineView`. One application belongs to one
    event loop.

    Args:
        settings: sizes and speeds; the defaults if None.
        middleware: ASGI middleware classes, added as vLLM adds those of its `--middleware`:
            the last one is outermost.
        clock: where the engine's time comes from; the event loop by default.
    """
    engine = Engine(settings or EngineSettings(), clock)
    routes = [
        Route("/health", _health, methods=["GET"]),
        Route("/v1/models", _models, methods=["GET"]),
        Route("/stats", _stats, methods=["GET"]),
        Route("/reset_prefix_cache", _reset_prefix_cache, methods=["POST"]),
        *(
            Route(path, GenerationRoute(engine, dialect), methods=["POST"])
            for path, dialect in _GENERATION.items()
        ),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
    view: EngineView = engine
    app.state.tenuto_view = view
    for cls in middleware:
        app.add_middleware(cls)
    return app


def _engine(request: Request) -> Engine:
    return request.app.state.tenuto_view


async def _health(request: Request) -> Response:
    return Response()


async def _models(request: Request) -> Response:
    settings = _engine(request).settings
    model = {
        "id": settings.served_model_name,
        "object": "model",
        "created": 0,
        "owned_by": "tenuto",
        "max_model_len": settings.max_model_len,
    }
    return json_response({"object": "list", "data": [model]})


async def _stats(request: Request) -> Response:
    engine = _engine(request)
    ranks = [{"rank": rank, **stats} for rank, stats in enumerate(engine.stats())]
    return json_response({"instance": engine.instance(), "ranks": ranks})


async def _reset_prefix_cache(request: Request) -> Response:
    return json_response({"success": _engine(request).reset_prefix_cache()})


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    status = HTTPStatus(error.status_code)
    return error_response(RequestError(error.detail, status=status))
