"""Compares this broker with golden transcripts of Apache Kafka: `make oracle`."""
