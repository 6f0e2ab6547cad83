"""Play a trace against a server, and say what each of its turns met there."""

from __future__ import annotations

from tenuto.replay.drive import replay
from tenuto.replay.observe import TurnResult, observe, rank_of
from tenuto.replay.text import block_text, prompt_text

__all__ = ["TurnResult", "block_text", "observe", "prompt_text", "rank_of", "replay"]
