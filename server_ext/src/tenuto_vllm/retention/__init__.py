"""Whose cached blocks are evicted first when a pool runs dry. Pure: time is an argument."""

from __future__ import annotations

from tenuto_vllm.retention.held import Held, Wait
from tenuto_vllm.retention.policies import RETENTIONS, Retention, Standing

__all__ = ["RETENTIONS", "Held", "Retention", "Standing", "Wait"]
