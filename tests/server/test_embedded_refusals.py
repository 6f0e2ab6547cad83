"""What the embedded engine refuses, and that it refuses with 400 and never fails with 500."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto_vllm.embedded import EngineSettings, VirtualClock, create_app

ROUTES = ["/v1/chat/completions", "/v1/completions", "/v1/responses"]
FITTING = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
}


def post(
    route: str, content: bytes, headers: list[tuple[str, str]] | None = None
) -> httpx.Response:
    """Send one body to a new application and return its answer; the engine must end idle."""

    async def main() -> httpx.Response:
        app = create_app(EngineSettings(max_model_len=500), clock=VirtualClock())
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            answer = await client.post(route, content=content, headers=headers)
            for rank in (await client.get("/stats")).json()["ranks"]:
                assert rank["in_flight"] == 0
                assert rank["free_blocks"] == rank["total_blocks"]
            return answer

    return asyncio.run(main())


def post_json(route: str, body: object, headers: list[tuple[str, str]] | None = None):
    return post(route, json.dumps(body).encode(), headers)


def message(answer: httpx.Response, status: int = 400) -> str:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == status
    assert error["type"].endswith("Error")
    return error["message"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff\xfe\xfa", b"[" * 100_000, b'{"a": NaN}', b"[]", b'"hi"', b"null"]
)
def test_a_body_that_is_no_json_object_is_a_bad_request(route: str, raw: bytes):
    assert "body" in message(post(route, raw))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("field", "says"),
    [
        ({"n": 2}, "n is 2; the embedded engine answers one choice."),
        ({"n": 0}, "n must be an integer of at least 1, not 0."),
        ({"stream": "yes"}, "stream must be true or false, not str."),
        ({"model": ["tiny"]}, "model must be a string, not list."),
    ],
)
def test_a_wrong_field_is_named_with_what_it_must_be(route: str, field: dict, says: str):
    assert message(post_json(route, {**FITTING[route], **field})) == says


@pytest.mark.parametrize(
    ("route", "name"),
    [
        ("/v1/chat/completions", "max_tokens"),
        ("/v1/chat/completions", "max_completion_tokens"),
        ("/v1/completions", "max_tokens"),
        ("/v1/responses", "max_output_tokens"),
    ],
)
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "16"])
def test_a_token_limit_is_an_integer_of_at_least_one(route: str, name: str, value: object):
    answer = post_json(route, {**FITTING[route], name: value})
    assert f"{name} must be an integer of at least 1" in message(answer)


@pytest.mark.parametrize("route", ROUTES)
def test_fields_that_are_not_known_are_ignored(route: str):
    body = {**FITTING[route], "surprise": {"a": [1]}, "temperature": "hot", "stop": ["x"]}
    assert post_json(route, body).status_code == 200


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_rank_out_of_range_is_a_bad_request(route: str, stream: bool):
    body = {**FITTING[route], "stream": stream}
    answer = post_json(route, body, [("X-data-parallel-rank", "7")])
    assert message(answer) == "data_parallel_rank 7 is out of range [0, 2)."


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("values", "rank"),
    [(["1"], "1"), (["1", "0"], "1"), ([" 0_1 "], "1"), (["one"], "0"), (["", "1"], "0")],
)
def test_the_first_rank_header_is_read_as_pythons_int_reads_it(route: str, values, rank: str):
    headers = [("X-data-parallel-rank", value) for value in values]
    assert post_json(route, FITTING[route], headers).headers["X-Engine-Rank"] == rank


@pytest.mark.parametrize(
    "prompt", [None, 3, {}, [], "", ["a", "b"], [[1], [2]], [1, "a"], [-1], [2**32], [True], [1.0]]
)
def test_a_prompt_is_one_text_or_one_list_of_ids(prompt: object):
    assert "prompt" in message(post_json("/v1/completions", {"prompt": prompt}))


@pytest.mark.parametrize("prompt", [["hi"], [[104, 105]]])
def test_a_batch_of_one_is_answered(prompt: object):
    answer = post_json("/v1/completions", {"prompt": prompt})
    assert answer.json()["usage"]["prompt_tokens"] == 2


def test_a_lone_surrogate_is_a_bad_request_wherever_it_is():
    assert "lone surrogate" in message(post_json("/v1/completions", {"prompt": "\ud800"}))
    body = {"prompt": "hi", "model": "\ud800"}
    assert "does not exist" in message(post_json("/v1/completions", body), 404)


def test_arguments_nested_too_deeply_are_a_bad_request():
    call = {"function": {"name": "f", "arguments": '{"a":' * 50_000}}
    chat = [{"role": "assistant", "tool_calls": [call]}]
    answer = post_json("/v1/chat/completions", {"messages": chat})
    assert "nested too deeply" in message(answer)


def test_a_schema_that_no_value_fits_is_a_bad_request():
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": []}}}
    body = {**FITTING["/v1/chat/completions"], "response_format": wanted}
    assert "No answer follows the JSON schema" in message(post_json("/v1/chat/completions", body))


def test_a_stored_response_is_not_continued():
    body = {"input": "hi", "previous_response_id": "resp_1"}
    assert "send the whole input" in message(post_json("/v1/responses", body))


class Endless:
    """A clock on which no sleep ends; `slept` tells that one has begun."""

    def __init__(self) -> None:
        self.slept = asyncio.Event()

    def now(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.set()
        await asyncio.Event().wait()


async def _stopped_while_it_answers() -> httpx.Response:
    clock = Endless()
    app = create_app(clock=clock)
    engine = app.state.tenuto_view
    transport = httpx.ASGITransport(app)
    async with (
        asyncio.timeout(5),
        httpx.AsyncClient(transport=transport, base_url="http://engine") as client,
    ):
        task = asyncio.create_task(client.post("/v1/completions", json={"prompt": "hi"}))
        await clock.slept.wait()
        assert list(engine.loads()) == [1.0, 0.0]
        engine.stop()
        answer = await task
    assert not any(engine.loads())
    return answer


def test_a_whole_answer_that_the_stop_cuts_off_is_unavailable():
    answer = asyncio.run(_stopped_while_it_answers())
    assert message(answer, 503) == "The engine is stopping."


def test_other_paths_and_methods_are_refused_in_the_same_shape():
    assert message(post("/v1/nothing", b""), 404) == "Not Found"
    assert message(post("/v1/models", b""), 405) == "Method Not Allowed"


KEYS = st.sampled_from(
    ["messages", "prompt", "input", "role", "content", "type", "text", "tool_calls", "function",
     "name", "arguments", "n", "stream", "stream_options", "include_usage", "max_tokens", "model",
     "max_output_tokens", "response_format", "json_schema", "schema", "format", "instructions"]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=4),
    st.sampled_from(
        ["tiny", "user", "assistant", "text", "message", "function_call", "reasoning",
         "json_schema", "json_object", "object", "\ud800"]
    ),
)  # fmt: skip
BODIES = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)


@given(st.sampled_from(ROUTES), BODIES, st.booleans())
@settings(deadline=None, max_examples=300)
def test_any_body_is_answered_or_refused_and_nothing_breaks(route: str, body: dict, whole: bool):
    if whole:
        body = {**FITTING[route], **body}
    # An exception in the application would be raised here by the transport.
    answer = post_json(route, body)
    assert answer.status_code in (200, 400, 404)
    if answer.status_code != 200:
        message(answer, answer.status_code)
