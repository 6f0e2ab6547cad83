"""One request's answer: the two headers go out before the first byte of the body."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from tenuto_vllm import _wire
from tenuto_vllm.asgi.types import Message, Scope, Send
from tenuto_vllm.engine.seam import RankBox
from tenuto_vllm.model import Placement

_AFFINITY = _wire.AFFINITY.lower().encode()
_SERVED = _wire.SERVED.lower().encode()


@dataclass(frozen=True, slots=True)
class Visit:
    """A placed request: the scope it goes on with, and the token it is answered with.

    Without a session there is no token, and the answer stays as it is.
    """

    scope: Scope
    placement: Placement
    token: str | None


class Responder:
    """Adds the answer's headers and passes everything else through untouched.

    An answer with an error status was served by no rank, so it gets none; `served` is
    told of the others.
    """

    def __init__(
        self, visit: Visit, box: RankBox, send: Send, served: Callable[[Placement], None]
    ) -> None:
        self._visit = visit
        self._box = box
        self._send = send
        self._served = served

    async def send(self, message: Message) -> None:
        """Pass one ASGI message on."""
        token = self._visit.token
        if (
            token is not None
            and message["type"] == "http.response.start"
            and message["status"] < 400
        ):
            # Nothing of ours may stand between an answer and its client.
            with contextlib.suppress(Exception):
                self._served(self._visit.placement)
                headers = [*message.get("headers", ()), *self._headers(token)]
                message = {**message, "headers": headers}
        await self._send(message)

    def _headers(self, token: str) -> list[tuple[bytes, bytes]]:
        placement = self._visit.placement
        # A stream starts before the engine is chosen; then the choice stands for it.
        served = self._box.served
        rank = placement.rank if served is None else served
        said = _wire.Served(rank=rank, home=placement.rank, why=placement.why)
        return [
            (_AFFINITY, token.encode()),
            (_SERVED, _wire.encode_served(said).encode()),
        ]
