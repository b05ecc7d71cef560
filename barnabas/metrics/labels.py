"""The labels of a metric's row, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Sequence

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    """The labels of a row, in braces; empty if the metric has no labels."""
    if not names:
        return ""
    pairs = [
        f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)
    ]
    return "{" + ",".join(pairs) + "}"
