"""The error of an option."""

from __future__ import annotations


class OptionError(ValueError):
    """An option is missing, unknown or wrong. The message names the option, and says what to do."""
