"""Which node prefills a turn and which decodes it, where the two are apart. Pure."""

from __future__ import annotations

from tenuto_vllm.placement.split.copies import Copies
from tenuto_vllm.placement.split.decide import MARGIN, decide
from tenuto_vllm.placement.split.values import Costs, Node, PlacementDecision, Role, Turn, Why

__all__ = [
    "MARGIN",
    "Copies",
    "Costs",
    "Node",
    "PlacementDecision",
    "Role",
    "Turn",
    "Why",
    "decide",
]
