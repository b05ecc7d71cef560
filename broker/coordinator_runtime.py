"""The join of the coordinators and their internal topics.

What a coordinator decides is appended and replayed; then its answers leave, and its effects are
carried out. A decision on a transaction goes to transaction_end.py, which carries it out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.result import Reply, Result
from barnabas.coordinator.transactions.transaction_state import Decision

if TYPE_CHECKING:
    from barnabas.broker.core import Broker
    from barnabas.storage.log.log import Log


logger = logging.getLogger("barnabas.transactions")


def _trace_offsets(log: Log, result: Result, end_offset: int) -> None:
    """Say at debug level that a transaction has offsets of a group."""
    assert result.producer is not None
    producer_id, producer_epoch = result.producer
    logger.debug(
        "%r: %d offsets of producer %d are pending until its transaction ends",
        log, len(result.records), producer_id,
        extra={
            "producer_id": producer_id, "producer_epoch": producer_epoch,
            "offset": end_offset - len(result.records),
        },
    )  # fmt: skip


class CoordinatorRuntime:
    """Runs the Results of both coordinators against the logs."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def run_groups(self, result: Result, now_ms: int) -> None:
        """Carry out what the group coordinator decided."""
        broker = self._broker
        while True:
            if result.records:
                log = broker.topics.internal_log(OFFSETS_TOPIC, result.partition, now_ms)
                log.append_records(result.records, now_ms, result.producer)
                offset = log.log_end_offset - len(result.records)
                for key, value in result.records:
                    broker.groups.replay(result.partition, offset, key, value, result.producer)
                    offset += 1
                broker.progress.on_appended([log], now_ms)
                if result.producer is not None and logger.isEnabledFor(logging.DEBUG):
                    _trace_offsets(log, result, offset)
            self._reply(result.replies)
            if not result.more:
                return
            for further in result.more[:-1]:
                self.run_groups(further, now_ms)
            result = result.more[-1]

    def run_transactions(self, result: Result, now_ms: int) -> None:
        """Carry out what the transaction coordinator decided."""
        broker = self._broker
        if result.records:
            log = broker.topics.internal_log(TRANSACTIONS_TOPIC, result.partition, now_ms)
            log.append_records(result.records, now_ms)
            assert len(result.transactions) == len(result.records), "a record that says nothing"
            for metadata in result.transactions:
                broker.transactions.apply(metadata)
            broker.progress.on_appended([log], now_ms)
            if result.durable and broker.transaction_ends.flushes_commits:
                broker.flushes.wait(
                    [log], lambda flushed_ms: self._conclude(result, flushed_ms), now_ms
                )
            else:
                self._conclude(result, now_ms)
        else:
            self._conclude(result, now_ms)
        for further in result.more:
            self.run_transactions(further, now_ms)

    def two_phase_logs(self, transactional_id: str | None, now_ms: int) -> list[Log]:
        """The log of its transactions, where it is in a session of two-phase commit (KIP-939).

        What such a producer is told waits for that log, too: an open transaction outlives a loss of
        power, and so must the record of each partition that it wrote to.
        """
        broker = self._broker
        transactions = broker.transactions
        if (
            transactional_id is None
            or transactional_id not in transactions.two_phase
            or not transactions.settings.is_durable
        ):
            return []
        index = transactions.partition_of(transactional_id)
        return [broker.topics.internal_log(TRANSACTIONS_TOPIC, index, now_ms)]

    def run_groups_durably(self, result: Result, logs: list[Log], now_ms: int) -> None:
        """Do as `run_groups`; answer once what it appends is on the disk, and `logs` too."""
        broker = self._broker
        *_, last = (result, *result.more)
        replies, last.replies = last.replies, []
        self.run_groups(result, now_ms)
        written = [
            broker.topics.internal_log(OFFSETS_TOPIC, each.partition, now_ms)
            for each in (result, *result.more)
            if each.records
        ]
        broker.flushes.wait([*written, *logs], lambda _: self._reply(replies), now_ms)

    def _conclude(self, result: Result, now_ms: int) -> None:
        self._reply(result.replies)
        for effect in result.effects:
            if isinstance(effect, Decision):
                self._broker.transaction_ends.begin(effect, now_ms)
            else:
                self._broker.transaction_ends.set_session_at_end(effect)

    def _reply(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            self._broker.reply(reply.ticket, reply.response)
