"""A collector of traces on 127.0.0.1 that keeps spans as plain values: OTLP, HTTP and protobuf."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Ids are lower-case hex; `parent_span_id` is "" at a root.

    `kind` is a word (`server`, `client`, `internal`), and so is `status` (`unset`, `ok`, `error`).
    `events` are (name, ns since 1970, attributes). `scope` is the tracer's name.
    """

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    kind: str
    status: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[tuple[str, int, dict[str, Any]]]
    scope: str
    resource: dict[str, Any]


@dataclass
class Collector:
    """What has arrived (`posts` exports, refused ones too), and how it answers.

    With a `status` other than 200 it keeps nothing; while `open` is cleared, it does not answer.
    """

    endpoint: str = ""
    spans: list[Span] = field(default_factory=list[Span])
    posts: int = 0
    status: int = 200
    open: threading.Event = field(default_factory=threading.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, many: int, within_s: float = 10, **like: Any) -> list[Span]:
        """Wait for so many spans whose fields equal `like`; return all that are there then."""

        def found() -> list[Span]:
            has = like.items()
            return [s for s in self.spans if all(getattr(s, key) == value for key, value in has)]

        with self.changed:
            self.changed.wait_for(lambda: len(found()) >= many, within_s)
            return found()


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a free port for as long as the block lasts."""
    collector = Collector()
    collector.open.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with collector.changed:
                collector.posts += 1
                if collector.status == 200:
                    collector.spans += spans_in(body)
                collector.changed.notify_all()
            collector.open.wait()
            # Who was kept waiting may have left.
            with contextlib.suppress(OSError):
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        collector.endpoint = f"http://127.0.0.1:{server.server_port}/v1/traces"
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            yield collector
        finally:
            collector.open.set()
            server.shutdown()
            serving.join()


def spans_in(body: bytes) -> Iterator[Span]:
    """Read an `ExportTraceServiceRequest`."""
    kinds, codes = trace_pb2.Span.SpanKind, trace_pb2.Status.StatusCode
    request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
    for group in request.resource_spans:
        resource = _values(group.resource.attributes)
        for one in group.scope_spans:
            for span in one.spans:
                ids = (span.trace_id, span.span_id, span.parent_span_id)
                yield Span(
                    *(span.name, *(one_id.hex() for one_id in ids)),
                    kinds.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
                    codes.Name(span.status.code).removeprefix("STATUS_CODE_").lower(),
                    *(span.start_time_unix_nano, span.end_time_unix_nano),
                    _values(span.attributes),
                    [(e.name, e.time_unix_nano, _values(e.attributes)) for e in span.events],
                    *(one.scope.name, resource),
                )


def _values(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None
