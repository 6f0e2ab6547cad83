"""Words of a prompt that tell the server what its call is, since the wire cannot.

`[tenuto unmarked]` says that the call is made outside every run, `[tenuto own NAME=VALUE]`
that the program itself sets this header, `[tenuto omit NAME]` that it keeps it away.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_CUE = re.compile(r"\[tenuto (unmarked|own|omit)(?: ([A-Za-z0-9-]+)(?:=([^\]\s]*))?)?\]")


class Cue(NamedTuple):
    """One cue: its kind, and of a header the name in lower case and the value."""

    kind: str
    header: str = ""
    value: str = ""


UNMARKED = Cue("unmarked")


def cues(text: str) -> list[Cue]:
    """Return the cues of a text."""
    return [Cue(kind, header.lower(), value) for kind, header, value in _CUE.findall(text)]
