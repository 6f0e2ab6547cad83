"""Outcomes of simulations as a table, and what is to be said beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenuto.simulate import Outcome

_WORDS = {"placement", "retention"}
# Below it a million tokens with one decimal says too little.
_LEAST_IN_MILLIONS = 10_000_000


def table(outcomes: Sequence[Outcome], *, markdown: bool = False) -> str:
    """Return outcomes as a table in plain text or markdown."""
    columns = dict(_columns(outcomes))
    cells = [[name, *values] for name, values in columns.items()]
    widths = [max(map(len, column)) for column in cells]
    padded = [
        [text.ljust(width) if column[0] in _WORDS else text.rjust(width) for text in column]
        for column, width in zip(cells, widths, strict=True)
    ]
    lines = list(zip(*padded, strict=True))
    if not markdown:
        return "\n".join("  ".join(line).rstrip() for line in lines)
    rule = [
        "-" * width if name in _WORDS else "-" * (width - 1) + ":"
        for name, width in zip(columns, widths, strict=True)
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])


def refusals(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Say for each size of cache, in tokens, how many calls are longer than it."""
    # Which calls fit depends on the size alone.
    for one in {one.tokens_per_rank: one for one in outcomes if one.refused}.values():
        yield (
            f"{one.refused:,} of {one.calls + one.refused:,} calls are longer than a rank's cache "
            f"of {one.tokens_per_rank:,} tokens and were refused: no figure counts them"
        )


def _columns(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, list[str]]]:
    def column(name: str, values: Iterator[str]) -> tuple[str, list[str]]:
        return name, [
            text if one.calls or name in {"ranks", "tokens a rank", "refused", *_WORDS} else "-"
            for one, text in zip(outcomes, values, strict=True)
        ]

    yield column("ranks", (f"{one.ranks}" for one in outcomes))
    yield column("tokens a rank", (f"{one.tokens_per_rank:,}" for one in outcomes))
    yield column("placement", (one.placement for one in outcomes))
    yield column("retention", (one.retention for one in outcomes))
    if any(one.refused for one in outcomes):
        both = ((one.refused, one.calls + one.refused) for one in outcomes)
        yield column("refused", (f"{refused:,} of {calls:,}" for refused, calls in both))
    yield column("hit", (f"{one.hit:.1%}" for one in outcomes))
    yield column("of", (f"{one.theoretical_hit:.1%}" for one in outcomes))
    tokens = {
        "computed": [one.computed_tokens for one in outcomes],
        "lost to placement": [one.lost_to_placement for one in outcomes],
        "to retention": [one.lost_to_retention for one in outcomes],
    }
    in_millions = all(
        count >= _LEAST_IN_MILLIONS for counts in tokens.values() for count in counts if count
    )
    for name, counts in tokens.items():
        if in_millions:
            yield column(f"{name} Mtok", (f"{count / 1e6:,.1f}" for count in counts))
        else:
            yield column(f"{name} tokens", (f"{count:,}" for count in counts))
        if name == "computed":
            yield column("imbalance", (f"{one.imbalance:.2f}" for one in outcomes))
    for name, seconds in (
        ("TTFT p50 s", [one.ttft_p50_s for one in outcomes]),
        ("TTFT p90 s", [one.ttft_p90_s for one in outcomes]),
    ):
        # A recording's service says nothing of when a first token would come.
        yield column(
            name,
            (
                f"{value:.2f}" if one.service == "modelled" else "-"
                for one, value in zip(outcomes, seconds, strict=True)
            ),
        )
