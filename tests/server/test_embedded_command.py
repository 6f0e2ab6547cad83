"""The command line, the extra, and how the server starts and stops."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import openai
import pytest

from tenuto_vllm.embedded import EngineSettings, create_app, serve
from tenuto_vllm.model import EngineView

MODULE = ["-m", "tenuto_vllm.embedded"]


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen(
        [sys.executable, *MODULE, "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("listening on http://127.0.0.1:"), process.stderr.read()
            yield process, line.split()[-1]
        finally:
            process.kill()


def ended(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_in_under_two_seconds_with_a_stream_open(number: int):
    with started("--decode-tokens-per-s", "100") as (process, url):
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            stream = client.completions.create(
                model="tiny", prompt="hi", max_tokens=20_000, stream=True
            )
            chunks = iter(stream)
            next(chunks)
            begun_s = time.monotonic()
            process.send_signal(number)
            assert process.wait(timeout=5) == 0
            assert time.monotonic() - begun_s < 2
            with pytest.raises(openai.APIError, match="The engine is stopping"):
                list(chunks)
        assert process.stderr.read() == ""


def test_the_options_reach_the_engine():
    options = ["--ranks", "3", "--blocks", "11", "--served-model-name", "mine"]
    with started(*options, "--max-model-len", "99") as (_, url):
        with urllib.request.urlopen(f"{url}/stats", timeout=5) as answer:
            stats = json.load(answer)["ranks"]
        with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as answer:
            (model,) = json.load(answer)["data"]
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            assert answer.status == 200
    assert [(r["rank"], r["total_blocks"]) for r in stats] == [(0, 10), (1, 10), (2, 10)]
    assert (model["id"], model["max_model_len"]) == ("mine", 99)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--ranks", "0"], "ranks is 0; the least is 1"),
        (["--middleware", "no.such.Class"], "cannot import 'no.such.Class'"),
        (["--middleware", "json.dumps"], "'json.dumps' is not a class"),
        (["--middleware", "plain"], "cannot import 'plain'"),
    ],
)
def test_a_wrong_option_is_named_before_the_server_starts(options: list[str], says: str):
    result = ended([*MODULE, *options])
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_taken_port_is_named():
    with started() as (_, url):
        port = url.rpartition(":")[2]
        result = ended([*MODULE, "--port", port])
    assert result.returncode == 1
    assert result.stderr.startswith(f"cannot listen on 127.0.0.1:{port}:")


def test_help_shows_every_option_with_its_default():
    result = ended([*MODULE, "--help"])
    for text in ("--middleware", "--prefill-tokens-per-s", "(default: 32768)", "/v1/responses"):
        assert text in result.stdout


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_its_extra_the_import_names_it(missing: str):
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "try:\n    import tenuto_vllm.embedded\n"
        "except ImportError as error:\n    print(error)"
    )
    result = ended(["-c", program])
    says = f"tenuto_vllm.embedded needs {missing}: pip install 'tenuto-vllm[embedded]'"
    assert result.stdout.strip() == says


class Tag:
    """Middleware that writes down its name and what it can see of the engine."""

    def __init__(self, app) -> None:
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            view: EngineView = scope["app"].state.tenuto_view
            scope.setdefault("seen", []).append(f"{type(self).__name__}:{view.ranks()}")

        async def tagged(message) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-seen", ",".join(scope["seen"]).encode()))
            await send(message)

        await self.app(scope, receive, tagged if type(self) is Tag else send)


class Inner(Tag):
    pass


def test_the_last_middleware_is_outermost_and_sees_the_engine():
    with (
        serve(EngineSettings(ranks=4), [Inner, Tag]) as url,
        urllib.request.urlopen(f"{url}/health", timeout=5) as answer,
    ):
        assert answer.headers["x-seen"] == "Tag:4,Inner:4"


def test_the_application_shows_its_engine():
    view: EngineView = create_app(EngineSettings(ranks=3)).state.tenuto_view
    assert (view.ranks(), list(view.loads())) == (3, [0.0, 0.0, 0.0])


def test_leaving_serve_closes_the_port_even_with_a_stream_open():
    with (
        serve(EngineSettings(decode_tokens_per_s=100)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        stream = client.completions.create(model="tiny", prompt="hi", max_tokens=999, stream=True)
        next(iter(stream))
        stream.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{url}/health", timeout=5)
