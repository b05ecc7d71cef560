"""The version of Barnabas, which pyproject.toml reads from this file."""

__version__ = "0.1.0"
