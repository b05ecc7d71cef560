"""The numbers and names of error codes are those of Apache Kafka, as kafka-python defines them."""

from __future__ import annotations

import kafka.errors

from barnabas.protocol.errors import Code

# Codes for which kafka-python uses a name of its own, or one that Apache Kafka has abandoned.
OTHER_NAMES = {
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
    "NO_ERROR": "NONE",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
}
# From Apache Kafka's protocol guide, "Error Codes".
UNKNOWN_TO_KAFKA_PYTHON = {
    128: "INVALID_REGULAR_EXPRESSION",
    130: "STREAMS_INVALID_TOPOLOGY",
    133: "SHARE_SESSION_LIMIT_REACHED",
}


def names_of_kafka_python() -> dict[int, str]:
    """The names of the codes in kafka-python, by number."""
    classes = [value for value in vars(kafka.errors).values() if isinstance(value, type)]
    return {
        error.errno: OTHER_NAMES.get(error.message, error.message)
        for error in classes
        if isinstance(getattr(error, "errno", None), int)
    }


def test_every_code_has_its_name() -> None:
    theirs = names_of_kafka_python() | UNKNOWN_TO_KAFKA_PYTHON
    missing = "add its name, from the protocol guide, to UNKNOWN_TO_KAFKA_PYTHON"
    assert {int(code): code.name for code in Code} == {
        int(code): theirs.get(code, missing) for code in Code
    }
