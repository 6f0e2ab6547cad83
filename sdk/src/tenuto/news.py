"""What is known only after an answer, told to the server in the background.

Which tools the answer called and that a session has ended go to the two routes of
docs/protocol.md, "News after the answer"; to a server that has answered in protocol 1 and
to no other. Best effort: what a server does not take is dropped and counted.

The standard library sends it: openai's HTTP library logs every request with its URL at INFO,
and one that is imported in a thread would be half imported where openai looks for it.
"""

from __future__ import annotations

import json
import ssl
import time
from collections import Counter, OrderedDict
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from tenuto import _wire
from tenuto.dialects import EndCall

TURNS_PATH = "/tenuto/turns"
ENDED_PATH = "/tenuto/sessions/end"
MAX_BATCH = 256
_TIMEOUT_S = 2.0
# A server that refuses this often in a row is told nothing for a while.
_PATIENCE = 3
_PAUSE_S = 60.0
_KEPT_SERVERS = 64


class Server(NamedTuple):
    """Where news goes: the root that the API's `/v1` hangs below, and the credential.

    The credential is the one of the request that the news is about. `news` is as `Dialect`
    has it: of a router only a call with the session's own header finds the worker that has
    the session.
    """

    root: str
    authorization: str | None = None
    news: Literal["batch", "session"] | None = "batch"


class _NoRedirect(HTTPRedirectHandler):
    """News is for the origin that it is about."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class News:
    """Gathers what there is to tell and sends it; for the background thread alone."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew: another process has the connections and tells the rest."""
        self.counts: Counter[str] = Counter()
        self._turns: dict[Server, dict[str, dict[str, Any]]] = {}
        self._ended: dict[Server, dict[str, None]] = {}
        self._calls: list[tuple[Server, EndCall]] = []
        self._refusals: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._opener: OpenerDirector | None = None

    def turn(self, server: Server, said: dict[str, Any]) -> None:
        """Tell what follows a session's turn; of several about one session the last counts."""
        self._turns.setdefault(server, {})[said["session"]] = said

    def ended(self, server: Server, session_id: str) -> None:
        """Tell that a session has ended."""
        self._turns.get(server, {}).pop(session_id, None)
        self._ended.setdefault(server, {})[session_id] = None

    def call(self, server: Server, call: EndCall) -> None:
        """Make a call of another dialect, such as a router's end of a session."""
        self._calls.append((server, call))

    def send(self) -> None:
        """Send all that was gathered."""
        turns, self._turns = self._turns, {}
        ended, self._ended = self._ended, {}
        calls, self._calls = self._calls, []
        for server, said in turns.items():
            for ids in _batches(list(said), server):
                call = EndCall("POST", TURNS_PATH, json=[said[one] for one in ids])
                self._post(server, call, ids)
        for server, gone in ended.items():
            for ids in _batches(list(gone), server):
                self._post(server, EndCall("POST", ENDED_PATH, json={"sessions": ids}), ids)
        for server, call in calls:
            self._post(server, call, [])

    def _post(self, server: Server, call: EndCall, ids: list[str]) -> None:
        items = len(ids) or 1
        refused, until_s = self._refusals.get(server.root, (0, 0.0))
        if refused >= _PATIENCE and time.monotonic() < until_s:
            self.counts["dropped"] += items
            return
        try:
            self._request(server, call, ids)
        except Exception:
            self.counts["failed"] += items
            self._refusals[server.root] = (refused + 1, time.monotonic() + _PAUSE_S)
            self._refusals.move_to_end(server.root)
            if len(self._refusals) > _KEPT_SERVERS:
                self._refusals.popitem(last=False)
            return
        self._refusals.pop(server.root, None)
        self.counts["sent"] += items

    def _request(self, server: Server, call: EndCall, ids: list[str]) -> None:
        headers = {"Content-Type": "application/json"}
        if server.authorization is not None:
            headers["Authorization"] = server.authorization
        if server.news == "session" and ids:
            headers[_wire.SESSION] = ids[0]
        url = server.root + call.path + (f"?{urlencode(call.query)}" if call.query else "")
        body = json.dumps(call.json).encode() if call.json is not None else None
        request = Request(url, body, headers, method=call.method)
        if self._opener is None:
            # Made once: a trust store takes longer to read than the news to send.
            trust = HTTPSHandler(context=ssl.create_default_context())
            self._opener = build_opener(trust, ProxyHandler({}), _NoRedirect)
        # A status of 300 or above is an error too.
        with self._opener.open(request, timeout=_TIMEOUT_S):
            pass


def server_of(
    url: Any, authorization: str | None, news: Literal["batch", "session"] | None = "batch"
) -> Server:
    """Return where the server of a request is told of it.

    Args:
        url: the request's httpx or httpx2 URL; what comes before its `/v1/` is the root.
        authorization: the request's own header.
        news: as `Dialect` has it.
    """
    path: str = url.path
    root = path[: path.find("/v1/")] if "/v1/" in path else ""
    return Server(f"{url.scheme}://{url.netloc.decode('ascii')}{root}", authorization, news)


def _batches(ids: list[str], server: Server) -> list[list[str]]:
    most = 1 if server.news == "session" else MAX_BATCH
    return [ids[at : at + most] for at in range(0, len(ids), most)]
