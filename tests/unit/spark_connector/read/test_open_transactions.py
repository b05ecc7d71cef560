"""The wait for the end of an open transaction: its log messages, and when it ends."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("pyarrow")


from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.read.open_transactions import (
    OpenTransactionError,
    OpenTransactionWait,
    UndecidedRange,
)
from barnabas.spark_connector.read.options import OpenTransactions

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Clock:
    """A clock in seconds that only the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_waiting_for_an_open_transaction_is_logged_and_ends_with_an_error(
    caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    patience = OpenTransactionWait(
        OpenTransactions(timeout_ms=25_000), clock=clock, sleep=clock.sleep
    )
    waiting = {T0: UndecidedRange(80, 60)}

    def wait() -> None:
        while patience.look_again(waiting):
            pass

    with pytest.raises(OpenTransactionError) as caught:
        wait()
    said = str(caught.value)
    assert (
        "after 25 s a transaction is still open: t-0 is to be read up to offset 80, and from 60 on "
        "a transaction is open" in said
    )
    assert (
        "No record was deleted" in said
        and "onOpenTransaction=end" in said
        and "data loss" not in said.lower()
    )
    messages = [record.getMessage() for record in caplog.records]
    assert [message.split(":")[1].split(",")[1] for message in messages] == [
        f" for {spent} s of at most 25 s" for spent in (0, 10, 20)
    ]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_without_waiting_the_offsets_that_are_not_read_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wait = OpenTransactionWait(OpenTransactions(wait=False))
    assert not wait.look_again({T0: UndecidedRange(80, 60)})
    assert [record.getMessage() for record in caplog.records] == [
        "barnabas: t-0: offsets [60, 80) are not read: a transaction is open from 60 on "
        "(onOpenTransaction=end)"
    ]
