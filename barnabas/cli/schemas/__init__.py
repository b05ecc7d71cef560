"""Messages that kafka-python does not have, in Kafka's form of schemas; the same as those of
protocol/generator/schemas, which are not installed.
"""
