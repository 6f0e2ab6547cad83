"""Which of our body fields an error names, in the words that servers really use."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto import dialects
from tenuto.dialects.refusals import rejected_fields

OPENAI = dialects.named("openai")
PD = dialects.named("vllm-router-pd")
SGLANG = dialects.named("sglang")
KEY, ID, CONTEXT = "prompt_cache_key", "session_id", "vllm_xargs.agentic_context"


def error(message: str, **more: object) -> str:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", **more}})


@pytest.mark.parametrize(
    "text",
    [
        # https://github.com/vectorize-io/hindsight/issues/3518 (Azure)
        error(
            "Unrecognized request argument supplied: prompt_cache_key",
            code="unrecognized_request_argument",
        ),
        # openai
        error("Unknown parameter: 'prompt_cache_key'.", param="prompt_cache_key"),
        error("Bad request.", param="body.prompt_cache_key"),
        error("Unsupported parameter.", param="prompt_cache_key", code="unsupported_parameter"),
        # https://github.com/anomalyco/opencode/issues/4386 (Fireworks)
        error("Extra inputs are not permitted, field: 'prompt_cache_key', value: 'ses_57'"),
        # https://github.com/zed-industries/zed/issues/36215 (Groq, Cerebras)
        error("property 'prompt_cache_key' is unsupported"),
        json.dumps(
            {
                "message": "body.prompt_cache_key: property 'body.prompt_cache_key' is unsupported",
                "type": "invalid_request_error",
                "param": "validation_error",
            }
        ),
        # https://github.com/sipeed/picoclaw/issues/1019 (NVIDIA)
        json.dumps(
            {
                "error": "[{'type': 'extra_forbidden', 'loc': ('body', 'prompt_cache_key'), "
                "'msg': 'Extra inputs are not permitted', 'input': 'main'}]"
            }
        ),
        # FastAPI
        json.dumps(
            {
                "detail": [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", "prompt_cache_key"],
                        "msg": "Extra inputs are not permitted",
                        "input": "s",
                    }
                ]
            }
        ),
        # pydantic's own text
        "1 validation error for ChatRequest\nprompt_cache_key\n  Extra inputs are not permitted"
        " [type=extra_forbidden, input_value='s', input_type=str]",
        # JSON Schema
        error("Additional properties are not allowed ('prompt_cache_key' was unexpected)"),
        error("prompt_cache_key is not supported on this model"),
        "prompt_cache_key: unknown field",
    ],
)
@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_of_our_field_is_understood(text: str, status: int) -> None:
    assert rejected_fields(OPENAI, status, text) == {KEY}


def test_serde_names_the_field_it_refuses_first_and_lists_those_it_knows() -> None:
    text = "Failed to deserialize the JSON body: unknown field `session_id`, expected one of `a`"
    assert rejected_fields(SGLANG, 422, text) == {ID}
    other = "unknown field `logit_bias`, expected one of `model`, `session_id`, `messages`"
    assert rejected_fields(SGLANG, 422, other) == set()
    bare = "unknown field logit_bias, expected one of model, session_id, messages"
    assert rejected_fields(SGLANG, 422, bare) == set()


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        # vllm-router 0.1.17
        ("invalid Program identity: blocks_parent requires parent_program_id", {CONTEXT}),
        ("invalid Program identity: step_id must be a non-negative integer", {CONTEXT}),
        (
            "invalid Program identity: vllm_xargs.agentic_context must contain a bounded JSON "
            "object",
            {CONTEXT},
        ),
        # vLLM 0.32, for an object where a string is taken
        (
            error(
                "2 validation errors:\n"
                "  {'type': 'string_type', 'loc': ('body', 'vllm_xargs', 'agentic_context', 'str'),"
                " 'msg': 'Input should be a valid string', 'input': {'session_id': 'x'}}\n"
                "  {'type': 'int_type', 'loc': ('body', 'vllm_xargs', 'agentic_context', 'int'),"
                " 'msg': 'Input should be a valid integer', 'input': {'session_id': 'x'}}",
                param="vllm_xargs.agentic_context.str",
            ),
            {CONTEXT},
        ),
        (error("Unrecognized request argument supplied: vllm_xargs"), {CONTEXT}),
        (error("bad", param="session_id"), {ID}),
        (
            json.dumps(
                {
                    "detail": [
                        {"loc": ["body", "session_id"], "msg": "Extra inputs are not permitted"},
                        {"loc": ["body", "vllm_xargs"], "msg": "Extra inputs are not permitted"},
                    ]
                }
            ),
            {ID, CONTEXT},
        ),
        # The caller's own field inside an object that both of us write to.
        (error("bad", param="vllm_xargs.theirs"), set()),
        (error("vllm_xargs.theirs is not supported"), set()),
        (json.dumps({"detail": [{"loc": ["body", "vllm_xargs", "theirs"], "msg": "no"}]}), set()),
    ],
)
def test_of_several_fields_those_that_are_named_are_refused(text: str, refused: set[str]) -> None:
    assert rejected_fields(PD, 400, text) == refused


@pytest.mark.parametrize(
    "text",
    [
        error("This model's maximum context length is 8192 tokens.", param="messages"),
        error("The model `m` does not exist.", code="model_not_found"),
        # The prompt quoted: a program that works on this very problem.
        json.dumps(
            {
                "detail": [
                    {
                        "loc": ["body", "temperature"],
                        "msg": "Input should be a valid number",
                        "input": {"messages": "unknown field session_id, session_id is invalid"},
                    }
                ]
            }
        ),
        error(
            "1 validation error:\n  {'type': 'float_type', 'loc': ('body', 'temperature'), 'msg': "
            "'Input should be a valid number', 'input': \"why is 'session_id' unsupported?\"}"
        ),
        # A tool of the caller's with a parameter of that name.
        error(
            "Invalid schema for function 'lookup': In context=('properties', 'session_id'), "
            "'type' is required"
        ),
        json.dumps(
            {
                "detail": [
                    {
                        "loc": ["body", "tools", 0, "function", "parameters", "session_id"],
                        "msg": "Extra inputs are not permitted",
                    }
                ]
            }
        ),
        error("tools.0.function.session_id: Extra inputs are not permitted"),
        error("my_session_id is not allowed"),
        error("Unknown parameter: 'session_ids'."),
        "",
        "not json",
    ],
)
def test_an_error_about_something_else_refuses_nothing(text: str) -> None:
    assert rejected_fields(PD, 400, text) == set()


@pytest.mark.parametrize("status", [200, 401, 404, 429, 500])
def test_only_an_answer_about_the_request_itself_is_looked_at(status: int) -> None:
    text = error("Unknown parameter: 'prompt_cache_key'.")
    assert rejected_fields(OPENAI, status, text) == set()


def test_a_dialect_without_body_fields_has_none_to_refuse() -> None:
    assert rejected_fields(dialects.VLLM, 400, error("session_id is invalid")) == set()


@given(st.text(max_size=400) | st.recursive(st.text(), st.lists).map(json.dumps))
def test_any_text_can_be_read(text: str) -> None:
    assert rejected_fields(PD, 400, text) <= {ID, CONTEXT}


def test_a_huge_error_is_read_in_little_time_and_a_deep_one_is_survived() -> None:
    assert rejected_fields(PD, 400, "unknown " * 200_000) == set()
    assert rejected_fields(PD, 400, "[" * 50_000) == set()
    for depth in range(800, 1000):
        assert rejected_fields(PD, 400, "[" * depth + "]" * depth) == set()
    deep = error("[" * 3_000 + "]" * 3_000)
    assert rejected_fields(PD, 400, deep) == set()
