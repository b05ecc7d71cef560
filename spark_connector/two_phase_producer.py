"""A producer for two-phase commit (KIP-939), whose transactions end as another system has decided.

The other system, for example a database, stores the decision. Order of use:

    recover()        at the start, and after each error: fences the producer that had the id;
                     returns the state of the transaction that was left open, "" if there is none
    complete(state)  if a transaction was left open: the state that the database has stored decides
                     how it ends
    begin(), send(...), send_offsets(...)
    prepare()        makes all data durable at the broker; returns the state, which goes into the
                     database's own transaction
    complete(state)  once the database has decided: commits the transaction of that state, aborts
                     any other

A state is the producer's id and epoch as text, "42:7", as in the Java client's PreparedTxnState. No
two transactions have the same state: otherwise the state of one in the database would commit
another. In version 2 of the protocol, the response to each EndTxn contains the next epoch. In
version 1, a transaction begins with a request for the next epoch, and a transaction without records
has no state. Source: KIP-939, KIP-890.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import TracebackType
from typing import NamedTuple, TypeVar

from barnabas.client.errors import ClientError, PassingError, code_name
from barnabas.client.murmur2 import partition_of
from barnabas.client.options import ClientOptions
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.read.options import OptionValues, client_options
from barnabas.spark_connector.write.produce_request import Producer, PublishError
from barnabas.spark_connector.write.transactional_producer import (
    FencedError,
    PublishSettings,
    TransactionalProducer,
)

INIT_PRODUCER_ID_6 = RequestKind(InitProducerIdRequest, InitProducerIdResponse, 6, 6)
NOTHING_OPEN = ""
BATCH_BYTES = 128 << 10
RECORD_BYTES = 70  # an upper bound for the size of a record without its key, value and headers
RETRY_S = 0.05
_STATE = re.compile(r"\d{1,19}:\d{1,5}")
_GONE = frozenset(
    {
        Code.PRODUCER_FENCED,
        Code.INVALID_PRODUCER_EPOCH,
        Code.INVALID_PRODUCER_ID_MAPPING,
        Code.INVALID_TXN_STATE,
    }
)

T = TypeVar("T")


class TwoPhaseError(ClientError):
    """A call that is not allowed in the transaction's state. No request was sent."""


class _Stage(Enum):
    """The state of the producer."""

    NEW = "call recover() first"
    LEFT_OPEN = "an earlier transaction is open: complete() it"
    READY = "no transaction is open: begin() one"
    OPEN = "a transaction is open"
    PREPARED = "the transaction is prepared: complete() it"
    FAILED = "a request has failed: abort(), or recover()"


class GroupMember(NamedTuple):
    """The identity of a consumer in its group, by which the group fences commits (KIP-447)."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class _Session(TransactionalProducer):
    """The producer's requests for two-phase commit."""

    def init(self, *, keep: bool) -> Producer | None:
        """Begin a session. Gives: the producer of the open transaction, or None."""
        request = InitProducerIdRequest(enable2_pc=True, keep_prepared_txn=keep)
        answer = self._init(INIT_PRODUCER_ID_6, request)
        if answer.ongoing_txn_producer_id < 0:
            return None
        return Producer(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)

    @property
    def state(self) -> str:
        return _text_of(self._producer)

    @property
    def gives_epochs(self) -> bool:
        """Whether the response to each EndTxn contains the next epoch, as in version 2 of the
        protocol.
        """
        return self._is_version_2

    def flush(self) -> None:
        """Send all record batches, and wait until they are acknowledged."""
        for node, leader in self._under_way.items():
            self._send_out(node, leader)
        self._receive_all()

    def send_offsets(
        self, group_id: str, offsets: Mapping[tuple[str, int], int], member: GroupMember
    ) -> None:
        """Add a group's next offsets to the transaction."""
        self._group_id = group_id
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(partition, offset, committed_metadata="")
            )
        rows = [TxnOffsetCommitRequestTopic(topic, rows) for topic, rows in topics.items()]
        self._commit_offsets(rows, member)

    def end(self, *, commit: bool) -> None:
        """End the open transaction, and continue as the producer in the response."""
        answer = self._ask_for_end(commit=commit)
        if answer.error_code in _GONE:
            raise FencedError(
                f"transactional id {self.transactional_id!r}: {code_name(answer.error_code)}: "
                "another producer uses it, or the broker ended the transaction after a power "
                "loss; recover() returns the open transaction"
            )
        self._check(answer.error_code, f"the end of a transaction of {self.transactional_id!r}")
        producer, is_version_2 = self._producer, self._is_version_2
        sequences = self._sequences
        self._forget_transaction()
        self._producer, self._is_version_2 = producer, is_version_2
        if is_version_2:
            self._producer = Producer(answer.producer_id, answer.producer_epoch)
        else:
            self._sequences = sequences

    def close(self) -> None:
        self._connections.close()


class TwoPhaseProducer:
    """A producer of one transaction after the other, each ended as a database has decided.

    The broker must have `transaction.two.phase.commit.enable=true`. A producer belongs to one
    thread. Use it as a context manager, or close it. After that, an open transaction stays open,
    for `recover`.

    If a request fails with a ClientError, the transaction remains as it is, and only `abort` and
    `recover` are possible. FencedError means that another producer has the id.

    Takes:  bootstrap_servers, "host:port,host:port"; transactional_id, an id that no other writer
            uses; settings, the settings of a Kafka client for security, client.id and
            request.timeout.ms; patience_ms, how long `recover`, `complete` and `abort` are tried
            again if a broker cannot be reached, by default 2 minutes.
    Raises: OptionError for a wrong setting; ValueError without a transactional id.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        transactional_id: str,
        *,
        settings: Mapping[str, str] | None = None,
        patience_ms: int = PublishSettings.delivery_timeout_ms,
    ) -> None:
        """Make a producer. No request is sent yet."""
        if not transactional_id:
            raise ValueError("a transactional id is needed: its own for each writer")
        kafka = {**(settings or {}), "bootstrap.servers": bootstrap_servers}
        kafka.setdefault("client.id", "barnabas-two-phase")
        values = OptionValues({f"kafka.{name}": value for name, value in kafka.items()})
        self._options: ClientOptions = client_options(values)
        self._session = _Session(self._options, PublishSettings(), transactional_id, "")
        self._patience_s = patience_ms / 1000
        self._stage = _Stage.NEW
        self._state = NOTHING_OPEN
        self._is_epoch_used = False
        self._pending: dict[TopicPartition, list[NewRecord]] = {}
        self._pending_bytes: dict[TopicPartition, int] = {}
        self._next_partition = 0
        self._counts: dict[str, int] = {}

    def __enter__(self) -> TwoPhaseProducer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. An open transaction stays open."""
        self._session.close()

    # --- the steps

    def recover(self) -> str:
        """Fence the producer that had the id before, and find its open transaction.

        Call `complete` afterwards, with the state that the database has decided to commit.

        Gives:  the state of the open transaction, or "" if there is none.
        Raises: ClientError.
        """
        self._forget()
        if self._stage is _Stage.FAILED:
            # late responses to earlier requests may still arrive
            self._session.forget_connections()
        self._stage = _Stage.NEW
        ongoing = self._insist(lambda: self._session.init(keep=True))
        self._is_epoch_used = False
        self._state = NOTHING_OPEN if ongoing is None else _text_of(ongoing)
        self._stage = _Stage.READY if ongoing is None else _Stage.LEFT_OPEN
        return self._state

    def begin(self) -> None:
        """Begin a transaction.

        Raises: TwoPhaseError if a transaction is or may be open; ClientError.
        """
        self._expect(_Stage.READY)
        self._forget()
        if self._is_epoch_used and not self._session.gives_epochs:
            self.recover()
            self._expect(_Stage.READY)
        self._is_epoch_used = True
        self._stage = _Stage.OPEN

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Add a record to the transaction. It is sent together with others, by `prepare` at the
        latest.

        Takes:  partition, by default the partition that the Java client chooses for the key or,
                without a key, the next one in round robin; timestamp_ms, by default the current
                time.
        Raises: ClientError.
        """
        self._expect(_Stage.OPEN)
        with_headers = tuple((name, content) for name, content in headers)
        now_ms = round(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        record = NewRecord(key, value, now_ms, with_headers)
        size = RECORD_BYTES + len(key or b"") + len(value or b"")
        size += sum(10 + 4 * len(name) + len(content) for name, content in with_headers)

        def put() -> None:
            name = TopicPartition(topic, self._partition(topic, key, partition))
            if self._pending_bytes.get(name, 0) + size > BATCH_BYTES:
                self._send_batch(name)
            self._pending.setdefault(name, []).append(record)
            self._pending_bytes[name] = self._pending_bytes.get(name, 0) + size

        self._try(put)

    def send_offsets(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int],
        member: GroupMember = GroupMember(),  # noqa: B008 (it is immutable)
    ) -> None:
        """Add a group's offsets to the transaction.

        Takes:  offsets, the next offset for each (topic, partition).
        Raises: ClientError.
        """
        self._expect(_Stage.OPEN)
        self._try(lambda: self._session.send_offsets(group_id, offsets, member))

    def prepare(self) -> str:
        """Wait until all records are acknowledged. After that, the transaction can be committed or
        aborted.

        Gives:  the transaction's state, for the database; "" if nothing was sent.
        Raises: ClientError. The transaction is then not prepared and has to be aborted.
        """
        self._expect(_Stage.OPEN)

        def flush() -> None:
            for name in list(self._pending):
                self._send_batch(name)
            self._session.flush()

        self._try(flush)
        self._state = self._session.state if self._session.is_open else NOTHING_OPEN
        self._stage = _Stage.PREPARED
        return self._state

    def complete(self, state: str) -> bool:
        """End the prepared transaction: commit it if `state` is its state, otherwise abort it.

        Takes:  state, the state that the database has decided to commit, or "".
        Gives:  whether the transaction was committed; also False if no transaction is open.
        Raises: FencedError; ClientError if no broker answers in time. `recover` then shows whether
                the transaction is still open.
        """
        if state and not _STATE.fullmatch(state):
            raise ValueError(f"{state!r} is not a state of a transaction, such as '42:7'")
        if self._stage is _Stage.READY:
            return False
        self._expect(_Stage.PREPARED, _Stage.LEFT_OPEN)
        commit = state != NOTHING_OPEN and state == self._state
        self._end(commit=commit)
        return commit

    def commit(self) -> None:
        """Commit the transaction that this producer prepared, as `complete` does if it is called
        with the state of that transaction.
        """
        self._expect(_Stage.PREPARED)
        self._end(commit=True)

    def abort(self) -> None:
        """Abort the open transaction, whether it is prepared or not, also after an error. Without
        an open transaction, do nothing.

        Raises: ClientError.
        """
        if self._stage in (_Stage.PREPARED, _Stage.LEFT_OPEN):
            self._end(commit=False)
        elif self._stage in (_Stage.OPEN, _Stage.FAILED):
            # EndTxn cannot be used, since a Produce may be in flight. The new epoch fences the
            # Produce.
            self._forget()
            self._session.forget_connections()
            self._insist(lambda: self._session.init(keep=False))
            self._is_epoch_used = False
            self._stage = _Stage.READY

    # --- parts

    def _expect(self, *stages: _Stage) -> None:
        if self._stage not in stages:
            raise TwoPhaseError(self._stage.value)

    def _forget(self) -> None:
        """Discard the records that were not sent, and the known partition counts."""
        self._pending.clear()
        self._pending_bytes.clear()
        self._counts.clear()

    def _partition(self, topic: str, key: bytes | None, partition: int | None) -> int:
        """The partition of a record, as `send` chooses it."""
        if partition is not None:
            return partition
        if topic not in self._counts:
            self._counts[topic] = self._session.partition_count(topic)
        if key is not None:
            return partition_of(key, self._counts[topic])
        self._next_partition += 1
        return self._next_partition % self._counts[topic]

    def _send_batch(self, name: TopicPartition) -> None:
        """Send the collected records of a partition as one batch."""
        records = self._pending.pop(name, [])
        self._pending_bytes.pop(name, None)
        if records:
            batch = encode_batch(records, transactional=True)
            self._session.send(EncodedRecordBatch(name.topic, name.partition, len(records), batch))

    def _end(self, *, commit: bool) -> None:
        """Send EndTxn until a response arrives. The request can be repeated without harm."""
        if self._state != NOTHING_OPEN:
            self._insist(lambda: self._session.end(commit=commit))
        self._stage, self._state = _Stage.READY, NOTHING_OPEN

    def _try(self, step: Callable[[], T]) -> T:
        """Call a step of the transaction. If it fails, the transaction can only be aborted or
        recovered.
        """
        try:
            return step()
        except ClientError as error:
            self._stage = _Stage.FAILED
            raise self._final(error) from error
        except BaseException:
            self._stage = _Stage.FAILED
            raise

    def _insist(self, step: Callable[[], T]) -> T:
        """Repeat a step until it succeeds, or `patience_ms` has passed."""
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return step()
            except PassingError as error:
                self._session.forget_connections()
                if time.monotonic() > deadline:
                    raise self._final(error) from error
                time.sleep(RETRY_S)
            except PublishError as error:
                if error.code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                    raise ClientError(
                        f"{error}; or the broker has two-phase commit disabled: set "
                        "transaction.two.phase.commit.enable=true"
                    ) from error
                raise
            except BaseException:
                # The connections are also closed after a KeyboardInterrupt. Otherwise a late
                # response would be taken for the response to the next request.
                self._session.forget_connections()
                raise

    def _final(self, error: ClientError) -> ClientError:
        """The error to raise to the caller. A transient error, which was retried until the timeout,
        is replaced by a ClientError with advice.
        """
        if isinstance(error, PassingError):
            return ClientError(self._session.advice(error))
        return error


def _text_of(producer: Producer) -> str:
    return f"{producer.producer_id}:{producer.epoch}"
