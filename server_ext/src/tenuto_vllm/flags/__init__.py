"""What `vllm serve` is started with for a model, read off its configuration. Pure."""

from tenuto_vllm.flags.advice import advise
from tenuto_vllm.flags.values import Advice, Flag, Role, Side

__all__ = ["Advice", "Flag", "Role", "Side", "advise"]
