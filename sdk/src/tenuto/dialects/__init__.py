"""What each kind of server is sent, as data: headers, body fields, echoes, ends.

`model` says what a row is; `servers`, `routers`, `gateways` and `hosted` are the table;
`headers`, `body`, `agentic` and `baggage` write one request from a row; `refusals` reads an
error; `compose`, `options`, `hosts` and `choose` find the row. All of it is pure, but for
one warning about the environment. The page for users is docs/dialects.md.
"""

from __future__ import annotations

from tenuto.dialects.baggage import with_markers, without_markers
from tenuto.dialects.body import body_patch, end_calls, merge, route_of
from tenuto.dialects.choose import Choice, choose, named
from tenuto.dialects.compose import compose
from tenuto.dialects.headers import echoes, fixed, heard, varying
from tenuto.dialects.hosts import DIALECTS, HOSTS, for_host
from tenuto.dialects.model import (
    BodyField,
    Dialect,
    Echo,
    EndCall,
    EndRule,
    Marker,
    Priority,
    Raw,
    Route,
    check_name,
)
from tenuto.dialects.options import aibrix, production_stack
from tenuto.dialects.refusals import rejected_fields
from tenuto.dialects.servers import GENERIC, SILENT, VLLM

__all__ = [
    "DIALECTS",
    "GENERIC",
    "HOSTS",
    "SILENT",
    "VLLM",
    "BodyField",
    "Choice",
    "Dialect",
    "Echo",
    "EndCall",
    "EndRule",
    "Marker",
    "Priority",
    "Raw",
    "Route",
    "aibrix",
    "body_patch",
    "check_name",
    "choose",
    "compose",
    "echoes",
    "end_calls",
    "fixed",
    "for_host",
    "heard",
    "merge",
    "named",
    "production_stack",
    "rejected_fields",
    "route_of",
    "varying",
    "with_markers",
    "without_markers",
]
