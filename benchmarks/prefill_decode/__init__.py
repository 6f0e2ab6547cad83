"""Traces played against prefill and decode nodes on a virtual clock, rule by rule."""
