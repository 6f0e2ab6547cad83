"""What the extension tells in its logs, and what it keeps to itself."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import tenuto_vllm
from tenuto_vllm import logs
from tenuto_vllm.config import Settings
from tenuto_vllm.embedded import EngineSettings, serve

ROOT = Path(__file__).parents[2]
KEY = "a-key-of-the-operators"
SID = "session-4711"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    logs.LOG.handlers.clear()
    logs.LOG.setLevel(logging.NOTSET)
    logs.LOG.propagate = True


def lines(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def run(folder: Path, level: str) -> None:
    """Serve a session and some orders with the log at a level."""

    class Logging(tenuto_vllm.TurnMiddleware):
        def __init__(self, app: Any) -> None:
            settings = Settings(log=level, admin_key=KEY, state_dir=folder)
            super().__init__(app, settings=settings)

    admin = {"Authorization": f"Bearer {KEY}"}
    body = {"model": "tiny", "prompt": "x" * 100, "max_tokens": 1}
    size = EngineSettings(ranks=2, prefill_tokens_per_s=float("inf"))
    with serve(size, [Logging]) as url, httpx.Client(base_url=url) as http:
        first = {"X-Session-ID": SID, "X-Agent-Turn": "n=0, phase=nothing"}
        token = http.post("/v1/completions", json=body, headers=first).headers["X-Agent-Affinity"]
        home = int(token.split(".")[1])
        http.post("/tenuto/ranks/drain", json={"rank": home}, headers=admin)
        second = {"X-Session-ID": SID, "X-Agent-Turn": "n=1", "X-Agent-Affinity": token}
        http.post("/v1/completions", json=body, headers=second)
        http.post("/tenuto/ranks/restore", json={"rank": home}, headers=admin)
        http.post("/reset_prefix_cache")


def test_events_are_json_lines_without_an_id(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "state", "info")
    said = capfd.readouterr().err
    told = {line["event"]: line for line in lines(said)}
    assert SID not in said
    assert KEY not in said
    assert {"started", "ignored", "drained", "moved", "restored"} <= set(told)
    assert (told["started"]["sessions"], told["started"]["admin_key"]) == (32768, True)
    assert told["ignored"]["kind"] == "turn.phase"
    assert told["drained"]["drained"] == [told["drained"]["rank"]] == [told["moved"]["home"]]
    assert told["restored"]["drained"] == []
    assert {line["level"] for line in told.values()} == {"info", "warning"}
    assert all(line["time"] > 1e9 and line["process"] for line in told.values())


def test_ids_are_told_at_debug(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "state", "debug")
    told = lines(capfd.readouterr().err)
    placed = [line for line in told if line["event"] == "placed"]
    assert [(line["session"], line["why"]) for line in placed] == [(SID, "first"), (SID, "moved")]
    assert all("session" not in line for line in told if line["level"] != "debug")


def test_without_the_setting_only_warnings_are_told_by_the_servers_own_logging(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "state", "")
    ours = [record for record in caplog.records if record.name == "tenuto_vllm"]
    assert [record.levelname for record in ours] == ["WARNING"]
    assert ours[0].getMessage().startswith("ignored kind=turn.phase about=")
    assert vars(ours[0])["event"] == "ignored"
    assert vars(ours[0])["fields"]["kind"] == "turn.phase"
    assert "{" not in capfd.readouterr().err


def test_a_message_is_words_and_fields_in_which_no_value_breaks_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    logs.tell(logging.INFO, "moved", home=1, session=SID, ranks=[0, 1], about='a="b"\nc')
    logs.tell(logging.DEBUG, "placed", session=SID, name="a field that a record has too")
    shown = [record.getMessage() for record in caplog.records]
    assert shown == [
        'moved home=1 ranks=[0,1] about="a=\\"b\\"\\nc"',
        f'placed session={SID} name="a field that a record has too"',
    ]


def test_two_middlewares_of_one_process_tell_each_event_once(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        logs.set_up("info")
    logs.tell(logging.INFO, "moved", home=0, rank=1)
    logs.tell(logging.DEBUG, "placed", rank=1)
    logging.getLogger("tenuto_vllm.other").warning("of %s", "ours")
    assert [line["event"] for line in lines(capfd.readouterr().err)] == ["moved", "message"]
    # The handlers of the server's own, of which pytest's is one, would tell it again.
    assert caplog.records == []


def test_a_log_that_cannot_be_written_costs_nothing() -> None:
    code = (
        "import logging, os; from tenuto_vllm import logs; logs.set_up('info'); os.close(2);"
        "logs.tell(logging.INFO, 'moved', rank=1); logs.tell(logging.INFO, 'odd', x=object());"
        "print('went on')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
    assert done.stdout == b"went on\n"


def test_the_page_has_a_row_for_each_event_and_none_beside() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    table = page.partition("### Events")[2].partition("###")[0]
    rows = {
        (event, level)
        for names, level in re.findall(r"^\| (`.*?`) \| (\w+) \|", table, re.MULTILINE)
        for event in re.findall(r"`(\w+)`", names)
    }
    sources = (ROOT / "server_ext/src/tenuto_vllm").rglob("*.py")
    told = {
        (event, level.lower())
        for path in sources
        if path.parent.name != "pd"
        for level, event in re.findall(
            r'logs\.tell\(\s*logging\.(\w+),\s*"(\w+)"', path.read_text(encoding="utf-8")
        )
    }
    assert {row for row in rows if row[0] not in {"drained", "restored"}} == told
