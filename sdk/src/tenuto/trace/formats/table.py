"""The formats: one row each. A format is added with one file beside this one and a row."""

from __future__ import annotations

from tenuto.trace.formats import claude_code, mooncake, otel, tenuto, weka
from tenuto.trace.formats.format import Format

FORMATS = (
    Format(
        "tenuto",
        "events, one a line, as tenuto records them",
        tenuto.sniff,
        tenuto.read,
        tenuto.write,
    ),
    Format(
        "weka",
        "kv-cache-tester and SemiAnalysis, published or packed",
        weka.sniff,
        weka.read,
        weka.write,
    ),
    Format(
        "mooncake",
        "Mooncake requests and AIPerf mooncake_trace",
        mooncake.sniff,
        mooncake.read,
        mooncake.write,
    ),
    Format(
        "claude-code",
        "Claude Code session logs, subagents included",
        claude_code.sniff,
        claude_code.read,
        None,
    ),
    Format("otel", "OpenTelemetry GenAI spans", otel.sniff, otel.read, None),
)
