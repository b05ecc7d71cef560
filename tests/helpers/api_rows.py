"""The rows of all APIs, by the name of the request."""

from __future__ import annotations

from barnabas.broker.api_row import ApiRow
from barnabas.broker.dispatch import all_rows

ROWS: dict[str, ApiRow] = {row.api.name: row for row in all_rows()}
RULES = {name: row.right for name, row in ROWS.items()}
SHAPES = {name: row.shapes for name, row in ROWS.items() if row.shapes}
