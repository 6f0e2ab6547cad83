"""What is known only after an answer, told to the server in the background.

Which tools the answer called and that a session has ended go to the two routes of
docs/protocol.md, "News after the answer"; to a server that has answered in protocol 1 and
to no other. Best effort: what a server does not take is dropped and counted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any, Literal, NamedTuple

from openai import DefaultHttpxClient

from tenuto import _wire
from tenuto.dialects import EndCall

TURNS_PATH = "/tenuto/turns"
ENDED_PATH = "/tenuto/sessions/end"
MAX_BATCH = 256
_TIMEOUT_S = 2.0
# A server that refuses this often in a row is told nothing more.
_PATIENCE = 3
_KEPT_SERVERS = 64


class Server(NamedTuple):
    """Where news goes: the root that the API's `/v1` hangs below, and the credential.

    The credential is the one that the client sends to the same origin. `news` is as
    `Dialect` has it: of a router only a call with the session's own header finds the
    worker that has the session.
    """

    root: str
    authorization: str | None = None
    news: Literal["batch", "session"] | None = "batch"


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
        self._refusals: OrderedDict[str, int] = OrderedDict()

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
        if not (turns or ended or calls):
            return
        # openai's own HTTP library: another one that is imported here, in a thread, would be
        # half imported where openai looks for it. For this batch alone: a connection that is
        # kept would outlive a fork. No redirect: news is for the origin that it is about.
        with DefaultHttpxClient(timeout=_TIMEOUT_S, follow_redirects=False) as http:
            for server, said in turns.items():
                for ids in _batches(list(said), server):
                    call = EndCall("POST", TURNS_PATH, json=[said[one] for one in ids])
                    self._post(http, server, call, ids)
            for server, gone in ended.items():
                for ids in _batches(list(gone), server):
                    call = EndCall("POST", ENDED_PATH, json={"sessions": ids})
                    self._post(http, server, call, ids)
            for server, call in calls:
                self._post(http, server, call, [])

    def _post(self, http: Any, server: Server, call: EndCall, ids: list[str]) -> None:
        items = len(ids) or 1
        refused = self._refusals.get(server.root, 0)
        if refused >= _PATIENCE:
            self.counts["dropped"] += items
            return
        try:
            status = _request(http, server, call, ids)
        except Exception:
            status = 0
        if 200 <= status < 300:
            self._refusals.pop(server.root, None)
            self.counts["sent"] += items
            return
        self.counts["failed"] += items
        self._refusals[server.root] = refused + 1
        self._refusals.move_to_end(server.root)
        if len(self._refusals) > _KEPT_SERVERS:
            self._refusals.popitem(last=False)


def _request(http: Any, server: Server, call: EndCall, ids: list[str]) -> int:
    headers = {"authorization": server.authorization} if server.authorization else {}
    if server.news == "session" and ids:
        headers[_wire.SESSION] = ids[0]
    answer = http.request(
        call.method, server.root + call.path, params=call.query, json=call.json, headers=headers
    )
    return int(answer.status_code)


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
