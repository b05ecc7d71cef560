"""Barnabas: a Kafka-compatible broker with transactions, in pure Python, and a Spark connector that
reads what was committed.

    barnabas.broker, coordinator, protocol, storage    the broker
    barnabas.spark_connector                           PySpark's data source `format("barnabas")`

The folders of these packages stand at the top of the repository; links beside this file lead to
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.version import __version__

if TYPE_CHECKING:
    from barnabas.local_broker import LocalBroker
    from barnabas.spark_connector.two_phase_producer import TwoPhaseProducer

__all__ = ["LocalBroker", "TwoPhaseProducer", "__version__"]


def __getattr__(name: str) -> Any:
    """Load what a script needs when it asks for it: the daemon comes through here too, and needs
    none of it.
    """
    if name == "LocalBroker":
        from barnabas.local_broker import LocalBroker

        return LocalBroker
    if name == "TwoPhaseProducer":
        from barnabas.spark_connector.two_phase_producer import TwoPhaseProducer

        return TwoPhaseProducer
    raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
