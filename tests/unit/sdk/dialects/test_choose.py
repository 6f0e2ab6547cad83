"""Which dialect is chosen: argument, environment, host, protocol."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tenuto import ConfigError, dialects
from tenuto.dialects.choose import choose
from tenuto.dialects.hosts import HOSTS


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "::1", "localhost", "vllm", "10.1.2.3", "100.64.0.7", "192.168.0.9"),
        *("gpu.tail1234.ts.net", "gpu.internal", "vllm.ml.svc", "a.local", "x.test"),
    ],
)
def test_a_private_host_speaks_the_whole_protocol(host: str) -> None:
    assert dialects.for_host(host) is dialects.VLLM


@pytest.mark.parametrize(
    "host", ["llm.company.com", "8.8.8.8", "notapi.openai.com.evil.net", "xopenrouter.ai"]
)
def test_an_unknown_public_host_is_generic(host: str) -> None:
    assert dialects.for_host(host) is dialects.GENERIC


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.openai.com", "openai"),
        ("API.OpenAI.com.", "openai"),
        ("eu.api.openai.com", "openai"),
        ("x.openai.azure.com", "silent"),
        ("x.services.ai.azure.com", "silent"),
        ("api.anthropic.com", "anthropic"),
        ("generativelanguage.googleapis.com", "silent"),
        ("us-central1-aiplatform.googleapis.com", "silent"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "silent"),
        ("mine-1.us-east-1.elb.amazonaws.com", "generic"),
        ("api.mistral.ai", "mistral"),
        ("api.x.ai", "xai"),
        ("api.fireworks.ai", "fireworks"),
        ("openrouter.ai", "openrouter"),
        ("opencode.ai", "opencode-go"),
        ("api.groq.com", "silent"),
        ("api.cloudflare.com", "cloudflare"),
        ("gateway.ai.cloudflare.com", "silent"),
    ],
)
def test_a_public_api_is_sent_what_its_documentation_asks_for(host: str, name: str) -> None:
    assert dialects.for_host(host).name == name


def test_no_host_of_the_table_is_sent_a_header_of_protocol_1() -> None:
    for host, name in HOSTS.items():
        row = dialects.DIALECTS[name]
        assert not row.speaks_protocol, host
        assert row.echo == (), host
        assert not any(lower.startswith(b"x-agent-") for lower in row.sends), host


def test_the_argument_comes_first_then_the_environment_then_the_host() -> None:
    host = "api.openai.com"
    assert choose(None, None, host).name == "openai"
    assert choose(None, "dynamo", host).name == "dynamo"
    assert choose("smg", "dynamo", host).name == "smg"
    assert choose(dialects.VLLM, "dynamo", host, speaks_protocol=True) is dialects.VLLM


def test_an_unknown_host_that_answers_in_the_protocol_speaks_vllm() -> None:
    assert choose(None, None, "llm.company.com", speaks_protocol=True) is dialects.VLLM
    assert choose(None, None, "llm.company.com") is dialects.GENERIC
    assert choose(None, "generic", "llm.company.com", speaks_protocol=True) is dialects.GENERIC
    # A known API stays what its documentation says, whatever it answers.
    assert choose(None, None, "api.openai.com", speaks_protocol=True).name == "openai"


def test_a_bad_environment_value_is_ignored_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "tenuto"):
        for _ in range(3):
            assert choose(None, "vlmm,", "llm.company.com") is dialects.GENERIC
    [record] = caplog.records
    assert "TENUTO_DIALECT" in record.getMessage()
    assert "vllm-router" in record.getMessage()


def test_a_handler_that_raises_does_not_reach_the_request() -> None:
    class Bad(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError

    logger = logging.getLogger("tenuto")
    handler = Bad()
    logger.addHandler(handler)
    try:
        assert choose(None, "no such thing", "llm.company.com") is dialects.GENERIC
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("given", ["vlm", "", ",", "vllm,", "vllm,,smg", [], (), 3, [3], {}, None])
def test_an_unknown_dialect_is_refused_with_the_names_there_are(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"generic.*vllm.*vllm-router-pd.*litellm"):
        dialects.named(given)


def test_a_stack_may_be_text_a_list_or_hold_dialects() -> None:
    wanted = dialects.named("litellm,vllm-router")
    assert dialects.named(" litellm , vllm-router ") is wanted
    assert dialects.named(["litellm", "vllm-router"]) is wanted
    assert dialects.named(("litellm", dialects.named("vllm-router"))) is wanted
    assert dialects.named(wanted) is wanted


def test_an_operators_session_key_comes_first_beside_what_vllm_reads() -> None:
    row = dialects.named("production-stack:x-user-flow")
    assert row is dialects.production_stack("x-user-flow")
    assert row.carries[:2] == (("x-user-flow", "session"), ("X-Session-ID", "session"))
    again = dialects.named("production-stack:x-session-id")
    assert [name for name, marker in again.carries if marker == "session"] == ["x-session-id"]


@pytest.mark.parametrize(
    "option", ["x-data-parallel-rank", "authorization", "x_user", "a b", "", "X-Agent-Turn"]
)
def test_a_session_key_that_cannot_be_one_is_refused(option: str) -> None:
    with pytest.raises(ConfigError):
        dialects.named(f"production-stack:{option}")


@pytest.mark.parametrize("option", ["", "Session Affinity", "a\nb", "-x"])
def test_a_routing_policy_that_cannot_be_one_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="policy"):
        dialects.named(f"aibrix:{option}")


def test_an_option_where_none_is_taken_is_refused_with_those_that_take_one() -> None:
    with pytest.raises(ConfigError, match="production-stack and aibrix"):
        dialects.named("vllm:x")
