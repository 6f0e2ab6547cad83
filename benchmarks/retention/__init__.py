"""Retention inside vLLM's own scheduler, on a virtual clock and without a model."""
