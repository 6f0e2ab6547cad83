"""Session-aware placement for vLLM."""
