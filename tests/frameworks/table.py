"""Writes the tables of docs/frameworks.md from what runs of the tests have stored.

python -m tests.frameworks.table
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.frameworks.stamps import DISTRIBUTIONS, STORED

PAGE = Path(__file__).parents[2] / "docs/frameworks.md"
# Where a framework is in two of them, the earlier counts.
NEWEST = ("newest", "newest_instructor", "newest_openai2")
OLDEST = ("oldest", "oldest_openai2")
_ORDER = list(DISTRIBUTIONS)


def stored() -> dict[str, Any]:
    """Return name of the environment -> its versions and rows."""
    read = {name: STORED / f"{name}.json" for name in (*NEWEST, *OLDEST)}
    return {name: json.loads(path.read_text("utf-8")) for name, path in read.items()}


def page(text: str, runs: dict[str, Any]) -> str:
    """Return the page with its tables made anew."""
    for name, lines in (("versions", _versions(runs)), ("stamps", _stamps(runs))):
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        head, _, rest = text.partition(begin)
        text = head + begin + "\n".join(["", *lines, "", ""]) + end + rest.partition(end)[2]
    return text


def _versions(runs: dict[str, Any]) -> list[str]:
    lines = ["| framework | oldest | with openai | newest | with openai |", "|---|---|---|---|---|"]
    for framework in _ORDER:
        cells: list[str] = []
        for names in (OLDEST, NEWEST):
            versions = [runs[name]["versions"] for name in names]
            having = next((one for one in versions if framework in one), {})
            cells += [having.get(framework, "-"), having.get("openai", "-")]
        lines.append(f"| {framework} | {' | '.join(cells)} |")
    return lines


def _stamps(runs: dict[str, Any]) -> list[str]:
    proven: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for side, names in (("newest", NEWEST), ("oldest", OLDEST)):
        for name in names:
            for framework, style, what in runs[name]["rows"]:
                proven[framework, style, what].add(side)
    styles: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (framework, style, what), sides in proven.items():
        proof = "both" if len(sides) == 2 else f"{min(sides)} only"
        styles[framework, what, proof].append(style)
    lines = ["| framework | called by | carries | newest, oldest |", "|---|---|---|---|"]
    ordered = sorted(styles.items(), key=lambda one: (_ORDER.index(one[0][0]), one[0][1:]))
    lines += [
        f"| {framework} | {'<br>'.join(_shown(sorted(one)))} | {what} | {proof} |"
        for (framework, what, proof), one in ordered
    ]
    return lines


def _shown(styles: list[str]) -> list[str]:
    """Return styles in few lines: those with a part in common share one."""
    links = [f"[{one.rpartition('/')[2]}](../{one})" for one in styles if one.endswith(".py")]
    parts = [one.rpartition(", ") for one in styles if not one.endswith(".py")]
    by_first, by_last = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for first, _, last in parts:
        by_first[first].append(last)
        if first:
            by_last[last].append(first)
        else:
            by_last[""].append(last)
    fewest = min(by_first, by_last, key=len)
    lines = [
        ": ".join(part for part in (shared, ", ".join(others)) if part)
        for shared, others in fewest.items()
    ]
    return sorted(lines) + links


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8"), stored()), encoding="utf-8")
