"""The whole: serve, run the agent, run it again, check."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tenuto.conformance.captured import Request
from tenuto.conformance.child import run_child, split
from tenuto.conformance.reading import named
from tenuto.conformance.report import Ran, Report, known, report
from tenuto.conformance.script import TROUBLES
from tenuto.conformance.seen import Seen
from tenuto.conformance.serving import environment, serving
from tenuto.errors import ConfigError

NAME = "ticket-4711"
# A program that is done so fast is run a second time without being asked.
QUICK_S = 20.0


@dataclass(frozen=True)
class Recording:
    """A server at work, and what has arrived at it.

    Attributes:
        url: root URL; OpenAI's clients take it with `/v1`.
        name: the user's name of the run, which may not travel.
        requests: all that has arrived, in order.
    """

    url: str
    name: str
    requests: list[Request]

    @cached_property
    def env(self) -> dict[str, str]:
        """Variables that lead a client to the server."""
        return environment(self.url, self.name)

    def report(
        self,
        *,
        again: Recording | None = None,
        dialects: Collection[str] = (),
        only: Collection[str] = (),
    ) -> Report:
        """Check what has arrived so far.

        Args:
            again: a second recording of the same program, for what must be the same in both.
            dialects: how to read the requests; found out when empty.
            only: ids of the requirements to check; all when empty.

        Raises:
            ConfigError: a dialect or an id is not known.
        """
        seen = self.seen(dialects)
        seen.again = again.seen(dialects) if again is not None else None
        return report(seen, only=only)

    def seen(self, dialects: Collection[str] = (), *, exit_status: int | None = None) -> Seen:
        """Return what has arrived so far, as the checks look at it."""
        return Seen(
            tuple(self.requests),
            dialects=named(dialects),
            name=self.name,
            exit_status=exit_status,
        )


@contextlib.contextmanager
def recording(*, without: Collection[str] = (), name: str = NAME) -> Generator[Recording]:
    """Serve on 127.0.0.1 while the block runs, for a test of your own.

    Args:
        without: troubles that are left out, of `500`, `429`, `drop`, `stall`, `redirect`
            and `garbled`.
        name: what the agent may name its run.

    Raises:
        ConfigError: a trouble is not known, or uvicorn is not installed.
    """
    if unknown := sorted(set(without) - set(TROUBLES)):
        raise ConfigError(f"trouble {unknown[0]!r} is not known; choose of {', '.join(TROUBLES)}")
    with serving(without) as (url, recorder):
        yield Recording(url, name, recorder.requests)


def run(
    command: str | Sequence[str],
    *,
    timeout_s: float = 60.0,
    dialects: Collection[str] = (),
    only: Collection[str] = (),
    env: Mapping[str, str] | None = None,
    name: str = NAME,
    without: Collection[str] = (),
    twice: bool | None = None,
    say: Callable[[str], None] = lambda line: None,
    keep: Callable[[Sequence[Request]], None] = lambda requests: None,
) -> Report:
    """Run an agent against the recording server and check what it sends.

    A program that ends badly after a trouble that it did not try again is run anew without
    that trouble.

    Args:
        command: the agent; `{name}` in it is replaced by the run's name.
        timeout_s: seconds for each run.
        dialects: how to read the requests; found out when empty.
        only: ids of the requirements to check; all when empty.
        env: variables for the agent, which win over the kit's own.
        name: what the agent may name its run.
        without: troubles that are left out.
        twice: run the agent a second time, for what must be the same; None does so when
            the first run took at most 20 s.
        say: takes lines of progress.
        keep: takes the requests of the first run.

    Raises:
        ConfigError: the command cannot be started, or an argument is not known.
    """
    known(only)
    named(dialects)
    agent = _Agent(tuple(split(command, name)), env or {}, name, timeout_s, say)
    left_out = set(without)
    while True:
        first, ran = agent.run(left_out)
        fatal = _fatal(first.requests) - left_out
        if ran.exit_status in {0, None} or not fatal:
            break
        left_out |= fatal
        say(f"not tried again: {', '.join(sorted(fatal))}; running it without")
    keep(first.requests)
    runs = [ran]
    seen = first.seen(dialects, exit_status=ran.exit_status)
    is_quick = ran.exit_status == 0 and ran.wall_s <= QUICK_S
    if seen.marked and (twice or (twice is None and is_quick)):
        second, ran = agent.run(left_out)
        runs.append(ran)
        seen.again = second.seen(dialects)
    return report(seen, only=only, runs=runs)


class _Agent(NamedTuple):
    """The command, and how each of its runs is made."""

    arguments: tuple[str, ...]
    env: Mapping[str, str]
    name: str
    timeout_s: float
    say: Callable[[str], None]

    def run(self, without: Collection[str]) -> tuple[Recording, Ran]:
        """Run the agent against a server of its own."""
        with recording(without=without, name=self.name) as recorded:
            self.say(f"serving at {recorded.url}; running {' '.join(self.arguments)}")
            ended = run_child(self.arguments, {**recorded.env, **self.env}, self.timeout_s)
        calls = sum(request.prompt is not None for request in recorded.requests)
        ran = Ran(
            ended.exit_status,
            ended.wall_s,
            len(recorded.requests),
            calls,
            ended.output,
            tuple(sorted(without)),
        )
        self.say(f"{ran.requests} requests in {ran.wall_s:.1f} s, {ran.ending}")
        return recorded, ran


def _fatal(requests: Sequence[Request]) -> set[str]:
    """Return the troubles after which a prompt never came again."""
    last = {request.prompt.digest: request for request in requests if request.prompt}
    return {one.outcome for one in last.values() if one.failed or one.outcome == "redirect"}
