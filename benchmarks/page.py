"""Write docs/measurements.md from the JSON beside it.

    python -m benchmarks.page

The JSON files are what the benchmarks print, with machine and date.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
DATA = DOCS / "measurements"

_HEAD = """# Measurements

Written by `python -m benchmarks.page` from [the JSON](measurements) that the benchmarks print.
Machines of this kind are shared and noisy: token counts are exact, times compare the sides of
one run and nothing else.
"""
_SESSIONS = """
## Four sessions on two ranks, real vLLM

`make bench-vllm`: vLLM {vllm} (CPU build, a tiny random model, blocks of {block} tokens), two
data-parallel ranks. Four sessions of ten turns run at once, each turn on a new TCP connection,
with growing prompts of 4,200 tokens in the mean. Stock vLLM and vLLM with the extension take
turns, {rounds} times each; figures are medians, lowest and highest in brackets. Ranks are those
that vLLM's engine client chose (`RankObserver`). {machine}.

| API processes | | later turns that lost cache | sessions on one rank | requests per rank \
| prompt tokens | cached | computed | TTFT of later turns, p50 ms |
|--:|---|--:|--:|--:|--:|--:|--:|--:|
"""
_TIMES = """
A later turn has the session's last prompt behind it; it lost cache when it did not find all
complete blocks of it. Both sides compute the first turns, which nothing can save.
Stock placement can be lucky: of two ranks in rotation, four sessions in lockstep may meet the
same ones again. Single runs with as few as 4 turns short were seen; with five sessions, 14 runs
had 16 to 25 of 45.
Time to first token on two cores is mostly Python and the other sessions' work: its spread is
as large as the difference, so no claim about latency is made from it.
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
_COSTS = (
    ("stamping_small_prompt", "a whole call, `OpenAI`, short prompt"),
    ("stamping_small_prompt_async", "a whole call, `AsyncOpenAI`, short prompt"),
    ("stamping_4_kb_prompt", "a whole call, `OpenAI`, ten messages of 4 kB together"),
    ("middleware_home_2_ranks", "the middleware, a session going home"),
    ("middleware_first_turn_64_ranks", "the middleware, a first turn on 64 ranks"),
)
_MARKING = (
    ("marking_4_kb_prompt", "4 kB in the first message", 30),
    ("marking_600_kb_prompt", "600 kB, growing by 2 kB", 1000),
)
_PICKS = (
    ("first_all_idle_us", "picking of 64 ranks, all idle"),
    ("first_half_busy_us", "picking of 64 ranks, half of them busy"),
    ("hash_us", "picking of 64 ranks by hash"),
)


def page(sessions: dict[str, Any], overhead: dict[str, Any], identity: dict[str, Any]) -> str:
    """Return the page; pure."""
    runs = sessions["runs"]
    text = _HEAD + _SESSIONS.format(
        vllm=sessions["vllm"],
        block=sessions["block_size"],
        rounds=1 + max(run["round"] for run in runs),
        machine=sessions["machine"],
    )
    text += "".join(f"| {' | '.join(row)} |\n" for row in session_rows(runs)) + _TIMES
    text += _OVERHEAD.format(**overhead)
    for key, what in _COSTS:
        cost = overhead[key]
        bound = 60 if "middleware" in key else ""
        text += f"| {what} | {cost['bare_us']} | {cost['extra_us']} | {bound} |\n"
    for key, what, most in _MARKING:
        cost = overhead[key]
        text += f"| marking by itself, {what} | | {cost['back_to_back_us']} | {most} |\n"
        text += f"| the same inside a call | | {cost['marking_us']} | |\n"
        text += f"| reading its answer | | {cost['reading_us']} | |\n"
    for key, what in _PICKS:
        text += f"| {what} | | {overhead['picking_at_64_ranks'][key]} | 10 |\n"
    text += _LONGER.format(
        bare=round(overhead["stamping_small_prompt"]["bare_us"]),
        bare_10=round(overhead["stamping_4_kb_prompt"]["bare_us"]),
        inside=round(overhead["marking_4_kb_prompt"]["marking_us"]),
        by_itself=round(overhead["marking_4_kb_prompt"]["back_to_back_us"]),
    )
    loop, threads = identity["one_loop"], identity["threads"]
    return text + _IDENTITY.format(
        **{key: identity[key] for key in ("calls", "machine", "wrong_keys", "wrong_turns")},
        sessions=loop["sessions"],
        threads=threads["threads"],
        bytes=round(identity["bytes_per_live_session"]),
        loop=" · ".join(str(round(kb / 1000)) for kb in loop["resident_kb_by_quarter"]),
        threaded=" · ".join(str(round(kb / 1000)) for kb in threads["resident_kb"]),
    )


def session_rows(runs: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the cells of the sessions table, a row for each side and number of processes."""
    rows: list[tuple[str, ...]] = []
    for processes in sorted({run["api_processes"] for run in runs}):
        for side, name in (("stock", "stock vLLM"), ("tenuto", "with tenuto")):
            own = [run for run in runs if (run["api_processes"], run["side"]) == (processes, side)]
            later = own[0]["turns"] - len(own[0]["sessions"])
            rows.append(
                (
                    str(processes),
                    name,
                    f"{spread(own, 'turns_short_of_cache')} of {later}",
                    f"{spread(own, 'sessions_on_one_rank')} of {len(own[0]['sessions'])}",
                    ", ".join(
                        sorted(
                            {" / ".join(map(str, run["requests_per_rank"].values())) for run in own}
                        )
                    ),
                    spread(own, "prompt_tokens"),
                    spread(own, "cached_tokens"),
                    spread(own, "uncached_tokens"),
                    spread(own, "ttft_after_the_first_turn_p50_ms"),
                )
            )
    return rows


def ranks_of(run: dict[str, Any]) -> str:
    """Return the requests of each rank, such as `20 / 20`."""
    return " / ".join(map(str, run["requests_per_rank"].values()))


def spread(runs: list[dict[str, Any]], key: str) -> str:
    """Return the median, and lowest and highest where they differ."""
    values = sorted(run[key] for run in runs)
    middle = f"{round(statistics.median(values)):,}"
    if values[0] == values[-1]:
        return middle
    return f"{middle} ({round(values[0]):,}–{round(values[-1]):,})"  # noqa: RUF001


def main() -> None:
    """Write the page."""
    (DOCS / "measurements.md").write_text(page(*stored()), encoding="utf-8")


def stored() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the committed JSON of the benchmarks."""
    names = ("vllm_sessions.json", "overhead.json", "identity.json")
    sessions, overhead, identity = (json.loads((DATA / name).read_text("utf-8")) for name in names)
    return sessions, overhead, identity


if __name__ == "__main__":
    main()
