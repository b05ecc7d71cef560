"""Golden transcripts of Apache Kafka against this broker: `make oracle`."""
