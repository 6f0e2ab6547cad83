"""The seams to vLLM: every place that touches an object of the running engine."""
