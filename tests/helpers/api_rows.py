"""The rows of all APIs, by the name of the request."""

from __future__ import annotations

from barnabas.broker.api_row import ApiRow
from barnabas.broker.dispatch import row_of
from barnabas.protocol.api_table import APIS

ROWS: dict[str, ApiRow] = {api.name: row_of(api) for api in APIS}
RULES = {name: row.right for name, row in ROWS.items()}
SHAPES = {name: row.shapes for name, row in ROWS.items() if row.shapes}
