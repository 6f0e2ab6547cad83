"""The servers: whether they are ready, and what they are doing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tenuto_vllm.pd.options import Options
from tenuto_vllm.placement.split import Node, Role

_USE = re.compile(rb"^vllm:kv_cache_usage_perc\{[^}]*\} (\S+)$", re.MULTILINE)
_BEGAN = re.compile(
    rb"^(?:process_start_time_seconds|vllm:prompt_tokens_created\{[^}]*\}) (\S+)$", re.MULTILINE
)
# Of what a node computes at once, the share that the newest prefill has in its rate.
_NEWEST = 0.2
# Over which arrivals are counted.
_FADE_S = 120.0


@dataclass(slots=True, eq=False)
class Server:
    """One server; `url` is its name.

    Attributes:
        is_up: it answers.
        is_ready: it has answered an ordinary request since it is up.
        problem: why it takes no hand-off, or is not ready; empty where it takes one.
        facts: what it says it is, see `tenuto_vllm.pd.alike`.
        queued_tokens: uncached prompt tokens on their way there.
        queued_s: seconds that their prefill takes.
        waiting: the same of each, in the order in which they came.
        since_s: when the first of them was begun, monotonic.
        running: requests that decode there.
        kv_use: share of its cache that is in use, 0 to 1.
        prefill_tokens, prefill_s: what a prefill computes and takes, of late.
        computed_tokens: prompt tokens that it was given to compute.
        began: when it says that it began.
        arrivals_per_s: prompts that came to be computed there in a second, as of `came_s`.
        came_s: when the last one did, monotonic.
    """

    url: str
    role: Role
    is_up: bool = False
    is_ready: bool = False
    problem: str = "not looked at yet"
    facts: dict[str, str] = field(default_factory=dict[str, str])
    queued_tokens: int = 0
    queued_s: float = 0.0
    waiting: list[float] = field(default_factory=list[float])
    since_s: float = 0.0
    running: int = 0
    kv_use: float = 0.0
    prefill_tokens: float = 0.0
    prefill_s: float = 0.0
    computed_tokens: int = 0
    began: bytes = b""
    arrivals_per_s: float = 0.0
    came_s: float = 0.0

    @property
    def rate(self) -> float:
        """Prompt tokens computed per second of a prefill, of late; 0 where none was seen."""
        return self.prefill_tokens / self.prefill_s if self.prefill_s else 0.0

    @property
    def is_fit(self) -> bool:
        """Whether it takes what is its role's to take."""
        return self.is_up and self.is_ready and (self.role == "decode" or not self.problem)

    def node(self, now_s: float = 0.0) -> Node:
        """Return it as the decision sees it.

        Args:
            now_s: monotonic; the first of what waits is computed, and arrivals fade, until then.
        """
        queued_s = self.queued_s
        if self.waiting:
            # What takes longer than expected is expected to take as long again as it is late.
            first_s = self.waiting[0]
            queued_s += abs(first_s - max(0.0, now_s - self.since_s)) - first_s
        rate = self.arrivals_per_s * _faded(now_s - self.came_s)
        # Seconds say more than tokens, and the decision adds up both.
        return Node(self.url, self.role, 0, self.running, self.is_fit, queued_s, rate)

    def shown(self) -> dict[str, object]:
        """Return its state as JSON holds it."""
        state = "down" if not self.is_up else "warming up" if not self.is_ready else "ready"
        told: dict[str, object] = {"url": self.url, "role": self.role, "state": state}
        if self.problem and (self.role == "prefill" or not self.is_ready):
            told["problem"] = self.problem
        return told

    def begin(self, tokens: int, work_s: float, now_s: float) -> None:
        """Count a prefill that is on its way."""
        self.queued_tokens += tokens
        self.queued_s += work_s
        if not self.waiting:
            self.since_s = now_s
        self.waiting.append(work_s)
        self.came(now_s)

    def came(self, now_s: float) -> None:
        """Count a prompt that is to be computed there."""
        self.arrivals_per_s = self.arrivals_per_s * _faded(now_s - self.came_s) + 1 / _FADE_S
        self.came_s = now_s

    def end(self, tokens: int, work_s: float, now_s: float) -> None:
        """Take it off again."""
        self.queued_tokens -= tokens
        if self.waiting[0] == work_s:
            self.since_s = now_s
        self.waiting.remove(work_s)
        # Sums of floats drift.
        self.queued_s = max(0.0, self.queued_s - work_s) if self.waiting else 0.0

    def took_s(self, begun_s: float, now_s: float) -> float:
        """Return how long a prefill took that was begun then and ends, its wait left out."""
        return now_s - max(begun_s, self.since_s)

    def computed(self, tokens: int, took_s: float | None) -> None:
        """Learn from a prefill how fast they are; None where its end was not seen."""
        self.computed_tokens += tokens
        if tokens > 0 and took_s is not None:
            # Of two that are computed together the second takes no time: no rate of its own.
            newest = _NEWEST if self.prefill_s else 1.0
            self.prefill_tokens += newest * (tokens - self.prefill_tokens)
            self.prefill_s += newest * (took_s - self.prefill_s)

    def expected_s(self, tokens: int) -> float:
        """Return how long so many uncached tokens more take at its rate; infinite without one."""
        return (self.queued_tokens + tokens) / self.rate if self.rate else math.inf

    def gave_up(self, tokens: int, after_s: float) -> None:
        """Learn from a prefill that was waited for in vain: it is no faster than that."""
        if self.rate * after_s > tokens:
            self.prefill_tokens, self.prefill_s = tokens, after_s

    def seen(self, metrics: bytes) -> bool:
        """Read what its `/metrics` says; tell whether it has begun anew since the last look.

        One that was down and does not tell when it began is taken to have begun anew.
        """
        shares = [float(text) for text in _USE.findall(metrics)]
        self.kv_use = max(shares, default=0.0)
        told = b" ".join(_BEGAN.findall(metrics)[:1])
        is_new = told != self.began if told else not self.is_up
        self.began = told
        return is_new


class Fleet:
    """All servers of both roles."""

    def __init__(self, options: Options) -> None:
        self.prefills = [Server(url.rstrip("/"), "prefill") for url in options.prefills]
        self.decodes = [Server(url.rstrip("/"), "decode") for url in options.decodes]
        self._by_url = {one.url: one for one in self.all()}

    def all(self) -> list[Server]:
        """Return the servers, those that prefill first."""
        return [*self.prefills, *self.decodes]

    def of(self, url: str) -> Server:
        """Return a server by its name."""
        return self._by_url[url]

    def nodes(self, servers: Iterable[Server], now_s: float) -> Sequence[Node]:
        """Return servers as the decision sees them."""
        return [one.node(now_s) for one in servers]

    def another(self, than: Server) -> Server:
        """Return the decode server that has least to do, the same one only where it is alone."""
        ready = [one for one in self.decodes if one is not than and one.is_fit]
        return min(ready, key=lambda one: (one.queued_s, one.running), default=than)

    @property
    def is_ready(self) -> bool:
        """Whether a decode server takes requests."""
        return any(one.is_fit for one in self.decodes)


def _faded(passed_s: float) -> float:
    return math.exp(-max(0.0, passed_s) / _FADE_S)
