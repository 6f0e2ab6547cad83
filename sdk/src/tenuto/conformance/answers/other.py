"""What runs no model: embeddings, the list of models, counts, conversations, errors."""

from __future__ import annotations

from typing import Any

from tenuto.conformance.shapes import record, sequence, text

_MODEL = "tenuto-conformance"


def answer(method: str, path: str, body: Any, number: int) -> tuple[int, dict[str, Any]]:
    """Return status and body for a request that runs no model."""
    found = _posted(path, record(body), number) if method == "POST" else _got(path)
    if found is None:
        return 404, error("not_found_error", f"the conformance server has no {method} {path}")
    return 200, found


def error(kind: str, message: str) -> dict[str, Any]:
    """Return an error that clients of every API can read."""
    return {"type": "error", "error": {"type": kind, "code": kind, "message": message}}


def _posted(path: str, body: dict[str, Any], number: int) -> dict[str, Any] | None:
    if path.endswith("/embeddings"):
        return _embeddings(body)
    if path.endswith("/messages/count_tokens"):
        return {"input_tokens": len(str(body)) // 4}
    if path.endswith("/conversations"):
        return {"id": f"conv_{number}", "object": "conversation", "created_at": 1}
    # What a client of protocol 1 tells a server between its turns.
    return {} if path.startswith("/tenuto/") else None


def _got(path: str) -> dict[str, Any] | None:
    if path.endswith("/models"):
        return {"object": "list", "data": [_model(_MODEL)], "has_more": False}
    if "/models/" in path:
        return _model(path.rpartition("/")[2])
    return {"status": "ok"} if path in {"/", "/v1", "/health"} else None


def _embeddings(body: dict[str, Any]) -> dict[str, Any]:
    given = sequence(body.get("input"))
    count = len(given) if given and not isinstance(given[0], int) else 1
    rows = [{"object": "embedding", "index": i, "embedding": [0.0, 1.0]} for i in range(count)]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    model = text(body.get("model")) or _MODEL
    return {"object": "list", "model": model, "data": rows, "usage": usage}


def _model(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "display_name": name,
        "created": 1_750_000_000,
        "created_at": "2026-01-01T00:00:00Z",
        "owned_by": "tenuto",
    }
