"""The requests about transactions that other processes wrote: list, describe, hold and end them.
The requests are sent to the coordinators of the transactional ids.

Many requests are sent to one coordinator before the first response is received. Source: KIP-664
(ListTransactions, DescribeTransactions), KIP-939 (InitProducerId that keeps a transaction).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.client.connection import (
    Address,
    Connection,
    Connections,
    PassingError,
    code_name,
    metadata,
)
from barnabas.client.options import ClientOptions
from barnabas.client.request_kind import RequestKind, Response
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.spark_connector.produce_request import Producer, PublishError
from barnabas.spark_connector.task_transactions import OPEN, Described, Held, first_of
from barnabas.spark_connector.transactional_producer import (
    END_TXN,
    END_TXN_2,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PASSING_CODES,
    TRANSACTION,
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
        self._connections = Connections(options)
        self._addresses: dict[str, Address] = {}
        self._keeps: bool | None = None

    def close(self) -> None:
        """Close all connections, and discard the cached addresses of coordinators."""
        self._connections.close()
        self._addresses.clear()

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
            self._locate([probe])
            connection = self._connections.at(self._addresses[probe])
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
        metadata(self._connections, [])
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
        answers = []
        for address, names in self._by_coordinator(list(requests)).items():
            connection = self._connections.at(address)
            is_newer = newer is not None and connection.level_of(TRANSACTION_VERSION) >= 2
            spoken = newer if newer is not None and is_newer else kind
            answers += _pipelined(connection, spoken, names, requests.__getitem__)
        return answers

    def _by_coordinator(self, ids: Sequence[str]) -> dict[Address, list[str]]:
        """Group the ids by the address of their coordinator."""
        self._locate(ids)
        by_address: dict[Address, list[str]] = {}
        for name in ids:
            by_address.setdefault(self._addresses[name], []).append(name)
        return by_address

    def _locate(self, ids: Sequence[str]) -> None:
        """Find the coordinators of the ids."""
        missing = [name for name in ids if name not in self._addresses]
        if not missing:
            return
        answers = _pipelined(
            self._connections.any(),
            FIND_COORDINATOR,
            missing,
            lambda name: FindCoordinatorRequest(key=name, key_type=TRANSACTION),
        )
        for name, answer in answers:
            _check(answer.error_code, f"looking for the coordinator of {name!r}")
            self._addresses[name] = (answer.host, answer.port)


AT_ONCE = 100  # the number of requests that are sent before the first response is received


def _pipelined(
    connection: Connection,
    kind: RequestKind[Any, Response],
    names: Sequence[str],
    request_of: Callable[[str], Any],
) -> list[tuple[str, Response]]:
    """Send one request for each name. Gives: the responses."""
    answers: list[tuple[str, Response]] = []
    for start in range(0, len(names), AT_ONCE):
        part = names[start : start + AT_ONCE]
        for name in part:
            connection.send(kind, request_of(name))
        answers += [(name, connection.receive(kind)) for name in part]
    return answers


def _check(code: int, what: str) -> None:
    """Raise PassingError or PublishError for an error code."""
    if not code:
        return
    if code in PASSING_CODES or code in (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH):
        raise PassingError(f"{what}: {code_name(code)}")
    raise PublishError(f"{what}: {code_name(code)}", code)
