"""Play a trace against a server, and say what each of its turns met there."""

from __future__ import annotations

from tenuto.replay.ask import Ask
from tenuto.replay.dense import dense
from tenuto.replay.drive import replay
from tenuto.replay.observe import observe, rank_of
from tenuto.replay.reach import Reach
from tenuto.replay.schedule import CallRef, Due, Mode, Schedule
from tenuto.replay.text import block_text, prompt_text, prompt_tokens
from tenuto.results import TurnResult

__all__ = [
    "Ask",
    "CallRef",
    "Due",
    "Mode",
    "Reach",
    "Schedule",
    "TurnResult",
    "block_text",
    "dense",
    "observe",
    "prompt_text",
    "prompt_tokens",
    "rank_of",
    "replay",
]
