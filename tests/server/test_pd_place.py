"""`POST /tenuto/place`, and what the page says of it and of the numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tenuto_vllm import cli
from tenuto_vllm.pd.command import KEY
from tenuto_vllm.pd.measured import read_costs
from tests.server.pd_fakes import SESSION, FakeServer, stack

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/prefill-decode.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## The application\n")[2].partition("\n## ")[0]
PREFILL, DECODE = "http://10.0.0.1:8100", "http://10.0.0.2:8200"


@pytest.fixture
def prefill():
    return FakeServer("prefill")


@pytest.fixture
def decode():
    return FakeServer("decode")


def place(app, **fields):
    body = {"session": SESSION, "prompt_tokens": 8000, **fields}
    return app.client.post("/tenuto/place", json=body)


def busy(app):
    return {app.app.fleet.decodes[0].url: {"running": 3, "queued_s": 0.5}}


def without_times(told):
    """An answer with its seconds, which are those of the costs, as whether they are told."""
    return {key: value is not None if key.endswith("_s") else value for key, value in told.items()}


def test_the_page_shows_what_is_answered(prefill, decode):
    shown = re.findall(r"```json\n(.*?)```", SECTION, re.DOTALL)
    assert len(shown) == 6
    with stack([prefill], [decode]) as app:
        (source, target) = (one.url for one in app.app.fleet.all())
        for asked, answered in zip(shown[::2], shown[1::2], strict=True):
            here = [
                text.replace(PREFILL, source).replace(DECODE, target) for text in (asked, answered)
            ]
            answer = app.client.post("/tenuto/place", content=here[0])
            assert answer.status_code == 200
            assert without_times(answer.json()) == without_times(json.loads(here[1]))
    assert not prefill.asked
    assert not decode.asked


def test_each_engine_is_told_in_its_own_words(prefill, decode):
    with stack([prefill], [decode]) as app:
        source, target = (one.url for one in app.app.fleet.all())
        ids = {source: 1, target: 2}
        told = {
            engine: place(app, loads=busy(app), ids=ids, **{"for": engine}).json()
            for engine in ("dynamo", "llm-d", "llm-d-coordinator", "smg", "vllm-router", "vllm")
        }
        local = place(app, ids=ids, **{"for": "llm-d-coordinator"}).json()
        here = place(app, **{"for": "vllm"}).json()
    assert {one["prefill"] for one in told.values()} == {source}
    headers = {engine: one["headers"] for engine, one in told.items()}
    assert headers["dynamo"]["x-dynamo-prefill-instance-id"] == "1"
    assert headers["llm-d"] == {"x-prefiller-host-port": source.partition("//")[2]}
    assert headers["llm-d-coordinator"] == headers["vllm"] == {}
    assert local["headers"] == {"prefer": "if-available"}
    assert headers["smg"] == {"x-smg-routing-key": SESSION, "x-smg-target-worker": "2"}
    assert headers["vllm-router"] == {"x-session-id": SESSION}
    assert told["vllm-router"]["bodies"]["decode"]["vllm_xargs"]["session_id"] == SESSION
    first = told["vllm"]["bodies"]["prefill"]
    assert (first["max_tokens"], first["max_completion_tokens"], first["min_tokens"]) == (1, 1, 0)
    assert here["bodies"] == {"decode": {"kv_transfer_params": None}}


def test_what_a_router_says_of_the_servers_and_promises_decides(prefill, decode):
    with stack([prefill], [decode], slo_itl_s=1e-9) as app:
        (source, _) = (one.url for one in app.app.fleet.all())
        load = {app.app.fleet.decodes[0].url: {"running": 1}}
        assert place(app).json()["prefill"] is None
        assert place(app, loads=load).json()["why"] == "slo"
        assert place(app, loads=load, slo_itl_s=None).json()["why"] == "transfer"
        assert place(app, loads=busy(app), slo_itl_s=None).json()["prefill"] == source
        assert app.metric('tenuto_pd_decisions_total{path="local",why="transfer"}') == 2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"for": "nginx"}, "is one of dynamo"),
        ({"for": "dynamo"}, "lacks a server"),
        ({"for": "smg", "ids": 3}, "ids"),
        ({"loads": []}, "loads"),
        ({"loads": {"http://a": 1}}, "loads"),
        ({"slo_ttft_s": -1}, "seconds above 0"),
        ({"prompt_tokens": 0}, "a session and its prompt"),
        ({"session": "short"}, "a session and its prompt"),
        ({"answered": {"decode": "http://elsewhere", "prompt_tokens": 1}}, "not one of those"),
        ({"answered": {"prompt_tokens": 1}}, "not one of those"),
    ],
)
def test_what_cannot_be_placed_is_refused_with_a_sentence(prefill, decode, fields, said):
    with stack([prefill], [decode]) as app:
        answer = place(app, **fields)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert SESSION not in answer.text


def test_in_shadow_mode_a_router_is_told_what_moves_nothing(prefill, decode, caplog):
    with caplog.at_level("INFO", "tenuto_vllm"), stack([prefill], [decode], shadow=True) as app:
        assert place(app, loads=busy(app)).json()["prefill"] is None
        assert app.metric("tenuto_pd_shadow_regret_seconds_total") > 0
    assert "would_place path=remote" in caplog.text
    assert SESSION not in caplog.text


def test_the_page_names_all_metrics_and_options(prefill, decode, capsys):
    with stack([prefill], [decode]) as app:
        app.ask(10)
        served = set(re.findall(r"^# TYPE (\S+)", app.client.get("/metrics").text, re.MULTILINE))
    assert served == set(re.findall(r"^\| `(tenuto_pd_\w+)`", SECTION, re.MULTILINE))
    with pytest.raises(SystemExit):
        cli.main(["pd", "--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert options - set(re.findall(r"`(--[a-z-]+)", SECTION)) == set()
    assert f"`{KEY}`" in SECTION


def test_the_page_names_all_fallbacks(prefill, decode):
    with stack([prefill], [decode]) as app:
        text = app.client.get("/metrics").text
    rows = SECTION.partition("| fallback `why` |")[2].partition("\n\n")[0]
    names = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in rows.splitlines()[2:]))
    assert set(re.findall(r'fallbacks_total\{why="(\w+)"', text)) == set(names)


def test_the_page_has_a_row_for_each_event_and_none_beside():
    rows = SECTION.partition("| event | level | |")[2].partition("\n\n")[0]
    sources = (ROOT / "server_ext/src/tenuto_vllm/pd").glob("*.py")
    told = {
        (event, level.lower())
        for path in sources
        for level, event in re.findall(
            r'logs\.tell\(\s*logging\.(\w+),\s*"(\w+)"', path.read_text(encoding="utf-8")
        )
    }
    assert set(re.findall(r"^\| `(\w+)` \| (\w+) \|", rows, re.MULTILINE)) == told


def test_the_costs_that_the_page_shows_can_be_read(tmp_path):
    (shown,) = re.findall(r"\n\n    (\{.*?\})\n\n", SECTION, re.DOTALL)
    file = tmp_path / "costs.json"
    file.write_text(shown)
    costs = read_costs(file, is_bidirectional=False)
    for new, cached, seconds in json.loads(shown)["points"]:
        assert costs.prefill(new, cached) == pytest.approx(seconds, rel=0.02)
