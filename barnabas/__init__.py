"""Barnabas: a Kafka-compatible broker with transactions, in pure Python, and a Spark connector.

    barnabas.broker, coordinator, protocol, storage    the broker
    barnabas.spark_connector                           PySpark's data source `format("barnabas")`

The folders of these packages are at the top of the repository; links beside this file lead to them.
"""

from __future__ import annotations

import sys

from barnabas.version import __version__

if sys.version_info < (3, 11):  # noqa: UP036  (an older Python may run a clone)
    _TOO_OLD = f"Barnabas needs Python 3.11 or later; this is {sys.version.split()[0]}"
    # `python -m barnabas` imports this package before it sets the name of the program
    raise SystemExit(_TOO_OLD) if sys.argv[:1] == ["-m"] else ImportError(_TOO_OLD)

# type checkers treat this as true; at run time `import barnabas` does not load `typing`
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from barnabas.local_broker import LocalBroker
    from barnabas.spark_connector.two_phase_producer import TwoPhaseProducer

__all__ = ["LocalBroker", "TwoPhaseProducer", "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that the daemon, which imports this package but uses
    none of these names, does not load their modules.
    """
    if name == "LocalBroker":
        from barnabas.local_broker import LocalBroker

        return LocalBroker
    if name == "TwoPhaseProducer":
        from barnabas.spark_connector.two_phase_producer import TwoPhaseProducer

        return TwoPhaseProducer
    raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
