"""How the application is set up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from tenuto_vllm.config import ConfigError
from tenuto_vllm.placement.split import Costs

Always = Literal["", "remote", "local"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the application is told.

    Attributes:
        prefills: root URLs of the servers that prefill for others.
        decodes: root URLs of the servers that answer, one or more.
        lease_s: for which a prefill server keeps what was not fetched; vLLM's
            `kv_lease_duration`, seconds.
        costs: what things take there.
        always: prefill every turn `remote` or `local`; empty leaves it to the decision.
        shadow: prefill where it is decoded, and only count what the decision would have gained.
        is_bidirectional: prefill servers fetch what only the decode server has; both are
            started with `bidirectional_kv_xfer`.
        look_every_s: between two looks at each server, seconds.
        slo_ttft_s: seconds to the first token that are promised; None for no promise.
        slo_itl_s: seconds between two tokens that are promised; None for no promise.
        stage_least_s: for which a remote prefill is waited for in any case, seconds.
        stage_most_s: for which it is waited for unless twice what is expected is more, and for
            which the first of an answer is waited for after the deadline of its transfer.
        key: that the servers and `/tenuto/place` take as a bearer token; empty for none.
    """

    prefills: Sequence[str]
    decodes: Sequence[str]
    lease_s: float = 30.0
    costs: Costs = field(default_factory=Costs)
    always: Always = ""
    shadow: bool = False
    is_bidirectional: bool = False
    look_every_s: float = 1.0
    slo_ttft_s: float | None = None
    slo_itl_s: float | None = None
    stage_least_s: float = 10.0
    stage_most_s: float = 60.0
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Check what was told.

        Raises:
            ConfigError: an address or a time cannot be used.
        """
        if not self.decodes:
            raise ConfigError("there is no decode server; name one with --decode URL.")
        for url in (*self.prefills, *self.decodes):
            _check_url(url)
        urls = [url.rstrip("/") for url in (*self.prefills, *self.decodes)]
        if len(set(urls)) < len(urls):
            raise ConfigError("a server is named twice; each has one role.")
        times_s = {
            "the lease": self.lease_s,
            "the time between two looks": self.look_every_s,
            "the promised time to the first token": self.slo_ttft_s,
            "the promised time between tokens": self.slo_itl_s,
            "the least time of a stage": self.stage_least_s,
            "the most time of a stage": self.stage_most_s,
        }
        for name, time_s in times_s.items():
            if time_s is not None and not (time_s > 0 and math.isfinite(time_s)):
                raise ConfigError(f"{name} is {time_s} s; it is above 0.")
        if self.stage_most_s < self.stage_least_s:
            raise ConfigError("the most time of a stage is not below the least.")


def _check_url(url: str) -> None:
    """Raise where a URL is not the root of a server."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.username is not None:
        raise ConfigError("credentials are not taken in a server's URL.")
    is_plain = not (parts.query or parts.fragment) and port != 0
    if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain:
        raise ConfigError(f"{url!r:.100} is no server; write http://HOST:PORT.")
    if parts.path.rstrip("/").endswith("/v1"):
        raise ConfigError(f"{url!r:.100} is no server's root; leave out /v1.")
