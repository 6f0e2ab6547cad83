"""`tenuto replay` where something is missing: cached tokens, a place, a server, a number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto import results
from tenuto.cli.replay import main
from tenuto.trace import write
from tenuto_vllm.embedded import EngineSettings, serve
from tests.unit.replay.programs import FORKS

FAST = EngineSettings(
    ranks=2, blocks=500, block_size=8, prefill_tokens_per_s=1e6, decode_tokens_per_s=1e6
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "traces.jsonl"
    write(path, [FORKS])
    return path


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(FAST) as made:
        yield made


def run(path: Path, *options: str) -> int:
    return main([str(path), "--quiet", "--mode", "asap", *options])


class Silent:
    """Middleware that takes the cached tokens out of what the engine says."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.body":
                body = message.get("body", b"").replace(b"prompt_tokens_details", b"nothing")
                message = {**message, "body": body}
            await send(message)

        await self._app(scope, receive, sent)


def test_a_server_that_does_not_say_what_it_had_cached_is_told_with_the_flag(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {}
    for name, middleware in {"silent": [Silent], "says": []}.items():
        out = tmp_path / f"{name}.jsonl"
        with serve(FAST, middleware) as url:
            assert run(path, "--target", url, "--out", str(out)) == 0
        told[name] = "--enable-prompt-tokens-details" in capsys.readouterr().err
        assert results.read(out).header.cached_known != told[name]
    assert told == {"silent": True, "says": False}


def test_without_out_each_run_has_a_file_of_its_own_in_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with serve(FAST) as url:
        for _ in range(2):
            assert run(path, "--target", url, "--name", "a") == 0
        assert run(path, "--target", url, "--name", "a", "--resume") == 1
    told = capsys.readouterr().err
    assert "results go to runs/a-2.jsonl" in told
    assert "need --out" in told
    for name in ("a", "a-2"):
        found = results.read(tmp_path / "runs" / f"{name}.jsonl")
        assert found.header.calls == {"forks": FORKS.requests}
        assert len(found.turns) == FORKS.requests


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--route", "chat"], "route"),
        (["--prompt-form", "tokens"], "prompt_form, vocab"),
        (["--no-cache-bust"], "cache_bust"),
        (["--reset"], "reset"),
        (["--new-connections"], "new_connections"),
    ],
)
def test_a_run_is_not_taken_up_with_calls_of_another_kind(
    options: list[str],
    field: str,
    path: Path,
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = str(tmp_path / "a.jsonl")
    assert run(path, "--target", url, "--out", out) == 0
    assert run(path, "--target", url, "--out", out, "--resume", *options) == 1
    assert f"it differs in {field}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", ["--gpus=-2", "--gpus=0", "--gpus=nan", "--timeout=0", "--gap-cap=inf"]
)
def test_numbers_that_mean_nothing_are_refused(
    option: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(path, "--target", "embedded", option)
    assert option.partition("=")[0] in capsys.readouterr().err


class Site:
    """Middleware that answers every request as a web site does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app if scope["type"] == "lifespan" else HTMLResponse("<html></html>")
        await answer(scope, receive, send)


def test_a_web_site_is_told_in_one_line(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(FAST, [Site]) as url:
        assert run(path, "--target", url, "--out", str(tmp_path / "a.jsonl")) == 1
    told = capsys.readouterr().err
    assert f"{url} is no OpenAI API" in told
    assert told.count("\n") == 1
