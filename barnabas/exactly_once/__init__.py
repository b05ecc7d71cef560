"""Exactly once from Python, on any Kafka from 2.5 up: read, process and write in one transaction.

    from barnabas.exactly_once import Pipeline

    pipeline = Pipeline("localhost:9092", "loud-orders", reads="orders")

    @pipeline.each
    def shout(record, out):
        out.send("loud-orders", record.value.upper(), key=record.key)

    pipeline.run()

| module | purpose |
|---|---|
| `pipeline.py` | `Pipeline`: from topics to topics, with state |
| `sources.py` | `Ingest`: from outside of Kafka to topics; the position is written with them |
| `handlers.py` | which functions can be handlers |
| `stopping.py` | a request to stop, by a call or a signal |
| `sinks.py` | `DatabaseSink`: from topics to a database; the offsets are stored with the rows |
| `records.py`, `settings.py`, `hooks.py`, `errors.py` | the values of the interface |
| `progress.py` | which records a transaction contains, and when it is due; no clock, no client |
| `reader.py` | the consumer: assignments, positions, rewinding |
| `transaction.py` | the transactional producer; which error means repeat, abort, or end |
| `state.py`, `changelog.py`, `checkpoint.py` | keyed state, its changelog topic, its local file |
| `snapshots.py` | states as they were at a past cut, from their changelogs |

Needs confluent-kafka: `pip install 'barnabas[exactly-once]'`.

Source: KIP-98 (transactions), KIP-129 (exactly-once processing), KIP-447 (the group's membership).
"""

from __future__ import annotations

try:
    import confluent_kafka  # noqa: F401 (for the error below)
except ImportError as error:  # pragma: no cover - without the extra
    raise ImportError(
        "barnabas.exactly_once needs confluent-kafka: pip install 'barnabas[exactly-once]'"
    ) from error

from barnabas.exactly_once.errors import (
    ConfigurationError,
    ExactlyOnceError,
    FatalError,
    FencedError,
    HandlerError,
    OffsetsDeletedError,
    StateError,
    StuckError,
    UnreleasedError,
)
from barnabas.exactly_once.hooks import Hooks, PrometheusHooks, Step
from barnabas.exactly_once.pipeline import Pipeline
from barnabas.exactly_once.records import Out, Output, Place, Record
from barnabas.exactly_once.settings import Commit, Retry
from barnabas.exactly_once.sinks import DatabaseSink
from barnabas.exactly_once.sources import Ingest, Source
from barnabas.exactly_once.state import State

__all__ = [
    "Commit",
    "ConfigurationError",
    "DatabaseSink",
    "ExactlyOnceError",
    "FatalError",
    "FencedError",
    "HandlerError",
    "Hooks",
    "Ingest",
    "OffsetsDeletedError",
    "Out",
    "Output",
    "Pipeline",
    "Place",
    "PrometheusHooks",
    "Record",
    "Retry",
    "Source",
    "State",
    "StateError",
    "Step",
    "StuckError",
    "UnreleasedError",
]
