"""The errors that tenuto itself raises.

    TenutoError
    └── ConfigError(ValueError)   an argument or setting that cannot work

openai's own exceptions pass through untouched, and nothing raises once a client is
wrapped and a scope is open.
"""

from __future__ import annotations


class TenutoError(Exception):
    """Base of every error raised by tenuto."""


class ConfigError(TenutoError, ValueError):
    """An argument or setting cannot work; the message names it and the way out."""
