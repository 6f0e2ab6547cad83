"""Whose cached blocks are evicted first when a pool runs dry. Pure: time is an argument."""

from __future__ import annotations

from tenuto_vllm.retention.held import Held, Wait
from tenuto_vllm.retention.order import Leased, Standing
from tenuto_vllm.retention.policies import RETENTIONS, Retention
from tenuto_vllm.retention.waits import Expectation, Waits

__all__ = [
    "RETENTIONS",
    "Expectation",
    "Held",
    "Leased",
    "Retention",
    "Standing",
    "Wait",
    "Waits",
]
