"""What Prometheus reads at `/metrics`, by role, so that the two can be scaled apart.

The table is in docs/prefill-decode.md, Metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tenuto_vllm.pd.fleet import Fleet, Server
from tenuto_vllm.pd.planner import Plan

_FALLBACKS = (
    *("deadline", "prefill_down", "prefill_failed", "prefill_hung"),
    *("transfer_failed", "transfer_hung", "decode_refused", "decode_down", "broken_off"),
    "not_decided",
)


class Numbers:
    """Counters of one process; no id is ever a label."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._decisions: Counter[tuple[str, str]] = Counter()
        # A share of what never happened is 0, not absent.
        self._fallbacks: Counter[str] = Counter(dict.fromkeys(_FALLBACKS, 0))
        self._moved = 0
        self._errors = 0
        self._predictions = 0
        self._regret_s = 0.0

    def decided(self, plan: Plan) -> None:
        """Count a decision."""
        decision = plan.decision
        path = "local" if decision.prefill is None else "remote"
        self._decisions[path, decision.why] += 1
        self._regret_s += regret(plan)

    def gave_up(self, why: str) -> None:
        """Count a transfer that was given up, or a second try."""
        self._fallbacks[why] += 1

    def answered(self, predicted: int, cached: int | None, moved: int) -> None:
        """Count an answer.

        Args:
            predicted: cached tokens, foretold.
            cached: the same as the answer tells them.
            moved: prompt tokens whose cache the decode server lacked.
        """
        self._moved += moved
        if cached is not None:
            self._predictions += 1
            self._errors += abs(cached - predicted)

    def text(self) -> str:
        """Return all in Prometheus' text format."""
        lines: list[str] = []
        for role, servers in (("prefill", self._fleet.prefills), ("decode", self._fleet.decodes)):
            for name, value in _of(servers):
                lines.append(f'tenuto_pd_{name}{{role="{role}"}} {value:.9g}')
        lines += [
            f'tenuto_pd_decisions_total{{path="{path}",why="{why}"}} {count}'
            for (path, why), count in sorted(self._decisions.items())
        ]
        lines += [
            f'tenuto_pd_fallbacks_total{{why="{why}"}} {count}'
            for why, count in sorted(self._fallbacks.items())
        ]
        lines += [
            f"tenuto_pd_transferred_tokens_total {self._moved}",
            f"tenuto_pd_prediction_error_tokens_total {self._errors}",
            f"tenuto_pd_predictions_total {self._predictions}",
            f"tenuto_pd_shadow_regret_seconds_total {self._regret_s:.9g}",
        ]
        return _typed(lines)


def regret(plan: Plan) -> float:
    """Return the seconds that the decision would have gained over what is done, by the costs."""
    wished = plan.wished
    if plan.decision is wished or wished.remote_cost_s is None:
        return 0.0
    costs_s = {True: wished.remote_cost_s, False: wished.local_cost_s}
    done, better = (one.prefill is not None for one in (plan.decision, wished))
    return max(0.0, costs_s[done] - costs_s[better])


def _of(servers: Iterable[Server]) -> list[tuple[str, float]]:
    each = list(servers)
    rates = [one.rate for one in each if one.rate]
    ready = [one for one in each if one.is_fit]
    return [
        ("queued_uncached_tokens", sum(one.queued_tokens for one in each)),
        ("queued_seconds", sum(one.queued_s for one in each)),
        ("prefill_tokens_per_second", sum(rates) / len(rates) if rates else 0.0),
        ("computed_tokens_total", sum(one.computed_tokens for one in each)),
        ("running", sum(one.running for one in each)),
        ("kv_use_ratio", sum(one.kv_use for one in ready) / len(ready) if ready else 0.0),
        ("servers", len(each)),
        ("servers_ready", len(ready)),
    ]


def _typed(lines: list[str]) -> str:
    """Return lines with the type of each family before its first, families together."""
    families: dict[str, list[str]] = {}
    for line in lines:
        name = line.partition(" ")[0].partition("{")[0]
        families.setdefault(name, []).append(line)
    out: list[str] = []
    for name, members in families.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        out += [f"# TYPE {name} {kind}", *members]
    return "\n".join(out) + "\n"
