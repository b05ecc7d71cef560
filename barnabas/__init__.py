"""Barnabas: a Kafka-compatible broker with transactions, in pure Python, and a Spark connector.

    barnabas.broker, coordinator, protocol, storage    the broker
    barnabas.spark_connector                           PySpark's data source `format("barnabas")`

The folders of these packages are at the top of the repository; links beside this file lead to them.
"""

from __future__ import annotations

from barnabas.version import __version__

TYPE_CHECKING = False  # type checkers treat it as true; `import barnabas` does not load `typing`
if TYPE_CHECKING:
    from typing import Any

    from barnabas.local_broker import LocalBroker
    from barnabas.spark_connector.two_phase_producer import TwoPhaseProducer

__all__ = ["LocalBroker", "TwoPhaseProducer", "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use: the daemon imports this module, too, and uses none."""
    if name == "LocalBroker":
        from barnabas.local_broker import LocalBroker

        return LocalBroker
    if name == "TwoPhaseProducer":
        from barnabas.spark_connector.two_phase_producer import TwoPhaseProducer

        return TwoPhaseProducer
    raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
