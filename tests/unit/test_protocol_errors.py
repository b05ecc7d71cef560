"""Kafka's error codes. The expected ones are those of kafka-python, made from Kafka's own list."""

from __future__ import annotations

import kafka.errors

from barnabas.protocol.errors import Code, DelayedRequest, KafkaError, ProtocolViolation


def test_the_codes_are_kafkas() -> None:
    theirs = kafka.errors.kafka_errors
    compared = 0
    for code in Code:
        error = theirs.get(code.value)
        if error is not None and code is not Code.NONE:
            assert error.errno == code.value
            compared += getattr(error, "message", None) == code.name
    assert compared > 60


def test_an_error_without_a_message_is_shown_by_its_code() -> None:
    error = KafkaError(Code.NOT_LEADER_OR_FOLLOWER)
    assert (str(error), error.message) == ("NOT_LEADER_OR_FOLLOWER", None)
    assert KafkaError(Code.INVALID_RECORD, "why").message == "why"


def test_a_delayed_request_ends_its_connection() -> None:
    assert issubclass(DelayedRequest, ProtocolViolation)
