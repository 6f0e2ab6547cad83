"""Which requests are placed."""

from __future__ import annotations

from tenuto_vllm.asgi.types import Scope

GENERATION_PATHS = frozenset(
    {
        "/v1/chat/completions",
        "/v1/chat/completions/batch",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/cohere/v2/chat",
        "/inference/v1/generate",
        "/invocations",
    }
)


def path_of(scope: Scope) -> str:
    """Return the path below the server's `--root-path`, as Starlette routes it."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    below = path[len(root) :]
    return below if root and path.startswith(root) and below[:1] in {"", "/"} else path


def is_generation(scope: Scope) -> bool:
    """Tell whether an HTTP request runs a model and so has a rank."""
    return scope["method"] == "POST" and path_of(scope) in GENERATION_PATHS
