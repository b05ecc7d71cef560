"""Values that tests extract from the columns of decoded records."""

from __future__ import annotations

from barnabas.spark_connector.arrow.decoding import Columns


def timestamp_types(part: Columns) -> list[int]:
    """The timestampType of each decoded record."""
    return [0] * len(part.offset) if part.timestamp_type is None else part.timestamp_type.tolist()
