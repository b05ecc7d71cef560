"""The version, in the one place that pyproject.toml reads too."""

__version__ = "0.1.0"
