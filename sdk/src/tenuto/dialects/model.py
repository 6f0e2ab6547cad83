"""One kind of server as a row of data, and the rules that every row keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tenuto.errors import ConfigError

Marker = Literal["session", "parent", "run", "turn", "affinity"]
Route = Literal["chat", "completions", "responses", "messages", "embeddings"]

# (name as written, name in lower case, value), as the header lists of httpx hold them.
Raw = tuple[bytes, bytes, bytes]

# Headers that name a worker are a router's decisions: a client that sends one overrides it.
# Sources: docs/dialects.md, "What is never sent".
TARGETING = (
    "x-data-parallel-rank",
    "x-dp-rank",
    "x-dynamo-dp-rank",
    "x-dynamo-prefill-dp-rank",
    "x-dynamo-worker-instance-id",
    "x-worker-instance-id",
    "x-dynamo-prefill-instance-id",
    "x-smg-target-worker",
    "target-pod",
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-kv-cache-source-host-port",
    "openengine-target-dp-rank",
)
_TARGETING_STEM = "x-gateway-destination-endpoint"
# An RFC 9110 token of the characters that every proxy lets through: nginx drops a name
# with an underscore.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,63}")
# The longest id of the protocol (`_wire.is_id`); no row may have a tighter limit, for ids
# are never cut.
MAX_ID_CHARS = 64


class BodyField(NamedTuple):
    """A field of the JSON body, set where the caller has not decided it.

    Attributes:
        path: dotted, at most two names, such as `vllm_xargs.session_id`.
        carries: the marker, or `context` for the JSON text of `tenuto.dialects.agentic`.
        routes: where the server takes the field.
        aka: other words by which a server's error names the field.
    """

    path: str
    carries: Marker | Literal["context"]
    routes: frozenset[Route]
    aka: tuple[str, ...] = ()


class Echo(NamedTuple):
    """An answer's header, kept per session and origin, and the header it goes back in."""

    answer: str
    request: str


class Priority(NamedTuple):
    """How a server takes a priority; the protocol's is -8 to 8, higher is more urgent.

    Attributes:
        header: its header.
        sign: -1 where lower is sooner.
        classes: (at least, word), most urgent first, where a server takes words.
    """

    header: str
    sign: Literal[-1, 1] = 1
    classes: tuple[tuple[int, str], ...] = ()

    def value(self, prio: int) -> str:
        """Return the header's value for a priority of the protocol."""
        if not self.classes:
            return str(self.sign * prio)
        return next(word for least, word in self.classes if prio >= least)


class EndCall(NamedTuple):
    """One HTTP call that says that a session has ended; `path` hangs below the origin."""

    method: str
    path: str
    query: dict[str, str] | None = None
    json: Any = None


class EndRule(NamedTuple):
    """How such a call names the session: by `key` in its query or in its JSON body."""

    path: str
    place: Literal["query", "json"]
    key: str = "session_id"


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """What one kind of server, or a stack of them, is sent. Compared by identity.

    Attributes:
        name: as `wrap(dialect=...)` takes it.
        carries: header as written -> the marker it carries.
        says: headers with a value of their own.
        body: fields set if absent.
        echo: answer headers that go back with the session's next request to that origin.
        watches: answer headers that only tell where a request was served.
        priority: sent when a priority is set.
        final: sent on a request that is known to be a session's last.
        end: calls after a session's end.
        id_limit: characters that the server takes of an id; None: no limit is known.
        speaks_protocol: turns and runs are sent, docs/protocol.md.
        news: whether the news routes of docs/protocol.md are reached: many sessions in one
            `batch`; one `session` in each call, with its `X-Session-ID`; None: not at all.
        baggage: the markers also ride in W3C baggage.
        passes: the prefix by which a header reaches what is behind; "": as it is; None: no
            header does.
        returns: likewise for the headers of the answer from behind.
        passes_body: unknown body fields reach what is behind.
        withholds: headers (lower case) and markers that are not for what is behind.
        note: one sentence for the documentation.
        sources: fact -> where it is from. The facts are header names, body paths, `end`,
            `limit`, `passes`, `returns`, or `nothing`.
    """

    name: str
    carries: tuple[tuple[str, Marker], ...] = ()
    says: tuple[tuple[str, str], ...] = ()
    body: tuple[BodyField, ...] = ()
    echo: tuple[Echo, ...] = ()
    watches: tuple[str, ...] = ()
    priority: tuple[Priority, ...] = ()
    final: tuple[tuple[str, str], ...] = ()
    end: tuple[EndRule, ...] = ()
    id_limit: int | None = None
    speaks_protocol: bool = False
    news: Literal["batch", "session"] | None = None
    baggage: bool = False
    passes: str | None = None
    returns: str | None = None
    passes_body: bool = False
    withholds: frozenset[str] = frozenset()
    note: str = ""
    sources: tuple[tuple[str, str], ...] = ()

    # Made of the above, so that a request looks nothing up.
    headers: frozenset[bytes] = field(init=False, repr=False)
    """Names as written of the headers that carry markers."""
    sends: frozenset[bytes] = field(init=False, repr=False)
    """Names in lower case of every header that may be sent."""
    identity: frozenset[bytes] = field(init=False, repr=False)
    """Names in lower case of the headers that carry the session: a caller's own decides."""
    turn_names: tuple[tuple[bytes, bytes], ...] = field(init=False, repr=False)
    final_items: tuple[Raw, ...] = field(init=False, repr=False)
    echo_names: tuple[tuple[str, bytes, bytes, bytes], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        carried = [name for name, _ in self.carries]
        echoed = [echo.request for echo in self.echo]
        said = [name for name, _ in (*self.says, *self.final)]
        every = [*carried, *echoed, *said, *(priority.header for priority in self.priority)]
        for name in every:
            check_name(name)
        if self.id_limit is not None and self.id_limit < MAX_ID_CHARS:
            raise ConfigError(f"{self.name} takes no id of {MAX_ID_CHARS} characters")
        made: dict[str, Any] = {
            "headers": frozenset(name.encode() for name in carried),
            "sends": frozenset(name.lower().encode() for name in every),
            "identity": frozenset(
                name.lower().encode() for name, marker in self.carries if marker == "session"
            ),
            "turn_names": tuple(_raw(name) for name, marker in self.carries if marker == "turn"),
            "final_items": tuple((*_raw(name), value.encode()) for name, value in self.final),
            "echo_names": tuple(
                (echo.answer, echo.answer.lower().encode(), *_raw(echo.request))
                for echo in self.echo
            ),
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)


def check_name(name: str) -> str:
    """Return `name` when a client may send a header of that name.

    Raises:
        ConfigError: it is no header name, or names a worker.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{name!r} cannot name a header: 1 to 64 letters, digits, dots and hyphens"
        )
    lower = name.lower()
    if lower.endswith(TARGETING) or _TARGETING_STEM in lower:
        raise ConfigError(f"{name!r} names a worker, which is for the router to decide")
    return name


def _raw(name: str) -> tuple[bytes, bytes]:
    return name.encode(), name.lower().encode()
