"""Messages that kafka-python does not have, in Kafka's form of schemas. `make protocol` reads them,
too.
"""
