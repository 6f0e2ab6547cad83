"""Agents on plain httpx that keep the protocol by hand, and each break one thing when told to.

The wire is all they share with tenuto: nothing here is imported from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {argument: {"type": "string"}},
                "required": [argument],
            },
        },
    }
    for name, argument in (("delegate", "task"), ("read_file", "path"), ("delete_file", "path"))
]
TRIES = 4


def hashed(*parts: object) -> str:
    return hashlib.blake2b(repr(("a key", *parts)).encode(), digest_size=16).hexdigest()


@dataclass
class Session:
    """What a client knows of one session."""

    run: str
    id: str
    parent: str | None = None
    kind: str = "main"
    token: str | None = None
    phase: str = "start"
    counted: int | None = None
    turns: dict[str, list[int]] = field(default_factory=dict)

    def count(self, prompt: str) -> tuple[int, int]:
        """Return turn and attempt of a try of a prompt."""
        entry = self.turns.setdefault(prompt, [len(self.turns), -1])
        entry[1] += 1
        return entry[0], entry[1]


class Honest:
    """Marks every call as the protocol says; each `_…` method can be broken."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.run = hashed(name)
        self.name = name
        self.http = httpx.Client(base_url=url, timeout=10)

    # -- what one call says

    def session(self, *parts: object, parent: Session | None = None, kind: str = "main") -> Session:
        above = parent.id if parent else None
        return Session(self.run, hashed(self.run, above, *parts), above, kind)

    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        said = [("X-Session-ID", session.id), ("X-Agent-Run-ID", session.run)]
        turn = f"n={n}, attempt={attempt}, phase={session.phase}, class={session.kind}"
        if session.counted is not None:
            turn += f", prefix={session.counted}"
        said.append(("X-Agent-Turn", turn))
        if session.parent is not None:
            said.append(("X-Parent-Session-ID", session.parent))
        if session.token is not None:
            said.append(("X-Agent-Affinity", session.token))
        return said

    def on_redirect(self, headers: list[tuple[str, str]], session: Session) -> Any:
        return []

    # -- the API's shape: histories are chat messages until they are sent

    path = "/v1/chat/completions"

    def asked(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def answered(self, answer: httpx.Response) -> dict[str, Any]:
        return answer.json()["choices"][0]["message"]

    def phase(self, session: Session, messages: list[Any]) -> str:
        if messages[-1]["role"] == "tool":
            return "tool"
        return "user" if session.turns else "start"

    def counted(self, answer: httpx.Response) -> int | None:
        return answer.json()["usage"]["total_tokens"]

    def tell(self, path: str, news: Any) -> None:
        with contextlib.suppress(httpx.TransportError):
            self.http.post(path, json=news)

    # -- the loop around it

    def call(
        self,
        session: Session | None,
        messages: list[Any],
        own: list[Any] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        body = {"model": "m", "messages": messages, **more}
        if session is not None:
            session.phase = self.phase(session, messages)
        for _ in range(TRIES):
            headers = own or []
            if session is not None:
                headers = self.headers(session, *session.count(json.dumps(messages)))
            with contextlib.suppress(httpx.TransportError):
                answer = self.http.post(self.path, json=self.asked(body), headers=headers)
                if answer.status_code == 307:
                    to = answer.headers["location"]
                    there = self.on_redirect(headers, session) if session else []
                    answer = self.http.post(to, json=self.asked(body), headers=there)
                elif answer.status_code == 200 and session is not None:
                    token = answer.headers["x-agent-affinity"]
                    session.token = session.token if " " in token else token
                if answer.status_code == 200:
                    if session is not None:
                        session.counted = self.counted(answer)
                        after = {"session": session.id, "next": "tool", "gap": 10}
                        self.tell("/tenuto/turns", [after])
                    return self.answered(answer)
        raise RuntimeError("no answer")

    def agent(
        self,
        session: Session,
        task: str,
        *,
        rounds: int = 1,
        tools: Any = TOOLS,
        meanwhile: Callable[[], Any] = lambda: None,
    ) -> str:
        messages: list[Any] = [{"role": "system", "content": f"You are {session.kind}."}]
        message: dict[str, Any] = {}
        for number in range(rounds):
            messages.append({"role": "user", "content": f"{task} Step {number}."})
            message = self.call(session, messages, tools=tools)
            meanwhile()
            while calls := message.get("tool_calls"):
                messages.append(message)
                results = self.tools(session, calls)
                for call, result in zip(calls, results, strict=True):
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
                message = self.call(session, messages, tools=tools)
            messages.append(message)
        self.history = messages
        return message["content"]

    def tools(self, session: Session, calls: list[Any]) -> list[str]:
        def one(call: Any, index: int) -> str:
            arguments = json.loads(call["function"]["arguments"])
            if call["function"]["name"] != "delegate":
                return "no such file"
            return self.agent(self.child(session, index), arguments["task"], tools=TOOLS[1:])

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(one, calls, range(len(calls))))

    def child(self, session: Session, index: int) -> Session:
        return self.session("search", index, parent=session, kind="subagent")

    def work(self) -> None:
        main = self.session("planner")
        self.agent(main, "Plan.", rounds=3)
        self.tell("/tenuto/sessions/end", {"sessions": [main.id]})
        verifier = self.session("verifier")
        aside = self.session("title", parent=main, kind="auxiliary")
        title = [{"role": "user", "content": "A title?"}]
        self.agent(verifier, "Verify.", rounds=1, meanwhile=lambda: self.call(aside, title))
        asks = "[tenuto unmarked] Outside."
        self.call(None, [{"role": "user", "content": asks}])
        asks = "[tenuto own X-Session-ID=of-the-program] Mine."
        own = [("X-Session-ID", "of-the-program")]
        self.call(None, [{"role": "user", "content": asks}], own)
        self.http.close()


class OneHeaderForAll(Honest):
    def session(self, *parts: object, parent: Session | None = None, kind: str = "main") -> Session:
        self.only = getattr(self, "only", None) or super().session()
        return self.only


class IdPerCall(Honest):
    def call(self, session: Session | None, messages: list[Any], *a: Any, **more: Any) -> Any:
        if session is not None:
            session = self.session(json.dumps(messages), session.id)
        return super().call(session, messages, *a, **more)


class IdPerTry(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        if attempt == 0:
            return super().headers(session, n, attempt)
        other = Session(session.run, hashed(session.id, n, attempt), session.parent, session.kind)
        return super().headers(other, n, attempt)


class NameAsId(Honest):
    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        self.run = name


class HashWithoutKey(Honest):
    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        self.run = hashlib.sha256(name.encode()).hexdigest()[:32]


class RandomBelowTheRun(Honest):
    def session(self, *parts: object, parent: Session | None = None, kind: str = "main") -> Session:
        return super().session(*parts, id(self), self.url, parent=parent, kind=kind)


class IdThatEndsInATurn(Honest):
    def session(self, *parts: object, parent: Session | None = None, kind: str = "main") -> Session:
        made = super().session(*parts, parent=parent, kind=kind)
        made.id += "_t1"
        return made


class TooMany(Honest):
    ALIASES = (
        *("X-Session-Affinity", "X-Litellm-Session-Id", "X-Bf-Session-Id", "X-Grok-Conv-Id"),
        *("X-Smg-Routing-Key", "X-Affinity", "X-Dynamo-Session-Id", "X-Correlation-Id"),
        *("X-Multi-Turn-Session-Id", "Helicone-Session-Id", "Agent-Session-Id"),
        *("X-Opencode-Session", "X-Pass-X-Session-Id", "X-Bf-Eh-X-Session-Id"),
    )

    def session(self, *parts: object, parent: Session | None = None, kind: str = "main") -> Session:
        made = super().session(*parts, parent=parent, kind=kind)
        made.id *= 2
        return made

    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        more = [(name, session.id) for name in self.ALIASES]
        return super().headers(session, n, attempt) + more


class NamesARank(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        return [*super().headers(session, n, attempt), ("X-data-parallel-rank", "1")]


class MarkersFollow(Honest):
    def on_redirect(self, headers: list[tuple[str, str]], session: Session) -> Any:
        return [(name, value) for name, value in headers if name != "X-Agent-Affinity"]


class TokenFollows(Honest):
    def on_redirect(self, headers: list[tuple[str, str]], session: Session) -> Any:
        # Under a name that no dialect knows, so that it is the token alone that travels.
        return [("X-Sticky", session.token)] if session.token else []


class TokenOfAnother(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        mine, self.last = session.token, session.token or getattr(self, "last", None)
        said = super().headers(session, n, attempt)
        is_foreign = mine is None and self.last and session.kind == "auxiliary"
        return [*said, ("X-Agent-Affinity", self.last)] if is_foreign else said


class NoEcho(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        said = super().headers(session, n, attempt)
        return [pair for pair in said if pair[0] != "X-Agent-Affinity"]


class TwoNamesForOne(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        return [*super().headers(session, n, attempt), ("X-Session-Affinity", session.run)]


class StaleToken(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        said = dict(super().headers(session, n, attempt))
        if session.token is not None:
            self.first = getattr(self, "first", {})
            said["X-Agent-Affinity"] = self.first.setdefault(session.id, session.token)
        return list(said.items())


class UnderscoreInAName(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        return [*super().headers(session, n, attempt), ("conversation_id", session.id)]


class NotAscii(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> Any:
        run = ("X-Pass-X-Agent-Run-ID", f"{session.run}é".encode())
        said = super().headers(session, n, attempt)
        return [*said, ("X-Litellm-Session-Id", session.id), run]


class Twice(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        return [*super().headers(session, n, attempt), ("X-Session-ID", session.id)]


class TurnPerTry(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        # Every try is a further entry, so the number of entries counts tries.
        session.turns[f"a try of {n}, {attempt}"] = [0, 0]
        return super().headers(session, len(session.turns), 0)


class TurnStays(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        return super().headers(session, 0, attempt)


class TurnLeaps(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        return super().headers(session, 2 * n, attempt)


class AttemptStays(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        return super().headers(session, n, 0)


class ChildIsItsParent(Honest):
    def child(self, session: Session, index: int) -> Session:
        return session


class ChildOfNobody(Honest):
    def child(self, session: Session, index: int) -> Session:
        made = super().child(session, index)
        made.parent = hashed("somebody else")
        return made


class ChildOfItself(Honest):
    def child(self, session: Session, index: int) -> Session:
        made = super().child(session, index)
        made.parent = made.id
        return made


class UnreadableTurn(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        said = dict(super().headers(session, n, attempt))
        return list({**said, "X-Agent-Turn": f"n={n};;attempt"}.items())


class AsideInTheMidst(Honest):
    def session(self, *parts: object, parent: Session | None = None, kind: str = "main") -> Session:
        if parts == ("title",):
            return self.verifier
        made = super().session(*parts, parent=parent, kind=kind)
        if parts == ("verifier",):
            self.verifier = made
        return made


class SaysStartAgain(Honest):
    def phase(self, session: Session, messages: list[Any]) -> str:
        said = super().phase(session, messages)
        return "start" if said == "user" else said


class TakesAToolForAUser(Honest):
    def phase(self, session: Session, messages: list[Any]) -> str:
        return super().phase(session, messages).replace("tool", "user")


class SeesAToolEverywhere(Honest):
    def phase(self, session: Session, messages: list[Any]) -> str:
        return super().phase(session, messages).replace("user", "tool")


class CountsThePromptAlone(Honest):
    def counted(self, answer: httpx.Response) -> int | None:
        return answer.json()["usage"]["prompt_tokens"]


class SaysLessOfALaterTry(Honest):
    def headers(self, session: Session, n: int, attempt: int) -> list[tuple[str, str]]:
        said = dict(super().headers(session, n, attempt))
        if attempt:
            said["X-Agent-Turn"] = f"n={n}, attempt={attempt}"
        return list(said.items())


class TellsBeforeAnAnswer(Honest):
    def work(self) -> None:
        self.tell("/tenuto/sessions/end", {"sessions": [hashed("another")]})
        super().work()


class TellsInOtherWords(Honest):
    def tell(self, path: str, news: Any) -> None:
        super().tell(path, {"turns": news} if path.endswith("turns") else news)


class TellsWhatNoServerTakes(Honest):
    def tell(self, path: str, news: Any) -> None:
        super().tell(path, news * 257 if isinstance(news, list) else news)


class EndsByName(Honest):
    def tell(self, path: str, news: Any) -> None:
        super().tell(path, {"sessions": ["main"]} if path.endswith("end") else news)


class DiesOfABadAnswer(Honest):
    def tell(self, path: str, news: Any) -> None:
        pass

    def call(self, session: Session | None, messages: list[Any], *a: Any, **more: Any) -> Any:
        before = session.token if session else None
        message = super().call(session, messages, *a, **more)
        if session and session.turns and session.token == before and before is not None:
            # Only a redirected answer and a malformed one leave the token as it was.
            self.kept = getattr(self, "kept", 0) + 1
            if self.kept == 2:
                raise SystemExit("what was that?")
        return message


class MarkedOutside(Honest):
    def call(self, session: Session | None, messages: list[Any], own: Any = None, **m: Any) -> Any:
        session = session or (None if own else self.session("left open"))
        return super().call(session, messages, own, **m)


class OverrulesTheProgram(Honest):
    def call(self, session: Session | None, messages: list[Any], own: Any = None, **m: Any) -> Any:
        if own:
            own = [("X-Session-ID", hashed("ours"))]
        return super().call(session, messages, own, **m)


class StandsBesideTheProgram(Honest):
    def call(self, session: Session | None, messages: list[Any], own: Any = None, **m: Any) -> Any:
        if own:
            own = [*own, ("X-Agent-Run-ID", self.run)]
        return super().call(session, messages, own, **m)


BROKEN: dict[type[Honest], set[str]] = {
    OneHeaderForAll: {"id-instance"},
    IdPerCall: {"id-context"},
    IdPerTry: {"id-context"},
    NameAsId: {"id-keyed"},
    HashWithoutKey: {"id-keyed"},
    RandomBelowTheRun: {"id-derived"},
    IdThatEndsInATurn: {"id-shape"},
    TooMany: {"wire-size"},
    NamesARank: {"wire-no-target"},
    MarkersFollow: {"wire-redirect"},
    TokenFollows: {"wire-token"},
    TokenOfAnother: {"wire-token"},
    NoEcho: {"affinity-echo"},
    TwoNamesForOne: {"wire-caller-wins"},
    StaleToken: {"affinity-echo"},
    UnderscoreInAName: {"wire-size"},
    NotAscii: {"wire-size", "id-shape"},
    Twice: {"wire-duplicate"},
    TurnPerTry: {"id-turn"},
    TurnStays: {"id-turn"},
    TurnLeaps: {"id-turn"},
    AttemptStays: {"id-turn"},
    ChildIsItsParent: {"id-instance"},
    ChildOfNobody: {"parent-named"},
    ChildOfItself: {"parent-named"},
    UnreadableTurn: {"wire-total"},
    AsideInTheMidst: {"auxiliary"},
    SaysStartAgain: {"turn-phase"},
    TakesAToolForAUser: {"turn-phase"},
    SeesAToolEverywhere: {"turn-phase"},
    CountsThePromptAlone: {"turn-tokens"},
    SaysLessOfALaterTry: {"turn-attempt"},
    TellsBeforeAnAnswer: {"news-told"},
    TellsInOtherWords: {"news-turns"},
    TellsWhatNoServerTakes: {"news-bounds"},
    EndsByName: {"news-end"},
    MarkedOutside: {"id-unmarked"},
    OverrulesTheProgram: {"wire-caller-wins"},
    StandsBesideTheProgram: {"wire-caller-wins"},
}


if __name__ == "__main__":
    (kind,) = (one for one in (Honest, DiesOfABadAnswer, *BROKEN) if one.__name__ == sys.argv[1])
    kind(os.environ["TENUTO_CONFORMANCE_URL"], os.environ["TENUTO_CONFORMANCE_NAME"]).work()
