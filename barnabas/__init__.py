"""Barnabas: a Kafka-compatible broker with transactions, in pure Python, and an exactly-once Spark pipeline on top of it."""

from barnabas.process import BrokerProcess
from barnabas.version import __version__

__all__ = ["BrokerProcess", "__version__"]
