"""The planner's example in a trace that an OTLP collector keeps, and as a picture."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from examples.planner import PROGRAMS
from examples.planner.picture import export
from examples.planner.waterfall import waterfall_svg
from tenuto.telemetry import names
from tests.frameworks.closing import Closing
from tests.otlp import collecting

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def texts_of(picture: str) -> list[str]:
    return [text.text or "" for text in ET.fromstring(picture).iter(f"{SVG}text")]


@pytest.mark.parametrize("framework", PROGRAMS)
def test_a_collector_gets_one_trace_with_a_row_for_each_session(
    framework: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    with collecting() as collector:
        export(framework, OTLPSpanExporter(collector.endpoint), Closing)
        spans = collector.spans
    assert len({span.trace_id for span in spans}) == 1
    calls = [span for span in spans if names.is_model_call(span.attributes)]
    agents = Counter(span.attributes[names.AGENT_PATH].split("/")[-1] for span in calls)
    assert agents == {"planner": 4, "worker": 8, "verifier": 2}
    assert all(names.CACHED_SHARE in span.attributes for span in calls)
    texts = texts_of(waterfall_svg(spans, title="A trace"))
    labels = [text for text in texts if re.match(r"run|\S*(planner|worker|verifier)", text)]
    assert len(labels) == 1 + len({span.attributes[names.SESSION] for span in calls})
    assert len([text for text in texts if re.fullmatch(r"\d+%", text)]) == len(calls)
    assert texts.count("retry after 503") == 1


def test_the_script_writes_a_picture_that_stands_alone_on_a_ground_of_its_own(tmp_path: Path):
    out = tmp_path / "trace.svg"
    done = subprocess.run(
        [sys.executable, "-m", "examples.planner.picture", out],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "", "TENUTO_KEY": "for the test"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    picture = out.read_text("utf-8")
    ground = next(iter(ET.fromstring(picture).iter(f"{SVG}rect")))
    assert (ground.get("width"), ground.get("fill")) == ("1200", "#ffffff")
    assert not re.search(r"href|url\(|@import", picture)
    assert {"planner", "worker 4", "verifier", "retry after 503"} <= set(texts_of(picture))
