"""The lag of a streaming query: how far it is behind in each partition, according to Spark's
progress reports.

For each source, Spark's progress report has the end of the last batch (`endOffset`) and the ends of
the partitions when this batch was planned (`latestOffset`), both as JSON in the form of offsets.py.
It does not have the difference, which this module computes. PySpark is not needed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from barnabas.spark_connector.read.offsets import Offsets, offsets_of_json


class HasProgress(Protocol):
    """A `StreamingQuery`, or another object that has a last progress report."""

    @property
    def lastProgress(self) -> Any: ...


def lag(query: HasProgress) -> dict[str, dict[int, int]]:
    """Return how many offsets a streaming query has yet to read, by topic and partition.

        total = sum(behind for partitions in lag(query).values() for behind in partitions.values())

    The figures are those of the last progress report. Spark makes a report after each batch, and
    every 10 s while there are no batches. Offsets are counted, not records: markers of transactions
    and compacted records are counted as well, and so are offsets behind an open transaction, which
    the query reads when that ends. (Spark's own source does not report the latter under
    read_committed.)

    Takes:  query, a StreamingQuery that reads topics by this source, or by Spark's own Kafka
            source, whose offsets have the same form. Sources of other kinds are ignored.
    Gives:  topic -> partition -> offsets; empty before the first report. If two sources of the
            query read the same partition, the larger lag is returned.
    """
    progress = query.lastProgress
    lags: dict[str, dict[int, int]] = {}
    for source in [] if progress is None else progress["sources"]:
        end, latest = _offsets(source, "endOffset"), _offsets(source, "latestOffset")
        for name in sorted(latest):
            behind = max(0, latest[name] - end.get(name, 0))
            partitions = lags.setdefault(name.topic, {})
            partitions[name.partition] = max(behind, partitions.get(name.partition, 0))
    return lags


def _offsets(source: Mapping[str, Any], name: str) -> Offsets:
    """Return the offsets of a source.

    The result is empty if the source has no offsets, or if it is of another kind.
    """
    value = source.get(name)
    try:
        topics = json.loads(value) if isinstance(value, str) else value
        return offsets_of_json(topics) if isinstance(topics, dict) else {}
    except ValueError:
        return {}
