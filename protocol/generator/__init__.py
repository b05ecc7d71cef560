"""Writes `protocol/messages/` from Kafka's message schemas, which kafka-python ships: `make
protocol`.

Not installed with the broker. `schema` reads the schemas, `emit` writes the modules.
"""
