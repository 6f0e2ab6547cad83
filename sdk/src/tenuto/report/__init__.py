"""What measured turns add up to: sums, tables, pictures, a page. Pure functions of results.

`tenuto.report.compared` and `tenuto.report.page` need numpy, so they are imported by name.
"""

from __future__ import annotations

from tenuto.report.summary import Summary, summarise
from tenuto.report.table import Row, table
from tenuto.report.timeline import Side, timeline_svg

__all__ = ["Row", "Side", "Summary", "summarise", "table", "timeline_svg"]
