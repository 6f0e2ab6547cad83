"""Who is sent what."""

from __future__ import annotations

import openai
import pytest

import tenuto
from tenuto import _wire, dialects


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "::1",
        "localhost",
        "vllm",
        "10.1.2.3",
        "100.64.0.7",
        "gpu.tail1234.ts.net",
        "192.168.0.9",
        "gpu.internal",
        "vllm.ml.svc",
        "a.local",
    ],
)
def test_a_private_host_is_sent_the_whole_protocol(host: str) -> None:
    assert dialects.for_host(host) is dialects.VLLM


@pytest.mark.parametrize("host", ["llm.company.com", "8.8.8.8", "notapi.openai.com.evil.net"])
def test_an_unknown_public_host_is_sent_the_session_headers_only(host: str) -> None:
    sent = {name.decode() for name in dialects.for_host(host).headers}
    assert sent == {_wire.SESSION, _wire.SESSION_AFFINITY, _wire.PARENT}


@pytest.mark.parametrize("host", ["api.openai.com", "x.openai.azure.com", "API.OpenAI.com."])
def test_a_public_api_is_sent_an_opaque_session_id_and_nothing_else(host: str) -> None:
    assert dialects.for_host(host).headers == {_wire.SESSION.encode()}


def test_an_unknown_dialect_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(tenuto.ConfigError, match="vllm, generic, public"):
        tenuto.wrap(openai.OpenAI(api_key="k"), dialect="vlm")
