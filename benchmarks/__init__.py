"""Measurements: each module prints JSON; the tables in docs/ come from them."""
