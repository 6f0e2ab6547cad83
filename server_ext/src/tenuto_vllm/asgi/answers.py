"""Answers of the extension's own routes."""

from __future__ import annotations

import json
from http import HTTPStatus

from tenuto_vllm.asgi.types import Send


async def answer_json(
    send: Send, value: object, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send one JSON value."""
    named = [(b"content-type", b"application/json"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


async def refuse(
    send: Send, status: HTTPStatus, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a refusal in OpenAI's error shape."""
    kind = status.phrase.replace(" ", "") + "Error"
    error = {"message": message, "type": kind, "param": None, "code": int(status)}
    await answer_json(send, {"error": error}, status, headers)
