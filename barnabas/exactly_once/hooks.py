"""Hooks: what a pipeline reports while it runs, for logging, metrics and tests."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from barnabas.exactly_once.records import Place, Record


class Step(Enum):
    """The steps of a transaction and of a rebalance. A process may be killed at each of them."""

    BEFORE_BEGIN = "before begin"
    AFTER_BEGIN = "after begin"
    BEFORE_PRODUCE = "before produce"
    AFTER_PRODUCE = "after produce"
    BEFORE_CHANGELOG = "before changelog"
    AFTER_CHANGELOG = "after changelog"
    BEFORE_OFFSETS = "before offsets"
    AFTER_OFFSETS = "after offsets"
    BEFORE_COMMIT = "before commit"
    AFTER_COMMIT = "after commit"
    BEFORE_ABORT = "before abort"
    AFTER_ABORT = "after abort"
    BEFORE_REVOKE = "before revoke"
    AFTER_REVOKE = "after revoke"
    BEFORE_RESTORE = "before restore"
    AFTER_RESTORE = "after restore"


class Hooks:
    """Override what you need. Each method is called in the pipeline's thread and has to be quick;
    an exception ends the pipeline.
    """

    def on_step(self, step: Step) -> None:
        """A step is reached."""

    def on_commit(self, records: int, outputs: int, seconds: float) -> None:
        """A transaction is committed. seconds: how long changelog, offsets and commit took."""

    def on_abort(self, kind: str, reason: str) -> None:
        """A transaction is aborted, and its records will be read again.

        Takes:  kind, "handler", "rebalance", "lost" or "error".
        """

    def on_failure(self, record: Record, error: BaseException, attempt: int) -> None:
        """The handler raised an exception."""

    def on_dead_letter(self, record: Record, error: BaseException) -> None:
        """A record is written to the dead-letter topic, in the transaction."""

    def on_assigned(self, places: Sequence[Place]) -> None:
        """Partitions are assigned. They are read when their state is restored."""

    def on_revoked(self, places: Sequence[Place], *, lost: bool) -> None:
        """Partitions are revoked, or lost (another instance may have them already)."""

    def on_restored(self, state: str, partition: int, records: int, seconds: float) -> None:
        """A partition of a state is restored from its checkpoint and so many changelog records."""

    def on_waiting(self, what: str) -> None:
        """The pipeline waits for another instance's transaction. Called about every 5 seconds."""


class PrometheusHooks(Hooks):
    """Counts for Prometheus: metrics `barnabas_pipeline_*` with the label `application`.

    Takes:  application, the pipeline's; registry, prometheus_client's default if not given.
            Needs the extra `barnabas[metrics]`.
    """

    def __init__(self, application: str, registry: Any = None) -> None:
        try:
            from prometheus_client import REGISTRY, Counter, Gauge, Histogram
        except ImportError as error:
            raise ImportError(
                "PrometheusHooks needs prometheus-client: pip install 'barnabas[metrics]'"
            ) from error
        registry = registry or REGISTRY

        def metric(kind: Any, name: str, text: str, *labels: str) -> Any:
            return kind(
                f"barnabas_pipeline_{name}", text, ("application", *labels), registry=registry
            )

        def mine(kind: Any, name: str, text: str) -> Any:
            return metric(kind, name, text).labels(application)

        self._application = application
        self._records = mine(Counter, "records_total", "Input records in committed transactions.")
        self._outputs = mine(Counter, "outputs_total", "Records written in committed transactions.")
        self._commits = mine(Histogram, "commit_seconds", "Changelog, offsets and commit.")
        self._aborts = metric(Counter, "aborts_total", "Aborted transactions.", "kind")
        self._failures = mine(Counter, "handler_failures_total", "Exceptions of the handler.")
        self._dead = mine(Counter, "dead_letters_total", "Records in the dead-letter topic.")
        self._lost = mine(Counter, "lost_partitions_total", "Partitions lost, not revoked.")
        self._assigned = mine(Gauge, "assigned_partitions", "Partitions that are assigned.")
        self._restored = metric(
            Counter, "restored_records_total", "Changelog records that were read.", "state"
        )
        self._restoring = metric(
            Histogram, "restore_seconds", "Restoring one partition of a state.", "state"
        )
        self._waits = mine(Counter, "waits_total", "Waits for another instance's transaction.")

    def on_commit(self, records: int, outputs: int, seconds: float) -> None:
        self._records.inc(records)
        self._outputs.inc(outputs)
        self._commits.observe(seconds)

    def on_abort(self, kind: str, reason: str) -> None:
        self._aborts.labels(self._application, kind).inc()

    def on_failure(self, record: Record, error: BaseException, attempt: int) -> None:
        self._failures.inc()

    def on_dead_letter(self, record: Record, error: BaseException) -> None:
        self._dead.inc()

    def on_assigned(self, places: Sequence[Place]) -> None:
        self._assigned.inc(len(places))

    def on_revoked(self, places: Sequence[Place], *, lost: bool) -> None:
        self._assigned.dec(len(places))
        if lost:
            self._lost.inc(len(places))

    def on_restored(self, state: str, partition: int, records: int, seconds: float) -> None:
        self._restored.labels(self._application, state).inc(records)
        self._restoring.labels(self._application, state).observe(seconds)

    def on_waiting(self, what: str) -> None:
        self._waits.inc()
