"""`retrying(client)`: the one layer that tries a logical call again.

The seam is `request()` of a subclass on top of the one that `wrap` makes. Every way to call
goes through it once per logical call, and copies of the client keep the class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from openai._base_client import AsyncAPIClient, SyncAPIClient
from tenacity import AsyncRetrying, Retrying, wait_random_exponential

from tenuto import process
from tenuto.errors import ConfigError
from tenuto.openai import wrap
from tenuto.retry.attempt import moved, url_of
from tenuto.retry.call import Call, Policy, Wait
from tenuto.retry.failover import Routes
from tenuto.retry.homes import Homes
from tenuto.retry.streams import start, start_async
from tenuto.sessions import Origin, origin_of

C = TypeVar("C", bound="SyncAPIClient | AsyncAPIClient")

_AZURE = ("_azure_endpoint", "_azure_deployment")


def retrying(
    client: C,
    *,
    attempts: int = 3,
    deadline_s: float | None = None,
    wait: Wait | None = None,
    base_urls: Sequence[str] = (),
    cooldown_s: float = 30.0,
    spread_sessions: bool = False,
) -> C:
    """Return a copy of an openai client on which one layer tries failed calls again.

    The copy is of the same type and wrapped; the client itself stays as it is. openai's own
    retries are off on it, and `retrying` of such a copy replaces the layer.

    Args:
        client: `OpenAI`, `AsyncOpenAI`, `AzureOpenAI`, `AsyncAzureOpenAI` or a subclass.
        attempts: HTTP requests for one logical call, at most. It is `max_retries + 1` of
            the copy, so that `with_options(max_retries=0)` turns the layer off and
            any other number sets it.
        deadline_s: seconds that a call may take with all its attempts and waits, for a
            stream until its first item; no wait goes past it and each attempt's timeouts
            are cut to what is left. None for no bound but `attempts`.
        wait: seconds before the next attempt where the server does not say, given
            tenacity's `RetryCallState`, such as tenacity's own strategies; by default
            random, up to 0.5 s after the first failure, doubling to at most 8 s.
        base_urls: other base URLs that serve the same models, tried in this order; the
            client's own comes first unless it is among them. For Azure clients they are
            endpoints. Each is sent the client's API key.
        cooldown_s: seconds for which later calls avoid a base URL that failed.
        spread_sessions: share the sessions out over the base URLs; each stays at the one that
            has served it while that does not fail. Otherwise all prefer the first.

    Returns:
        The copy, of the client's own type.

    Raises:
        ConfigError: an argument cannot work.
    """
    kind: type[Any] = type(client)
    if not issubclass(kind, SyncAPIClient | AsyncAPIClient):
        raise ConfigError(
            f"retrying() takes an openai client such as OpenAI() or AsyncOpenAI(), "
            f"got {kind.__name__}"
        )
    _check(attempts, deadline_s, wait, cooldown_s)
    urls = _all_urls(client, base_urls)
    origins = _origins(client, urls)
    policy = Policy(
        deadline_s=math.inf if deadline_s is None else deadline_s,
        wait=wait or wait_random_exponential(multiplier=0.5, max=8),
        routes=Routes(urls, cooldown_s),
        homes=Homes(origins) if spread_sessions else None,
    )
    made: C = _copy_with(client, policy, attempts)
    return made


def _copy_with(client: Any, policy: Policy, attempts: int) -> Any:
    made = wrap(client.with_options(max_retries=attempts - 1))
    for name in _AZURE:
        # openai 2 loses them in a copy, and the path of some routes with them.
        if name in client.__dict__:
            made.__dict__[name] = client.__dict__[name]
    made.__class__ = _retrying_class(made.__class__, policy)
    return made


def _origins(client: Any, urls: Sequence[str]) -> dict[str, Origin]:
    own = url_of(client)
    origins: dict[str, Origin] = {}
    for url in urls:
        try:
            there = client if url == own else moved(client, own, url)
        except Exception as error:
            raise ConfigError(f"base_urls: this client cannot go to {url!r}: {error}") from error
        origins[url] = origin_of(there.base_url)
    return origins


def _check(attempts: Any, deadline_s: Any, wait: Any, cooldown_s: Any) -> None:
    if type(attempts) is not int or attempts < 1:
        raise ConfigError(f"attempts must be a whole number from 1, got {attempts!r}")
    if deadline_s is not None and not _is_seconds(deadline_s, least=1e-9):
        raise ConfigError(f"deadline_s must be seconds above 0, or None, got {deadline_s!r}")
    if wait is not None and not callable(wait):
        raise ConfigError(f"wait must be a function such as tenacity.wait_fixed(1), got {wait!r}")
    if not _is_seconds(cooldown_s, least=0.0):
        raise ConfigError(f"cooldown_s must be seconds from 0, got {cooldown_s!r}")


def _is_seconds(value: Any, least: float) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and value >= least


def _all_urls(client: Any, given: Any) -> list[str]:
    if isinstance(given, str):
        raise ConfigError(f"base_urls must be a list of URLs, got the string {given!r}")
    own = url_of(client)
    urls = [_full_url(client, own, url) for url in given]
    return list(dict.fromkeys(urls if own in urls else [own, *urls]))


def _full_url(client: Any, own: str, given: Any) -> str:
    url = str(given).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query:
        raise ConfigError(f"base_urls must be http or https URLs, got {given!r}")
    endpoint = getattr(client, "_azure_endpoint", None)
    if endpoint is not None:
        # What follows the endpoint: `/openai`, and the deployment where one was named.
        url = url.removesuffix("/openai") + own.removeprefix(str(endpoint).rstrip("/"))
    return url


def _retrying_class(base: type[Any], policy: Policy) -> type[Any]:
    # The names stay: openai's User-Agent is made of the class's own.
    body: dict[str, Any] = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__tenuto_retry__": policy,
    }
    if not hasattr(base, "__tenuto_retry__"):
        asynchronous = issubclass(base, AsyncAPIClient)
        body["request"] = _request_async(base) if asynchronous else _request(base)
    return type(base.__name__, (base,), body)


def _request(base: type[Any]) -> Callable[..., Any]:
    def request(self: Any, cast_to: Any, options: Any, **given: Any) -> Any:
        call = _call(self, options, given)
        if call is None:
            return base.request(self, cast_to, options, **given)

        def attempt() -> Any:
            client, prepared = call.next()
            answer = base.request(client, cast_to, prepared, **given)
            start(answer)
            call.answered()
            return answer

        return Retrying(**_rules(call))(attempt)

    return request


def _request_async(base: type[Any]) -> Callable[..., Any]:
    async def request(self: Any, cast_to: Any, options: Any, **given: Any) -> Any:
        call = _call(self, options, given)
        if call is None:
            return await base.request(self, cast_to, options, **given)

        async def attempt() -> Any:
            client, prepared = call.next()
            answer = await base.request(client, cast_to, prepared, **given)
            await start_async(answer)
            call.answered()
            return answer

        return await AsyncRetrying(**_rules(call))(attempt)

    return request


def _call(client: Any, options: Any, given: dict[str, Any]) -> Call | None:
    """Return a call to try, None to leave it to openai's own retries."""
    try:
        return Call(client, options, stream=bool(given.get("stream")))
    except Exception:
        process.pass_over("retry")
        return None


def _rules(call: Call) -> dict[str, Any]:
    return {
        "retry": call.again,
        "wait": call.wait,
        "stop": call.stop,
        "before_sleep": call.log,
        "reraise": True,
    }
