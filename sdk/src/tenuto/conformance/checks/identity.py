"""Ids by themselves: their shape, what they are made of, where they are absent."""

from __future__ import annotations

import base64
import hashlib
import re
from urllib.parse import quote

from tenuto import _wire
from tenuto.conformance.captured import Request
from tenuto.conformance.cues import UNMARKED, cues
from tenuto.conformance.dialects import Role
from tenuto.conformance.reading import value_of
from tenuto.conformance.seen import Seen
from tenuto.conformance.verdicts import Proof, Verdict, failed, not_seen, passed

_ROLES: tuple[Role, ...] = ("session", "parent", "run")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_MIN_DIGEST = 8


def shape(seen: Seen) -> Verdict:
    """id-shape: every id has the shape of protocol 1, or fits the limit of its own dialect."""
    for request in seen.marked:
        said = seen.said(request)
        for role, value in zip(_ROLES, (said.session, said.parent, said.run), strict=True):
            dialect = seen.dialect_of(said.name_of(role))
            if value is None or dialect is None:
                continue
            if dialect.max_id is None and not _wire.is_id(value):
                rule = "is not 8 to 64 letters, digits, _ and -, or ends in _t or _r and digits"
                return failed(f"the {role} id {rule}", seen.shown(request, role), whole=True)
            limit = dialect.max_id or 0
            if limit and not (len(value) <= limit and _VISIBLE.fullmatch(value)):
                rule = f"is not visible ASCII of at most {limit} characters ({dialect.name})"
                return failed(f"the {role} id {rule}", seen.shown(request, role), whole=True)
    first = seen.marked[0]
    return passed(f"all ids of {len(seen.marked)} calls", seen.shown(first, "session"))


def keyed(seen: Seen) -> Verdict:
    """id-keyed: the user's name of the run does not travel, nor a hash anybody can make."""
    name = seen.name
    if not name:
        return not_seen("no name was given to the agent")
    forms = {
        "the name itself": [name],
        "the name, encoded": [
            quote(name, safe=""),
            base64.b64encode(name.encode()).decode().rstrip("="),
            base64.urlsafe_b64encode(name.encode()).decode().rstrip("="),
            name.encode().hex(),
        ],
    }
    for request in seen.requests:
        for header, value in _sent(seen, request):
            for what, texts in forms.items():
                if any(text.lower() in value.lower() for text in texts):
                    return failed(f"{what} travels", Proof(request.number, header, value))
            if _is_plain_hash(value, name):
                why = "an id is a hash of the name without a key: names can be guessed from it"
                return failed(why, Proof(request.number, header, value))
    if seen.again is None or not _names(seen) & _names(seen.again):
        return not_seen("nothing shows that the agent named its run TENUTO_CONFORMANCE_NAME")
    return passed("the run's ids are the same in two runs and do not show its name")


def derived(seen: Seen) -> Verdict:
    """id-derived: run again with the same names, the program gives the same ids."""
    again = seen.again
    if again is None:
        return not_seen("the program ran once (--twice)")
    ids, ids_again = _sessions(seen), _sessions(again)
    for session, request in ids_again.items():
        said = again.said(request)
        if session in ids or not (_runs(seen) & {said.run} or said.parent in ids):
            continue
        before = _counterpart(seen, ids, ids_again, again, request)
        now = again.shown(request, "session")._replace(run=2)
        why = "a session has another id in the second run, below a run that is the same"
        return failed(why, *([seen.shown(before, "session")] if before else []), now)
    common = ids.keys() & ids_again.keys()
    if not common:
        return not_seen("every id differs in the second run: the run is random or has no name")
    session = sorted(common, key=lambda one: ids[one].number)[0]
    now = again.shown(ids_again[session], "session")._replace(run=2)
    return passed(f"{len(common)} ids are the same", seen.shown(ids[session], "session"), now)


def unmarked(seen: Seen) -> Verdict:
    """id-unmarked: a call that says it is outside every run carries no marker."""
    outside = [r for r in seen.calls if r.prompt and UNMARKED in cues(r.prompt.asks)]
    for request in outside:
        carriers = (c for dialect in seen.dialects for c in dialect.carriers)
        name = next((c.name for c in carriers if value_of(request, c.name)), None)
        if name is not None:
            value = str(value_of(request, name))
            why = "a call outside every run carries a marker"
            return failed(why, Proof(request.number, name.removeprefix("body:"), value))
    if not outside or not seen.marked:
        return not_seen("no call says that it is outside every run, beside others that are inside")
    return passed(
        "a call outside every run carries none",
        Proof(outside[0].number, "markers", ""),
        seen.shown(seen.marked[0], "session"),
    )


def _sent(seen: Seen, request: Request) -> list[tuple[str, str]]:
    """Return headers and marker fields, and not the prompt, which may speak of anything."""
    headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in request.headers]
    fields = {c.name for d in seen.dialects for c in d.carriers if c.name.startswith("body:")}
    values = ((name.removeprefix("body:"), value_of(request, name)) for name in sorted(fields))
    return [*headers, *((name, str(value)) for name, value in values if value is not None)]


def _is_plain_hash(value: str, name: str) -> bool:
    text = value.lower().replace("-", "")
    if len(text) < _MIN_DIGEST or not re.fullmatch(r"[0-9a-f]+", text):
        return False
    hashes = ("md5", "sha1", "sha256", "sha512", "blake2b", "blake2s", "sha3_256")
    digests = [
        hashlib.new(kind, name.encode(), usedforsecurity=False).hexdigest() for kind in hashes
    ]
    digests += [hashlib.blake2b(name.encode(), digest_size=n).hexdigest() for n in (8, 16, 32)]
    return any(digest.startswith(text) for digest in digests)


def _sessions(seen: Seen) -> dict[str, Request]:
    """Return the session ids, each with the first request that names it."""
    found: dict[str, Request] = {}
    for request in seen.marked:
        found.setdefault(seen.said(request).session or "", request)
    return found


def _runs(seen: Seen) -> set[str | None]:
    return {seen.said(request).run for request in seen.marked} - {None}


def _names(seen: Seen) -> set[str | None]:
    return {*_sessions(seen), *_runs(seen)}


def _counterpart(
    seen: Seen, ids: dict[str, Request], ids_again: dict[str, Request], again: Seen, now: Request
) -> Request | None:
    """Return the request of the first run that opened what `now` opens in the second."""
    opening = now.prompt.opening if now.prompt else ""
    alike = [r for r in ids.values() if r.prompt and r.prompt.opening == opening]
    return next((r for r in alike if seen.said(r).session not in ids_again), None)
