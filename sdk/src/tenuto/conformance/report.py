"""What a recording shows, requirement by requirement."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tenuto.conformance.requirements import ALL, Check
from tenuto.conformance.seen import Seen
from tenuto.conformance.table import table
from tenuto.conformance.verdicts import Proof, Status, Verdict, not_seen
from tenuto.errors import ConfigError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Result:
    """One requirement: what was found, why, the requests that prove it, how to have it seen."""

    id: str
    status: Status
    why: str
    proof: tuple[Proof, ...] = ()
    how: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of the command.

    Attributes:
        exit_status: the command's; None when it was ended at the time limit.
        wall_s: seconds that it ran.
        requests: how many arrived, over all and of those that run a model.
        output: the end of what it printed.
        without: troubles that the script left out.
    """

    exit_status: int | None
    wall_s: float
    requests: int
    calls: int
    output: str = ""
    without: tuple[str, ...] = ()

    @property
    def ending(self) -> str:
        """How the command ended, in words."""
        return "ended at the time limit" if self.exit_status is None else f"exit {self.exit_status}"


@dataclass(frozen=True, slots=True)
class Report:
    """All results, the dialects that the program speaks, and how it ran."""

    results: tuple[Result, ...]
    dialects: tuple[str, ...]
    runs: tuple[Ran, ...] = ()

    def __getitem__(self, requirement: str) -> Result:
        for result in self.results:
            if result.id == requirement:
                return result
        raise KeyError(requirement)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __str__(self) -> str:
        return table(self)

    @property
    def failed(self) -> tuple[str, ...]:
        """Ids of the requirements that are broken."""
        return tuple(result.id for result in self.results if result.status == "fail")

    @property
    def not_seen(self) -> tuple[str, ...]:
        """Ids of the requirements that nothing showed."""
        return tuple(result.id for result in self.results if result.status == "not seen")

    @property
    def counts(self) -> dict[Status, int]:
        """How many results there are of each status."""
        return dict(Counter(result.status for result in self.results))

    def as_json(self) -> str:
        """Return the report as JSON; `schema` tells its shape."""
        content: dict[str, Any] = {"schema": SCHEMA, "ok": not self.failed, "counts": self.counts}
        content |= asdict(self)
        for one in content["results"]:
            one["proof"] = [Proof(*proof)._asdict() for proof in one["proof"]]
        return json.dumps(content, indent=2) + "\n"


def report(seen: Seen, *, only: Collection[str] = (), runs: Iterable[Ran] = ()) -> Report:
    """Check a recording.

    Args:
        seen: the recording.
        only: ids of the requirements to check; all when empty.
        runs: how the program ran.

    Raises:
        ConfigError: an id is not known; the message lists those that are.
    """
    chosen = known(only)
    found: dict[str, Verdict] = {}
    results = tuple(_result(name, _verdict(name, seen, found)) for name in chosen)
    names = tuple(dialect.name for dialect in seen.dialects)
    return Report(results, names, tuple(runs))


def _verdict(name: str, seen: Seen, found: dict[str, Verdict]) -> Verdict:
    if name not in found:
        requirement = ALL[name]
        after = requirement.after if isinstance(requirement, Check) else ()
        broken = [one for one in after if _verdict(one, seen, found).status == "fail"]
        found[name] = (
            not_seen(f"{broken[0]} is broken first", has_remedy=False)
            if broken
            else requirement(seen)
        )
    return found[name]


def _result(name: str, verdict: Verdict) -> Result:
    requirement = ALL[name]
    how = requirement.how if isinstance(requirement, Check) else ""
    how = how if verdict.status == "not seen" and verdict.has_remedy else ""
    return Result(name, verdict.status, verdict.why, verdict.proof, how)


def known(only: Collection[str]) -> tuple[str, ...]:
    """Return the requirements of these ids in order, all when there are none.

    Raises:
        ConfigError: an id is not known.
    """
    if unknown := sorted(set(only) - ALL.keys()):
        raise ConfigError(f"requirement {unknown[0]!r} is not known; choose of {', '.join(ALL)}")
    return tuple(name for name in ALL if not only or name in only)
