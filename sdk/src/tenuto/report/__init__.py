"""What measured turns add up to: sums, a table, a picture. Pure functions of results."""

from __future__ import annotations

from tenuto.report.summary import Summary, summarise
from tenuto.report.table import Row, table
from tenuto.report.timeline import Side, timeline_svg

__all__ = ["Row", "Side", "Summary", "summarise", "table", "timeline_svg"]
