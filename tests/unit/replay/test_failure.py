"""A failed call's words: what the server said, without what must not be printed."""

from __future__ import annotations

import pytest
from openai import APIConnectionError, APIStatusError

from tenuto.replay.failure import failure_text
from tests.loopback import openai_http

REQUEST = openai_http.Request("POST", "http://a/v1/completions")


def status_error(status: int, body: object) -> APIStatusError:
    response = openai_http.Response(status, request=REQUEST)
    return APIStatusError(f"Error code: {status} - {body}", response=response, body=body)


@pytest.mark.parametrize(
    "body",
    [
        {"message": "The model `nope` does not exist.", "type": "NotFoundError"},
        {"error": {"message": "The model `nope` does not exist."}},
        {"detail": "The model `nope` does not exist."},
    ],
)
def test_the_servers_own_message_is_told_behind_class_and_status(body: object) -> None:
    assert failure_text(status_error(404, body)) == (
        "APIStatusError 404: The model `nope` does not exist."
    )


def test_a_connection_that_fails_has_its_reason() -> None:
    error = APIConnectionError(request=REQUEST)
    error.__cause__ = OSError("no route to host")
    assert failure_text(error) == "APIConnectionError: Connection error. (no route to host)"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abc123",
        "Bearer abcdef",
        "3f0c1f6e-8f5e-4d7c-9a57-0d4c6f2b1a90",
        "cmpl-0123456789abcdef",
        "a1b2c3d4e5f6a7b8c9d0",
    ],
)
def test_ids_and_keys_are_not_told(secret: str) -> None:
    text = failure_text(status_error(401, {"message": f"what is {secret}, please?"}))
    assert secret not in text
    assert text.startswith("APIStatusError 401: what is …")


def test_a_page_of_html_is_cut_short_and_on_one_line() -> None:
    text = failure_text(status_error(502, "<html>\n" + "<p>bad gateway</p>\n" * 100))
    assert len(text) < 300
    assert "\n" not in text
    assert text.endswith("…")
