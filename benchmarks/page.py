"""Write docs/measurements.md from the JSON beside it.

    python -m benchmarks.page

The JSON files are what the benchmarks print, with machine and date.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tenuto_vllm.config import MOST_SESSIONS

DOCS = Path(__file__).parents[1] / "docs"
DATA = DOCS / "measurements"

_HEAD = """# Measurements

Written by `python -m benchmarks.page` from [the JSON](measurements) that the benchmarks print.
Machines of this kind are shared and noisy: token counts are exact, times compare the sides of
one run and nothing else.
"""
_SESSIONS = """
## Recorded sessions on two ranks, real vLLM

`make bench-vllm`: vLLM {vllm} (CPU build, a tiny random model, blocks of {block} tokens), two
data-parallel ranks that each hold everything. {sessions} recorded coding sessions, {subagents} of
them subagents ([examples/traces](../examples/traces), lengths divided by 8), are replayed, six at a
time, {calls} calls without pauses, each on a new TCP connection: `tenuto replay --mode asap
--new-connections --live-sessions 6 --repeat {repeat}`; stock vLLM, vLLM behind a plain hash of the
session id that sets its rank header, and vLLM with the extension, in turn. Figures are those of
`tenuto compare` and `tenuto replay`, 95 % intervals in brackets, tokens a repeat's.
All sides get the same calls with the same headers. {machine}.

| API processes | | calls that lost cache | sessions on one rank | calls of each rank \
| prompt tokens | computed | lost to placement | hit rate | of what caches without end hit \
| TTFT p50, ms | TTFT p90, ms |
|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
"""
_TIMES = """
A call lost cache when more than a block that some rank had computed was not found where it was
served. What no cache had is computed on both sides, and nothing can save it.
{verdicts}
Three servers share two cores, and time to first token is mostly Python and the other sessions'
work. So times are told with their intervals, and only what `tenuto compare` calls different is.
"""
_OVERHEAD = """
## What it costs

`make bench`: medians of differences within pairs of neighbours, bare and ours interleaved in one
process, {rounds:,} pairs. Python {python}, openai {openai}. {machine}.

| | bare µs | extra µs | bound µs |
|---|--:|--:|--:|
"""
_LONGER = """
A call of openai's own takes {bare} µs here, {bare_10} with ten messages, answered in memory. That
work empties the caches between two of our turns: marking takes {inside} µs inside a call and
{by_itself} µs by itself. The bound of 30 µs holds for marking by itself, and not inside a call.
"""
_IDENTITY = """
## Many sessions at once

`make bench-identity`: {calls:,} calls of wrapped clients to a server in memory that checks each,
{sessions:,} sessions at once in one event loop and then {threads} threads. {machine}.

| | |
|---|--:|
| requests with a wrong session | {wrong_keys} |
| requests with a wrong turn | {wrong_turns} |
| bytes for a live session (tenuto's own, prompts of up to 72 messages) | {bytes:,} |
| resident memory after each quarter of the loop's calls, MB | {loop} |
| before and after the threads' calls, MB | {threaded} |
"""
_SERVING = """
## What the extension costs a server

`make bench-serving`: the middleware before an application that reads its request whole and answers
at once, bare and ours interleaved in one process, {rounds:,} pairs. The machine has two speeds, a
half apart; the bare column tells which one a row met. Python {python}. {machine}.

| a request | bare µs | extra µs | bound µs |
|---|--:|--:|--:|
"""
_MEMORY = """
Where a request's headers name its session, no body is read, parsed or copied: the application is
given the server's own `receive`. Without one, a body is searched for a carrier's name.

Resident memory of a process before, and after each quarter of {sessions:,} sessions' first turns:
{resident} MB. It remembers the last {kept:,} of them.
"""
_COSTS = (
    ("stamping_small_prompt", "a whole call, `OpenAI`, short prompt"),
    ("stamping_small_prompt_async", "a whole call, `AsyncOpenAI`, short prompt"),
    ("stamping_4_kb_prompt", "a whole call, `OpenAI`, ten messages of 4 kB together"),
)
_MARKING = (
    ("marking_4_kb_prompt", "4 kB in the first message", 30),
    ("marking_600_kb_prompt", "600 kB, growing by 2 kB", 1000),
)
_PICKS = (
    ("first_all_idle_us", "picking of 64 ranks, all idle"),
    ("first_half_busy_us", "picking of 64 ranks, half of them busy"),
    ("hash_us", "picking of 64 ranks by hash"),
    ("home_us", "picking of 64 ranks, a session at home"),
    ("lost_us", "picking of 64 ranks, a session that its home has lost"),
    ("long_wait_us", "picking of 64 ranks, a session whose home is busy"),
)


def page(
    sessions: dict[str, Any],
    overhead: dict[str, Any],
    serving: dict[str, Any],
    identity: dict[str, Any],
) -> str:
    """Return the page; pure."""
    runs = sessions["runs"]
    first = runs[0]["replay"][0]
    text = _HEAD + _SESSIONS.format(
        vllm=sessions["vllm"],
        block=sessions["block_size"],
        repeat=sessions["repeat"],
        calls=runs[0]["compare"]["paired_turns"],
        sessions=first["sessions"] // sessions["repeat"],
        subagents=sessions["subagents"],
        machine=sessions["machine"],
    )
    text += "".join(f"| {' | '.join(row)} |\n" for row in session_rows(runs))
    text += _TIMES.format(verdicts="\n".join(map(_verdict, runs)))
    text += _OVERHEAD.format(**overhead)
    for key, what in _COSTS:
        cost = overhead[key]
        text += f"| {what} | {cost['bare_us']} | {cost['extra_us']} | |\n"
    for key, what, most in _MARKING:
        cost = overhead[key]
        text += f"| marking by itself, {what} | | {cost['back_to_back_us']} | {most} |\n"
        text += f"| the same inside a call | | {cost['marking_us']} | |\n"
        text += f"| reading its answer | | {cost['reading_us']} | |\n"
    text += _LONGER.format(
        bare=round(overhead["stamping_small_prompt"]["bare_us"]),
        bare_10=round(overhead["stamping_4_kb_prompt"]["bare_us"]),
        inside=round(overhead["marking_4_kb_prompt"]["marking_us"]),
        by_itself=round(overhead["marking_4_kb_prompt"]["back_to_back_us"]),
    )
    text += _serving(serving)
    loop, threads = identity["one_loop"], identity["threads"]
    return text + _IDENTITY.format(
        **{key: identity[key] for key in ("calls", "machine", "wrong_keys", "wrong_turns")},
        sessions=loop["sessions"],
        threads=threads["threads"],
        bytes=round(identity["bytes_per_live_session"]),
        loop=" · ".join(str(round(kb / 1000)) for kb in loop["resident_kb_by_quarter"]),
        threaded=" · ".join(str(round(kb / 1000)) for kb in threads["resident_kb"]),
    )


def _serving(serving: dict[str, Any]) -> str:
    text = _SERVING.format(**serving)
    costs = [("a session going home", serving["home_2_ranks"], 60)]
    bodies = serving["home_by_body"].items()
    costs += [(f"the same, body: {name}", cost, 60) for name, cost in bodies]
    routes = serving["home_by_route"].items()
    costs += [(f"the same, `{path}`", cost, 60) for path, cost in routes]
    costs.append(("a first turn on 64 ranks", serving["first_turn_64_ranks"], 60))
    bodies = serving["unmarked_by_body"].items()
    costs += [(f"no session in the headers, body: {name}", cost, "") for name, cost in bodies]
    text += "".join(f"| {a} | {b['bare_us']} | {b['extra_us']} | {c} |\n" for a, b, c in costs)
    picks = serving["picking_at_64_ranks"]
    text += "".join(f"| {what} | | {picks[key]} | 20 |\n" for key, what in _PICKS)
    text += "".join(
        f"| a session told by a prompt of {int(size):,} tokens | | {cost} | |\n"
        for size, cost in serving["content_us"].items()
    )
    resident = " · ".join(str(round(kb / 1000)) for kb in serving["resident_kb"])
    return text + _MEMORY.format(
        sessions=serving["sessions"], resident=resident, kept=MOST_SESSIONS
    )


def session_rows(runs: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the cells of the sessions table, a row for each side and number of processes."""
    rows: list[tuple[str, ...]] = []
    for run in runs:
        stock, by_hash, ours = run["replay"]
        for side, name, replayed, compared in (
            ("a", "stock vLLM", stock, run["compare"]),
            ("b", "by plain hash", by_hash, run["compare_hash"]),
            ("b", "with tenuto", ours, run["compare"]),
        ):
            figures, tokens = compared["figures"], compared["tokens"]
            rows.append(
                (
                    str(run["api_processes"]),
                    name,
                    f"{figures['turns_short'][side]['value']:.0%}",
                    f"{replayed['sessions_on_one_rank']} of {replayed['sessions']}",
                    " / ".join(map(str, replayed["requests_per_rank"])),
                    f"{replayed['prompt_tokens'] // run['compare']['repeats'][0]:,}",
                    f"{tokens['uncached'][side]['value']:,.0f}",
                    f"{tokens['placement'][side]['value']:,.0f}",
                    f"{figures['hit_rate'][side]['value']:.1%}",
                    f"{figures['hit_of_theoretical'][side]['value']:.1%}",
                    *(spread_ms(figures[key][side]) for key in ("ttft_p50_s", "ttft_p90_s")),
                )
            )
    return rows


def _verdict(run: dict[str, Any]) -> str:
    words = run["compare"]["verdict"]["words"]
    return f"`tenuto compare`, API processes {run['api_processes']}: *{words}*"


def spread_ms(estimate: dict[str, float]) -> str:
    """Return seconds as milliseconds with their interval."""
    value, low, high = (f"{1000 * estimate[key]:.0f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def main() -> None:
    """Write the page."""
    (DOCS / "measurements.md").write_text(page(*stored()), encoding="utf-8")


def stored() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the committed JSON of the benchmarks."""
    names = ("vllm_sessions.json", "overhead.json", "serving.json", "identity.json")
    sessions, overhead, serving, identity = (
        json.loads((DATA / name).read_text("utf-8")) for name in names
    )
    return sessions, overhead, serving, identity


if __name__ == "__main__":
    main()
