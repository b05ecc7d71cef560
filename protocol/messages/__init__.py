"""Kafka's messages, one module an API, made by `make protocol` from Kafka's schemas. `message` is what all have in common."""
