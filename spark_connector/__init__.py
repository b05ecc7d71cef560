"""Spark's source and sink. Its processes are many and short-lived, and need nothing of kafka-python
but the protocol.
"""

from barnabas.spark_connector.kafka_import import enter_kafka_without_clients

enter_kafka_without_clients()
