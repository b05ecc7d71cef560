"""Writes `protocol/messages/` from Kafka's message schemas, which kafka-python contains, and
`protocol/internal_records/` from `schemas/records/`.

Run it with `make protocol`. This package is not installed with the broker. `schema` reads the
schemas, `emit` writes the modules.
"""
