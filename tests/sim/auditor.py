"""A client that requests the broker's producers and transactions, and records the responses."""

from __future__ import annotations

from typing import Any

from checkers import Partition, ReportedProducer, ReportedTransaction

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from sim import wire
from sim.clients import RETRIABLE, Asking, Client, Refused
from sim.network import LOST

ENDED = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})
GRACE_MS = 1000


class Auditor(Client):
    """A client that sends DescribeProducers for some partitions, and DescribeTransactions for all
    ids in the answer to ListTransactions.
    """

    def __init__(self, world: Any, partitions: list[Partition]) -> None:
        super().__init__(world, "auditor")
        self.partitions = partitions

    def run(self) -> Asking:
        while not self.world.is_over:
            yield from self.look_at_producers()
            yield from self.look_at_transactions()
            yield self.rng.randint(200, 1200)

    def look_at_producers(self) -> Asking:
        """Send DescribeProducers. Return the producers in the response, or None if it was lost."""
        topics: dict[str, list[int]] = {}
        for name, index in self.partitions:
            topics.setdefault(name, []).append(index)
        rows = [
            TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()
        ]
        asked_ms = self.world.loop.now_ms
        answer = yield from self.ask(wire.request(DescribeProducersRequest(topics=rows), 0))
        if answer is LOST:
            return None
        history, now_ms = self.world.history, self.world.loop.now_ms
        reported = []
        for found in answer.topics:
            for partition in found.partitions:
                if partition.error_code:
                    self._refused("DescribeProducers", partition.error_code)
                for row in partition.active_producers or ():
                    reported.append(
                        ReportedProducer(
                            (found.name, partition.partition_index),
                            row.producer_id,
                            row.producer_epoch,
                            row.last_sequence,
                            row.current_txn_start_offset,
                            asked_ms,
                            now_ms,
                        )
                    )
        history.reported_producers.extend(reported)
        return reported

    def look_at_transactions(self) -> Asking:
        """Describe all transactions. Return the response for each transactional id, or None if a
        response was lost.
        """
        asked_ms = self.world.loop.now_ms
        answer = yield from self.ask(
            wire.request(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
        )
        if answer is LOST or answer.error_code:
            return None
        ids = sorted(row.transactional_id for row in answer.transaction_states)
        if not ids:
            return []
        answer = yield from self.ask(
            wire.request(DescribeTransactionsRequest(transactional_ids=ids), 0)
        )
        if answer is LOST:
            return None
        history, now_ms = self.world.history, self.world.loop.now_ms
        reported = []
        for row in answer.transaction_states:
            if row.error_code == Code.TRANSACTIONAL_ID_NOT_FOUND and self.world.scenario.ids_expire:
                continue
            if row.error_code:
                self._refused("DescribeTransactions", row.error_code)
                continue
            reported.append(
                ReportedTransaction(
                    row.transactional_id,
                    row.transaction_state,
                    row.producer_id,
                    row.producer_epoch,
                    asked_ms,
                    now_ms,
                )
            )
        history.reported_transactions.extend(reported)
        return reported

    def _refused(self, what: str, code: int) -> None:
        if code not in RETRIABLE:
            self.world.history.incident("refused", f"{self.name}: {Refused(what, code)}")

    def look_at_the_end(self) -> Asking:
        """Check that no transaction is open any more, in any partition or for any id, since every
        timeout has passed.

        A transaction may have stayed open until now without blocking any reader, if its producer
        died before it wrote, or if all its records have been deleted: transactions do not protect
        records from retention.
        """
        for _ in range(20):
            producers = yield from self.look_at_producers()
            transactions = yield from self.look_at_transactions()
            if producers is not None and transactions is not None:
                break
        else:
            return
        last_ms = self.world.loop.now_ms + self.world.scenario.transaction_timeout_ms + GRACE_MS
        while self.world.loop.now_ms < last_ms and (
            any(row.state not in ENDED for row in transactions)
            or any(row.txn_start_offset >= 0 for row in producers)
        ):
            yield 50
            found = yield from self.look_at_transactions()
            transactions = transactions if found is None else found
            found = yield from self.look_at_producers()
            producers = producers if found is None else found
        for row in producers:
            if row.txn_start_offset >= 0:
                self.world.history.incident("stuck", f"{row} is answered to be open")
        for row in transactions:
            if row.state not in ENDED:
                self.world.history.incident("stuck", f"{row} is answered to be open")
