"""Kafka's messages, one module an API, made by `make protocol` from Kafka's schemas.

What all of them have in common is in `message`.
"""
