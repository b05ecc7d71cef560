"""Batches that wait for their turn as those of a request with many."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.handlers import produce
from barnabas.broker.handlers.produce import ProduceHandler


def defer_batches(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Let each batch be deferred, also the only one of its request.

    Takes: limit, the name of the limit that it exceeds.
    """
    append_rows = ProduceHandler._append_rows

    def append_as_of_many(handler: ProduceHandler, request: Any, row_count: int) -> None:
        append_rows(handler, request, row_count + 1)

    monkeypatch.setattr(produce, limit, -1)
    monkeypatch.setattr(ProduceHandler, "_append_rows", append_as_of_many)
