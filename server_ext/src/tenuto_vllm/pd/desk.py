"""What all calls share, and what is told of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tenuto_vllm.pd.answer import Usage
from tenuto_vllm.pd.asked import Asked, Headers
from tenuto_vllm.pd.fleet import Fleet
from tenuto_vllm.pd.numbers import Numbers
from tenuto_vllm.pd.options import Options
from tenuto_vllm.pd.planner import Plan, Planner
from tenuto_vllm.pd.upstream import Upstreams
from tenuto_vllm.pd.watch import Watch


class Told(NamedTuple):
    """What came of one turn, for whoever watches; it holds the session's id.

    Attributes:
        plan: what was decided.
        prefiller: name of the node that computed the prompt.
        usage: of the answer; None where it told none.
        predicted: tokens that the prefiller should have had cached.
        cached: tokens that it said it had; None where it did not tell.
        fallback: why a transfer was given up; empty where none was.
    """

    plan: Plan
    prefiller: str
    usage: Usage | None
    predicted: int
    cached: int | None
    fallback: str


class Request(NamedTuple):
    """A model call as it came.

    Attributes:
        path: of the route, with its query.
        headers: of the client.
        body: of the client.
        asked: what it asks.
    """

    path: str
    headers: Headers
    body: bytes
    asked: Asked


class Lost(Exception):
    """No server gave an answer, or one was broken off. The message is a fixed word."""


class Desk(NamedTuple):
    """What a call is served with.

    Attributes:
        options: how the application is set up.
        fleet: the servers.
        upstreams: connections to them.
        planner: that decides.
        numbers: that are counted.
        watch: told of a server that did not answer.
        told: told of each turn that was answered; None for nobody.
    """

    options: Options
    fleet: Fleet
    upstreams: Upstreams
    planner: Planner
    numbers: Numbers
    watch: Watch
    told: Callable[[Told], None] | None
