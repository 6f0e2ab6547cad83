"""Headers as such: size, form, number, and where none may be."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from tenuto import _wire
from tenuto.conformance.captured import Request
from tenuto.conformance.cues import cues
from tenuto.conformance.reading import value_of
from tenuto.conformance.seen import Seen
from tenuto.conformance.shapes import record
from tenuto.conformance.verdicts import (
    Proof,
    Verdict,
    failed,
    not_expressible,
    not_seen,
    passed,
)

MAX_BYTES = 1024
_VISIBLE = re.compile(rb"[\x20-\x7e]*")
_TURN = _wire.TURN.lower()
_AFFINITY = _wire.AFFINITY.lower()
_PROTOCOL = frozenset(
    name.lower()
    for name in (_wire.SESSION_AFFINITY, _wire.PARENT, _wire.RUN, _wire.TURN, _wire.AFFINITY)
)
_AGENTIC = "body:vllm_xargs.agentic_context"
_AGENTIC_BYTES = 16 * 1024
_IN_NO_HEADER = not_expressible("its markers stand in no header")
# Decisions of routers, by their readers: vLLM, SGLang, Dynamo, SMG, AIBrix, llm-d, GAIE.
TARGETS = frozenset(
    {
        "x-data-parallel-rank",
        "x-data-parallel-host-port",
        "x-dp-rank",
        "x-dynamo-dp-rank",
        "x-dynamo-prefill-dp-rank",
        "x-dynamo-worker-instance-id",
        "x-dynamo-prefill-instance-id",
        "x-worker-instance-id",
        "x-smg-target-worker",
        "target-pod",
        "x-prefiller-host-port",
        "x-encoder-hosts-ports",
        "x-kv-cache-source-host-port",
        "x-gateway-destination-endpoint",
        "x-gateway-destination-endpoint-subset",
    }
)


def size(seen: Seen) -> Verdict:
    """wire-size: markers are at most 1 KB together, visible ASCII, no underscore in a name."""
    largest: tuple[int, Request] | None = None
    # A JSON header holds more than markers, and is not the protocol's to limit.
    members = (c.name.partition("#") for d in seen.dialects for c in d.carriers)
    containers = {header for header, _, member in members if member and header != _TURN}
    for request in seen.requests:
        total = 0
        for name, value in _markers(seen, request):
            if name in containers:
                continue
            if "_" in name:
                why = "a name has an underscore, which proxies drop"
                return failed(why, Proof(request.number, name, _text(value)))
            if not _VISIBLE.fullmatch(value):
                return failed(
                    "a value is not visible ASCII", Proof(request.number, name, _text(value))
                )
            total += len(name) + len(": \r\n") + len(value)
        if total > MAX_BYTES:
            return failed("markers are more than 1 KB", Proof(request.number, "bytes", str(total)))
        if total and (largest is None or total > largest[0]):
            largest = total, request
    if largest is None:
        return _IN_NO_HEADER
    return passed(f"{largest[0]} bytes at most", Proof(largest[1].number, "bytes", str(largest[0])))


def total(seen: Seen) -> Verdict:
    """wire-total: what has a syntax is written in it."""
    good: Proof | None = None
    for request in seen.requests:
        for name, value, problem in _structured(seen, request):
            if problem:
                return failed(f"{name} {problem}", Proof(request.number, name, value))
            good = good or Proof(request.number, name, value)
    if good is None:
        return not_expressible("its markers have no syntax of their own")
    return passed("every structured marker is read", good)


def duplicate(seen: Seen) -> Verdict:
    """wire-duplicate: a marker stands in one header."""
    if not any(_markers(seen, request) for request in seen.marked):
        return _IN_NO_HEADER
    for request in seen.requests:
        counts = Counter(name for name, _ in _markers(seen, request) if name != _TURN)
        for name, count in counts.items():
            if count > 1:
                values = [_text(value) for key, value in _markers(seen, request) if key == name]
                proof = (Proof(request.number, name, value) for value in values[:2])
                return failed(f"{name} stands {count} times in one request", *proof)
    return passed(f"each once in {len(seen.marked)} calls", seen.shown(seen.marked[0], "session"))


def redirect(seen: Seen) -> Verdict:
    """wire-redirect: no marker follows to another origin."""
    if not any(_markers(seen, request) for request in seen.marked):
        return _IN_NO_HEADER
    hops = [r for r in seen.requests if r.hop_of is not None and seen.said(r).session]
    for hop in hops:
        origin = seen.request(hop.hop_of or 0)
        followed = [name for name, _ in _markers(seen, hop)]
        if followed:
            told = seen.said(origin).name_of("session")
            name = told if told in followed else followed[0]
            before, after = (Proof(r.number, name, r.header(name) or "") for r in (origin, hop))
            return failed("a marker follows a redirect to another origin", before, after)
    if not hops:
        sent = [r for r in seen.requests if r.outcome == "redirect"]
        what = "no marked call was redirected" if not sent else "the client follows no redirect"
        return not_seen(what)
    origin = seen.request(hops[0].hop_of or 0)
    return passed(
        "none arrives at the other origin",
        seen.shown(origin, "session"),
        Proof(hops[0].number, "markers", ""),
    )


def no_target(seen: Seen) -> Verdict:
    """wire-no-target: no rank or worker is named."""
    for request in seen.requests:
        for name in sorted(TARGETS):
            if (value := request.header(name)) is not None:
                return failed(
                    "a client decides where it is served", Proof(request.number, name, value)
                )
    return passed(f"none in {len(seen.requests)} requests")


def caller_wins(seen: Seen) -> Verdict:
    """wire-caller-wins: a header that the program sets or omits stays as it is."""
    proven: list[Proof] = []
    for request in seen.calls:
        session = request.header("x-session-id")
        affinity = request.header("x-session-affinity")
        if session and affinity and session != affinity:
            proof = (("x-session-id", session), ("x-session-affinity", affinity))
            why = "two headers of one request name different sessions"
            return failed(why, *(Proof(request.number, *one) for one in proof))
        for cue in cues(request.prompt.asks if request.prompt else ""):
            if cue.kind == "unmarked":
                continue
            sent = Proof(request.number, cue.header, request.header(cue.header) or "")
            if sent.value != (cue.value if cue.kind == "own" else ""):
                return failed("a header that the program decides is not as it decides", sent)
            beside = next((n for n, _ in _markers(seen, request) if n in _PROTOCOL), None)
            if cue.header == "x-session-id" and beside is not None:
                other = Proof(request.number, beside, request.header(beside) or "")
                return failed(
                    "a marker of another session stands beside the program's", sent, other
                )
            proven.append(sent)
    if not proven:
        return not_seen("no call says that it decides a header itself")
    return passed(f"{len(proven)} headers stay as the program decides", *proven[:2])


def _structured(seen: Seen, request: Request) -> list[tuple[str, str, str]]:
    """Return the structured markers of a request: (name, value, what is wrong or "")."""
    found: list[tuple[str, str, str]] = []
    lines = [value for name, value in request.headers if name == _TURN.encode()]
    if lines:
        dropped: list[str] = []
        _wire.decode_turn(b", ".join(lines), dropped)
        problem = f"cannot be read ({', '.join(dropped)})" if dropped else ""
        found.append((_TURN, _text(b", ".join(lines)), problem))
    if (token := request.header(_AFFINITY)) is not None:
        problem = "" if _wire.is_opaque(token) else "is not 1 to 128 visible ASCII"
        found.append((_AFFINITY, token, problem))
    for name in sorted({c.name for d in seen.dialects for c in d.carriers}):
        header, _, member = name.partition("#")
        text = request.header(header)
        if member and text is not None and header not in {_TURN, "baggage"}:
            found.append((header, text, "" if _is_object(text) else "holds no JSON object"))
    context: Any = value_of(request, _AGENTIC)
    if context is not None:
        shown = context if isinstance(context, str) else json.dumps(context)
        problem = "" if _is_object(shown) else "holds no JSON object"
        if not isinstance(context, str):
            problem = "is an object, which vLLM answers with 400: send its JSON text"
        elif len(shown) > _AGENTIC_BYTES:
            problem = "is more than 16 KiB"
        found.append((_AGENTIC.removeprefix("body:"), shown, problem))
    return found


def _is_object(text: str) -> bool:
    try:
        return bool(record(json.loads(text)))
    except ValueError:
        return False


def _markers(seen: Seen, request: Request) -> list[tuple[str, bytes]]:
    names = seen.marker_headers
    pairs = ((name.decode("latin-1"), value) for name, value in request.headers)
    return [(name, value) for name, value in pairs if name in names]


def _text(value: bytes) -> str:
    return value.decode("latin-1")
