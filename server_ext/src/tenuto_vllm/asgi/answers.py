"""Requests to the extension's own routes, and their answers."""

from __future__ import annotations

import json
from http import HTTPStatus

from tenuto_vllm.asgi.types import Receive, Send
from tenuto_vllm.news import MOST_BYTES

Headers = tuple[tuple[bytes, bytes], ...]


async def read_body(receive: Receive, send: Send) -> bytes | None:
    """Return a body of at most `MOST_BYTES`.

    None for a client that has left, and for a longer one, which has been answered.
    """
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MOST_BYTES:
            said = f"The body is longer than {MOST_BYTES} bytes; send it in parts."
            await refuse(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said)
            return None
    return body


async def answer_json(send: Send, value: object, status: int = 200, headers: Headers = ()) -> None:
    """Send one JSON value."""
    named = [(b"content-type", b"application/json"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


async def refuse(send: Send, status: HTTPStatus, message: str, headers: Headers = ()) -> None:
    """Send a refusal in OpenAI's error shape."""
    kind = status.phrase.replace(" ", "") + "Error"
    error = {"message": message, "type": kind, "param": None, "code": int(status)}
    await answer_json(send, {"error": error}, status, headers)


async def refuse_method(send: Send, path: str, allowed: str) -> None:
    """Send a refusal of another method than the one that a route takes."""
    allow = ((b"allow", allowed.encode()),)
    await refuse(send, HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes {allowed}.", allow)
