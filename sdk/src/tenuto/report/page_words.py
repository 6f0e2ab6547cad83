"""The fixed texts of the page: its style, and how each figure is to be read."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --soft: #59636e;
  --rule: #d5dade; --quiet: #8a949e; --a: #0a6cb0; --b: #c2560a; --c1: #b0488a; --c2: #0a7d60;
  --c3: #b98a00; --good: #0a6b3d; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181c; --ink: #e6e9ec;
  --soft: #a3adb7; --rule: #343b42; --quiet: #7c8791; --a: #62b5f0; --b: #f0955a; --c1: #e08cc0;
  --c2: #3dc79c; --c3: #e6bf4d; --good: #5fd496; --bad: #ff8a80; } }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 24px 24px 64px; }
h1 { font-size: 30px; margin: 24px 0 4px; } h2 { font-size: 20px; margin: 36px 0 10px; }
p { margin: 6px 0; } .verdict { font-size: 18px; } .quiet, .note { color: var(--soft); }
.note::before { content: 'Note: '; font-weight: 600; }
.dot { display: inline-block; width: 12px; height: 12px; border-radius: 6px; margin-right: 6px; }
.dot.a { background: var(--a); } .dot.b { background: var(--b); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr));
  gap: 24px; }
figure { margin: 0; } figcaption { font-weight: 600; margin-bottom: 4px; }
figure svg { width: 100%; height: auto; } figure svg text { fill: var(--ink); font-size: 12.5px; }
.grid { stroke: var(--rule); } .wide { overflow-x: auto; margin-bottom: 18px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th, td { padding: 4px 8px; border-bottom: 1px solid var(--rule); text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
th:first-child, .words td, .words th { text-align: left; font-weight: 400; white-space: normal; }
thead th, thead th:first-child { font-weight: 600; border-bottom: 2px solid var(--soft); }
small { color: var(--soft); } .better { color: var(--good); font-weight: 600; }
.worse, .different { color: var(--bad); font-weight: 600; }
dt { font-weight: 600; margin-top: 10px; } dd { margin: 0 0 0 20px; }
pre { padding: 12px; border: 1px solid var(--rule); overflow-x: auto; }
"""

READING = (
    (
        "better, worse, different",
        "Said only when zero lies outside of the bootstrap interval, widened for the number of "
        "figures, both over traces and over stretches of time, and the difference is larger "
        "than a floor: 5 % of the base and 3.5 standard errors (15 % and 4 for a single "
        "measured repeat), and any difference between two repeats of one side. Of a percentile "
        "only with five turns beyond it. On the virtual clock, where equal runs are equal to the "
        "bit, 1 % of the base is enough.",
    ),
    (
        "TTFT",
        "Seconds from the call to the first token. Percentiles over turns; a turn's value is the "
        "median of its repeats.",
    ),
    (
        "Inter-token latency (ITL)",
        "(end - first token) / (output tokens - 1), for turns with two output tokens or more.",
    ),
    ("Turn, session, run", "First call to last answer, waits for tools included."),
    (
        "Total tokens per GPU-second",
        "(prompt tokens, cached ones too, + output tokens) / (last end - first start) / GPUs: "
        "tput_per_gpu of InferenceX.",
    ),
    (
        "Interactivity, 1 / ITL",
        "pX_intvty of InferenceX: 1 / percentile_X(ITL), decode only, in tokens per second.",
    ),
    (
        "Interactivity, 1 / (turn / output)",
        "E2E normalised interactivity of InferenceX: 1 / percentile_q(turn seconds / output "
        "tokens). The two must not be mixed.",
    ),
    (
        "Hit rate",
        "Cached / prompt tokens of all turns. Its bound is what caches without end on every "
        "rank would have had, in the order in which the calls were made.",
    ),
    (
        "Cost",
        "GPU price per hour / (3600 x total tokens per GPU-second / 1,000,000) per million total "
        "tokens; the same money per million output tokens.",
    ),
    (
        "Placement, retention, unavoidable",
        "Uncached tokens that another rank's cache had; that the serving rank had and let go; "
        "and that no cache had. A shortfall of one block counts as unavoidable. Where sessions "
        "move between ranks, most losses are retention behind placement: see turns on another "
        "rank than the one before.",
    ),
    (
        "Queueing, prefill, decode",
        "Waiting, computing the prompt, and first token to last; sums over all paired turns of "
        "the mean over repeats. Prefill beyond its tokens is what a change in speed costs.",
    ),
)
