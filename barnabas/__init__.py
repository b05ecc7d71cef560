"""Barnabas: a Kafka-compatible broker with transactions, in pure Python, and a Spark connector that reads what was committed."""

from barnabas.process import BrokerProcess
from barnabas.version import __version__

__all__ = ["BrokerProcess", "__version__"]
