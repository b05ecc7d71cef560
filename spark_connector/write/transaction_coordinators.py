"""The requests about transactions that other processes wrote: list, describe, hold and end them.
The requests are sent to the coordinators of the transactional ids.

Many requests are sent to one coordinator before the first response is received. Source: KIP-664
(ListTransactions, DescribeTransactions), KIP-939 (InitProducerId that keeps a transaction).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.client.cluster import TRANSACTION, Cluster
from barnabas.client.connection import Address
from barnabas.client.errors import PassingError, code_name
from barnabas.client.options import ClientOptions
from barnabas.client.request_kind import RequestKind, Response
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.spark_connector.write.produce_request import Producer, PublishError
from barnabas.spark_connector.write.task_transactions import OPEN, Described, Held, first_of
from barnabas.spark_connector.write.transactional_producer import (
    END_TXN,
    END_TXN_2,
    INIT_PRODUCER_ID,
    PASSING_CODES,
    TRANSACTION_VERSION,
    PublishSettings,
)

LIST_TRANSACTIONS = RequestKind(ListTransactionsRequest, ListTransactionsResponse, 0, 1)
DESCRIBE_TRANSACTIONS = RequestKind(DescribeTransactionsRequest, DescribeTransactionsResponse, 0, 0)
KEEPING_INIT = RequestKind(InitProducerIdRequest, InitProducerIdResponse, 6, 6)
PROBE = "probe"  # a transactional id under which no transaction is ever begun
# Errors that a broker without two-phase commit returns to InitProducerId.
NOT_KEPT = frozenset({Code.UNSUPPORTED_VERSION, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
NOT_ITS_OWN = frozenset(
    {
        Code.PRODUCER_FENCED,
        Code.INVALID_PRODUCER_EPOCH,
        Code.INVALID_PRODUCER_ID_MAPPING,
        Code.INVALID_TXN_STATE,
    }
)
OLD_BROKERS = (
    "sinkMode=tasks needs brokers that describe transactions (Apache Kafka 3.0 or later): use "
    "sinkMode=driver"
)


class TransactionCoordinators:
    """The coordinators of the transactional ids of one driver's tasks. The object belongs to one
    thread.
    """

    def __init__(self, options: ClientOptions, settings: PublishSettings, driver_id: str) -> None:
        self._settings, self._driver_id = settings, driver_id
        self._cluster = Cluster(options)
        self._connections = self._cluster.connections
        self._keeps: bool | None = None

    def close(self) -> None:
        """Close all connections, and discard the cached addresses of coordinators."""
        self._connections.close()
        self._cluster.forget()

    @property
    def keeps(self) -> bool:
        """Whether transactions can be kept for two-phase commit. The brokers are asked once.

        Raises: ClientError.
        """
        if self._keeps is None:
            self._keeps = self._ask_whether_they_keep()
        return self._keeps

    def _ask_whether_they_keep(self) -> bool:
        """Whether the brokers keep transactions for two-phase commit (KIP-939). A request for an
        unused id shows it.
        """
        probe = first_of(self._driver_id) + PROBE
        try:
            connection = self._cluster.coordinator(probe, TRANSACTION, _check_coordinator)
            if not connection.speaks(KEEPING_INIT):
                return False
            answer = connection.request(KEEPING_INIT, self._keeping(probe, lasting=True))
            _check(answer.error_code, f"transactional id {probe!r}")
        except PublishError as error:
            if error.code in NOT_KEPT:
                return False
            raise
        return True

    def check_versions(self) -> None:
        """Check that the brokers can describe transactions. Raises: ClientError."""
        if not self._connections.any().speaks(DESCRIBE_TRANSACTIONS):
            raise PublishError(OLD_BROKERS)

    def open_ids(self, prefix: str) -> list[str]:
        """The ids with this prefix that have an open transaction. Brokers that do not support
        ListTransactions are left out.

        Raises: ClientError.
        """
        self._cluster.refresh([])
        found: list[str] = []
        for node in list(self._connections.nodes):
            connection = self._connections.of_node(node)
            if not connection.speaks(LIST_TRANSACTIONS):
                continue
            answer = connection.request(LIST_TRANSACTIONS, ListTransactionsRequest([OPEN]))
            _check(answer.error_code, "the list of transactions")
            found += (
                each.transactional_id
                for each in answer.transaction_states
                if each.transactional_id.startswith(prefix)
            )
        return found

    def describe(self, ids: Sequence[str]) -> Mapping[str, Described]:
        """The state of each id, except those that do not exist. Raises: ClientError."""
        found: dict[str, Described] = {}
        for address, names in self._by_coordinator(ids).items():
            connection = self._connections.at(address)
            if not connection.speaks(DESCRIBE_TRANSACTIONS):
                raise PublishError(OLD_BROKERS)
            answer = connection.request(DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(names))
            for each in answer.transaction_states:
                if each.error_code == Code.TRANSACTIONAL_ID_NOT_FOUND:
                    continue
                _check(each.error_code, f"transactional id {each.transactional_id!r}")
                found[each.transactional_id] = Described(
                    each.transaction_state,
                    Producer(each.producer_id, each.producer_epoch),
                    each.transaction_timeout_ms,
                )
        return found

    def hold(self, ids: Sequence[str], *, lasting: bool) -> Mapping[str, Held]:
        """Hold the open transactions of the ids; ids without an open transaction are left out.

        Raises: ClientError.
        """
        if not self.keeps:
            return {
                name: Held(each.producer, each.producer)
                for name, each in self.describe(ids).items()
                if each.state == OPEN
            }
        held: dict[str, Held] = {}
        without_timeout: list[str] = []
        for name, answer in self._ask(
            KEEPING_INIT, {name: self._keeping(name, lasting=lasting) for name in ids}
        ):
            if answer.error_code == Code.INVALID_TXN_STATE and not lasting:
                without_timeout.append(name)
                continue
            _check(answer.error_code, f"transactional id {name!r}")
            if answer.ongoing_txn_producer_id >= 0:
                held[name] = Held(
                    Producer(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch),
                    Producer(answer.producer_id, answer.producer_epoch),
                )
        if without_timeout:
            held |= self.hold(without_timeout, lasting=True)
        return held

    def end(self, ends: Mapping[str, Producer], *, commit: bool) -> Sequence[str]:
        """End transactions, each as the given producer.

        Gives:  the ids whose transaction the given producer can no longer end.
        Raises: ClientError. Some of the transactions may have ended then.
        """
        requests = {
            name: EndTxnRequest(name, producer.producer_id, producer.epoch, commit)
            for name, producer in ends.items()
        }
        refused = []
        for name, answer in self._ask(END_TXN, requests, newer=END_TXN_2):
            if answer.error_code in NOT_ITS_OWN:
                refused.append(name)
            else:
                _check(answer.error_code, f"the end of a transaction of {name!r}")
        return refused

    def abort_kept(self, ids: Sequence[str]) -> None:
        """Abort the open transactions of the ids, by an InitProducerId without flags (KIP-939).

        Raises: ClientError; PassingError while a transaction is ending.
        """
        timeout_ms = self._settings.transaction_timeout_ms
        requests = {
            name: InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
            for name in ids
        }
        for name, answer in self._ask(INIT_PRODUCER_ID, requests):
            _check(answer.error_code, f"transactional id {name!r}")

    # --- parts

    def _keeping(self, name: str, *, lasting: bool) -> InitProducerIdRequest:
        """The InitProducerId request for the next epoch of an id, which keeps the open transaction.
        Takes: lasting, whether the transaction then has no timeout.
        """
        return InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            enable2_pc=lasting,
            keep_prepared_txn=True,
        )

    def _ask(
        self,
        kind: RequestKind[Any, Response],
        requests: Mapping[str, Any],
        *,
        newer: RequestKind[Any, Response] | None = None,
    ) -> list[tuple[str, Response]]:
        """Send one request for each id, and receive all responses.

        Takes:  newer, the kind of request to use if version 2 of transactions is finalised.
        """
        answers: list[tuple[str, Response]] = []
        for address, names in self._by_coordinator(list(requests)).items():
            connection = self._connections.at(address)
            is_newer = newer is not None and connection.level_of(TRANSACTION_VERSION) >= 2
            spoken = newer if newer is not None and is_newer else kind
            of_address = connection.request_all(spoken, [requests[name] for name in names])
            answers += zip(names, of_address, strict=True)
        return answers

    def _by_coordinator(self, ids: Sequence[str]) -> dict[Address, list[str]]:
        """Group the ids by the address of their coordinator."""
        by_address: dict[Address, list[str]] = {}
        found = self._cluster.coordinators(ids, TRANSACTION, _check_coordinator)
        for name, coordinator in zip(ids, found, strict=True):
            by_address.setdefault(coordinator.address, []).append(name)
        return by_address


def _check_coordinator(name: str, code: int, _: str) -> None:
    """Raise PassingError or PublishError for an error code of FindCoordinator."""
    _check(code, f"looking for the coordinator of {name!r}")


def _check(code: int, what: str) -> None:
    """Raise PassingError or PublishError for an error code."""
    if not code:
        return
    if code in PASSING_CODES or code in (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH):
        raise PassingError(f"{what}: {code_name(code)}")
    raise PublishError(f"{what}: {code_name(code)}", code)
