"""What a request can be refused for, in OpenAI's error shape."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

# vLLM's names for the statuses that this engine answers with.
_TYPES = {
    HTTPStatus.BAD_REQUEST: "BadRequestError",
    HTTPStatus.NOT_FOUND: "NotFoundError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableError",
}


class RequestError(Exception):
    """A request that is refused; its message is meant for the caller.

    Attributes:
        message: what is wrong, with the value, the limit and the way out.
        status: HTTP status, 4xx or 503.
        param: the body's field that is wrong, if it is one.
    """

    def __init__(
        self,
        message: str,
        *,
        status: HTTPStatus = HTTPStatus.BAD_REQUEST,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param


def error_body(error: RequestError) -> dict[str, Any]:
    """Return the JSON body of a refusal: `{"error": {message, type, param, code}}`."""
    return {
        "error": {
            "message": error.message,
            "type": _TYPES.get(error.status, error.status.phrase.replace(" ", "") + "Error"),
            "param": error.param,
            "code": int(error.status),
        }
    }
