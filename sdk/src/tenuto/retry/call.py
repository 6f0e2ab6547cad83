"""One logical call: where it goes, and whether and when it goes again."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tenuto import process
from tenuto.context import current_session
from tenuto.retry import attempt, policy
from tenuto.retry.failover import Routes, order
from tenuto.retry.given_up import GivenUp, call_key
from tenuto.retry.homes import Homes
from tenuto.session import Session

if TYPE_CHECKING:
    from tenacity import RetryCallState

Wait = Callable[["RetryCallState"], float]

_log = logging.getLogger("tenuto")


@dataclass(frozen=True, slots=True)
class Policy:
    """What a client's retry layer was told, and what it remembers between calls.

    Attributes:
        deadline_s: the time a call may take with all its attempts; inf for no bound.
        wait: seconds before the next attempt, where the server does not say.
        routes: its base URLs.
        homes: where sessions live among them; None where all prefer the first.
        clock: seconds, from any start, that only go forward.
    """

    deadline_s: float
    wait: Wait
    routes: Routes
    homes: Homes | None = None
    given_up: GivenUp = field(default_factory=GivenUp)
    clock: Callable[[], float] = time.monotonic


class Call:
    """What a logical call has tried so far. Made per call, used by one thread or task.

    Its methods `again`, `wait` and `stop` are what tenacity asks, in this order.
    """

    def __init__(self, client: Any, options: Any, *, stream: bool) -> None:
        self._policy: Policy = client.__tenuto_retry__
        self._client = client
        now_s = self._policy.clock()
        self._ends_s = now_s + self._policy.deadline_s
        self._bodies = (options.json_data, options.extra_json)
        self._stateful = policy.is_stateful(options.url, *self._bodies)
        self._options = attempt.prepared(client, options, stream=stream)
        self._allowed: int = options.get_max_retries(client.max_retries) + 1
        self._attempts = 1 if self._is_repeat(now_s) else self._allowed
        self._rewind = attempt.rewinder(options)
        own = attempt.url_of(client)
        self._session: Session | None = None
        # Where the session stays although another URL answers, since it was only busy.
        self._home: str | None = None
        self._urls = self._route(own, now_s)
        self._own = own
        self._at = 0
        self._not_before_s: dict[str, float] = {}
        self._wait_s = 0.0

    def _route(self, own: str, now_s: float) -> list[str]:
        """Return the base URLs of the call in the order of its attempts."""
        routes, homes, url = self._policy.routes, self._policy.homes, self._options.url
        if own not in routes.urls:
            return [own]
        is_anywhere, session = policy.is_anywhere(url), current_session()
        if homes is None or session is None or policy.is_of_conversation(*self._bodies):
            return routes.order(now_s) if is_anywhere else [own]
        home, session_id = homes.of(session), session.session_id
        if policy.is_kept_at_home(url, *self._bodies):
            # Elsewhere it would find nothing, whether or not that server is up.
            return order(routes.urls, {}, now_s, home=home, session=session_id)[:1]
        if not is_anywhere:
            return [own]
        self._session = session
        urls = routes.order(now_s, home=home, session=session_id)
        self._home = home if urls[0] == home else None
        return urls

    def _is_repeat(self, now_s: float) -> bool:
        given_up = self._policy.given_up
        if not given_up:
            return False
        key = call_key(self._options.url, *self._bodies)
        return key is not None and given_up.has(key, now_s)

    @property
    def url(self) -> str:
        """The base URL of the attempt under way, or of the next."""
        return self._urls[self._at % len(self._urls)]

    def next(self) -> tuple[Any, Any]:
        """Return the client and the options to make the next attempt with."""
        # openai takes what it has read out of the options it is given.
        options = self._options.model_copy()
        if self._ends_s != math.inf:
            left_s = max(self._ends_s - self._policy.clock(), 0.001)
            options.timeout = attempt.timeout_within(left_s, options.timeout, self._client.timeout)
        if self.url == self._own:
            return self._client, options
        return attempt.moved(self._client, self._own, self.url), options

    def answered(self) -> None:
        """Note that the attempt under way has brought an answer."""
        self._policy.routes.answered(self.url)
        homes, session = self._policy.homes, self._session
        if homes is not None and session is not None and self._home in (None, self.url):
            homes.settle(session, self.url)
        if self._policy.given_up:
            key = call_key(self._options.url, *self._bodies)
            if key is not None:
                self._policy.given_up.discard(key)

    def again(self, state: RetryCallState) -> bool:
        """Tell whether the failed attempt is one that can be made again."""
        error = state.outcome.exception() if state.outcome is not None else None
        try:
            return error is not None and self._goes_on(error, state)
        except Exception:
            process.pass_over("decide on a retry of")
            return False

    def _goes_on(self, error: BaseException, state: RetryCallState) -> bool:
        now_s = self._policy.clock()
        if policy.is_down(error):
            self._policy.routes.failed(self.url, now_s)
            if self.url == self._home:
                self._home = None
        if not policy.is_retryable(error) or not self._can_be_repeated(error):
            return False
        asked_s = policy.server_wait_s(error, time.time())
        if asked_s is None:
            asked_s = self._backoff_s(state)
        elif asked_s > policy.MAX_SERVER_WAIT_S:
            asked_s = math.inf
        self._not_before_s[self.url] = now_s + asked_s
        if policy.moves_on(error) and not self._stateful:
            self._at += 1
        # Another URL is not what was asked to be spared.
        self._wait_s = max(self._not_before_s.get(self.url, now_s) - now_s, 0.0)
        return True

    def _can_be_repeated(self, error: BaseException) -> bool:
        if self._stateful and not policy.is_replay_safe(error):
            return False
        return self._rewind()

    def _backoff_s(self, state: RetryCallState) -> float:
        try:
            return max(float(self._policy.wait(state)), 0.0)
        except Exception:
            process.pass_over("ask the wait function about")
            return 0.0

    def wait(self, state: RetryCallState) -> float:
        """Return the seconds until the next attempt."""
        return self._wait_s

    def stop(self, state: RetryCallState) -> bool:
        """Tell whether no attempt is left, or no time for one."""
        now_s = self._policy.clock()
        if state.attempt_number < self._attempts and now_s + self._wait_s < self._ends_s:
            return False
        # An outer layer that has turned this one off is the one that tries again.
        key = call_key(self._options.url, *self._bodies) if self._allowed > 1 else None
        if key is not None:
            self._policy.given_up.add(key, now_s)
        return True

    def log(self, state: RetryCallState) -> None:
        """Say that another attempt is made, and after what."""
        # A handler or filter of the program's may raise, and no call may fail by it.
        with contextlib.suppress(Exception):
            error = state.outcome.exception() if state.outcome is not None else None
            _log.info(
                "attempt %d of %d failed (%s), the next one follows in %.3f s",
                *(state.attempt_number, self._attempts, type(error).__name__, self._wait_s),
            )
