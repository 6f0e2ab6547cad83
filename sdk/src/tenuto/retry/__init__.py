"""One retry layer over an openai client: attempts, a deadline, failover, whole streams."""

from __future__ import annotations

from tenuto.retry.client import retrying

__all__ = ["retrying"]
