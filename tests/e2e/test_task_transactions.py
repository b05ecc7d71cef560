"""Transactions that tasks write and a driver ends, on the real daemon, with and without two-phase
commit. Races between drivers are tested in tests/property/test_spark_lineage.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from helpers.e2e_clients import create_topic, eventually, unique, values_of
from helpers.kafka_proxy import (
    CUT,
    END_TXN,
    INIT_PRODUCER_ID,
    PASS_THEN_CUT,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Action,
    Frame,
    KafkaProxy,
    broker_behind_proxy,
)

from barnabas import LocalBroker
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write import task_transactions
from barnabas.spark_connector.write.deduplication import CommitNote
from barnabas.spark_connector.write.publishing import (
    Publication,
    Publisher,
    PublishError,
    PublishSettings,
)
from barnabas.spark_connector.write.task_parts import TaskParts
from barnabas.spark_connector.write.task_producer import TaskProducer, TaskWriter, open_task_writer
from barnabas.spark_connector.write.task_transactions import (
    AbortedPartError,
    KeptPartError,
    LostPartError,
    TaskTransaction,
    first_of,
)
from barnabas.spark_connector.write.transaction_coordinators import TransactionCoordinators
from barnabas.spark_connector.write.transactional_ids import TransactionalIds
from barnabas.spark_connector.write.transactional_producer import FencedError, TransactionalProducer

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

SETTINGS = PublishSettings(delivery_timeout_ms=600_000, transaction_timeout_ms=600_000)
HASTY = PublishSettings(delivery_timeout_ms=1, transaction_timeout_ms=600_000)
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}


VERSION_1 = {"barnabas.features": "transaction.version=1"}


@pytest.fixture(
    scope="module",
    params=[TWO_PHASE, {}, VERSION_1],
    ids=["two-phase", "plain", "plain in version 1"],
)
def behind(request: pytest.FixtureRequest) -> Iterator[tuple[LocalBroker, KafkaProxy]]:
    with broker_behind_proxy(settings=request.param) as pair:
        yield pair


@pytest.fixture
def world(behind: tuple[LocalBroker, KafkaProxy], tmp_path: Path) -> Iterator[World]:
    yield World(*behind, tmp_path)
    behind[1].clear()


class World:
    """A query: its topic, its driver's transactional id, and its tasks."""

    def __init__(self, broker: LocalBroker, proxy: KafkaProxy, root: Path) -> None:
        self.broker, self.proxy, self.root = broker, proxy, root
        self.topic, self.name = create_topic(proxy.bootstrap_servers, "parts", 2), unique("query")
        self.options = ClientOptions(
            (("127.0.0.1", proxy.port),), retry_backoff_ms=20, request_timeout_ms=600_000
        )
        self.keeps = broker.settings.get("transaction.two.phase.commit.enable") == "true"

    def encoded(self, *values: bytes, partition: int = 0) -> EncodedRecordBatch:
        """A transactional batch of these values."""
        now_ms = time.time_ns() // 1_000_000
        records = [NewRecord(b"k", value, now_ms) for value in values]
        data = encode_batch(records, transactional=True)
        return EncodedRecordBatch(self.topic, partition, len(values), data)

    def writer(self, batch_id: int = 0, run: str = "run", **given: Any) -> TaskWriter:
        """The writer of a task, with an open transaction."""
        settings = given.pop("settings", SETTINGS)
        ids = TransactionalIds(self.name, run, str(self.root / "ids"))
        writer = open_task_writer(
            self.options, settings, ids, self.name, batch_id, only_two_phase=False, **given
        )
        assert writer is not None
        return writer

    def task(
        self, *values: bytes, batch_id: int = 0, run: str = "run", **given: Any
    ) -> TaskTransaction:
        """Run a task that writes values, and ends."""
        writer = self.writer(batch_id, run, **given)
        writer.append(self.encoded(*values))
        return writer.close()

    def commit(
        self,
        batch_id: int,
        *transactions: TaskTransaction,
        run: str = "run",
        inline: tuple[bytes, ...] = (),
        settings: PublishSettings = SETTINGS,
        timeout_ms: int = 600_000,
        **given: Any,
    ) -> Publication:
        """Commit a batch as a driver does."""
        note = CommitNote(f"batch {batch_id}", self.topic)
        topics = frozenset({self.topic})
        parts = TaskParts(
            note, run, transactions, topics, (len(transactions), 0), timeout_ms, **given
        )
        with Publisher(self.options, settings) as publisher:
            return publisher.commit_once(
                transactional_id=self.name,
                group_id=self.name,
                batch_id=batch_id,
                metadata=note.to_text(),
                record_batches=lambda: [self.encoded(*inline)] if inline else [],
                parts=parts,
            )

    def dies_at(self, api_key: int, nth: int = 0, *, last: Action = CUT) -> None:
        """Apply `last` to the nth request of this API, and cut all later requests, as if the driver
        had died. The next driver has to do the rest.
        """
        left = [nth + 1]

        def on_request(frame: Frame) -> Action | None:
            if frame.api_key == api_key:
                left[0] -= 1
                if left[0] == 0:
                    return last
            return CUT if left[0] <= 0 else None

        self.proxy.on_request(None, on_request)

    @property
    def values(self) -> list[bytes]:
        return values_of(self.proxy.bootstrap_servers, self.topic)

    def open_ids(self) -> list[str]:
        """The transactional ids of the query's tasks whose transactions are open."""
        coordinators = TransactionCoordinators(self.options, SETTINGS, self.name)
        try:
            return coordinators.open_ids(first_of(self.name))
        finally:
            coordinators.close()


def test_a_batch_of_tasks_and_driver_is_committed_once(world: World) -> None:
    parts = world.task(b"a", b"b"), world.task(b"c")
    assert world.values == []
    done = world.commit(0, *parts, inline=(b"d",))
    assert done.record_count == 3 and not done.was_committed
    assert sorted(world.values) == [b"a", b"b", b"c", b"d"]
    assert world.open_ids() == []
    again = world.task(b"a", b"b", run="next"), world.task(b"c", run="next")
    assert world.commit(0, *again, run="next", inline=(b"d",)).was_committed
    assert sorted(world.values) == [b"a", b"b", b"c", b"d"]
    assert world.open_ids() == [], "those of the second run are aborted"


@pytest.mark.parametrize("nth", [0, 1, 2])
def test_the_next_driver_ends_the_transactions_that_a_driver_had_decided_on(
    world: World, nth: int
) -> None:
    """The driver loses the response to the decision, or to one of the EndTxns that follow."""
    parts = [world.task(b"%d" % number) for number in range(3)]
    world.dies_at(END_TXN, nth, last=PASS_THEN_CUT)
    with pytest.raises(PublishError, match="failed"):
        world.commit(0, *parts, settings=HASTY)
    world.proxy.clear()
    again = [world.task(b"%d" % number, run="next") for number in range(3)]
    assert world.commit(0, *again, run="next").was_committed
    assert sorted(world.values) == [b"0", b"1", b"2"] and world.open_ids() == []


def test_the_next_batch_ends_the_transactions_of_the_decided_batch_before_it(world: World) -> None:
    """The driver dies while it ends the transactions of a decided batch. The next batch ends the
    others, even if the option was changed so that the rows of this batch come from the driver, not
    from tasks.
    """
    parts = [world.task(b"%d" % number) for number in range(3)]
    world.dies_at(END_TXN, 2)
    with pytest.raises(PublishError):
        world.commit(0, *parts, settings=HASTY)
    world.proxy.clear()
    assert len(world.open_ids()) == 2
    assert not world.commit(1, run="next", inline=(b"3",)).was_committed
    assert sorted(world.values) == [b"0", b"1", b"2", b"3"] and world.open_ids() == []


def test_task_transactions_without_a_decision_are_aborted(world: World) -> None:
    """The driver dies before its decision. The next driver aborts the task's transaction if brokers
    keep it prepared; otherwise its timeout will end it.
    """
    lost = world.task(b"lost")
    world.dies_at(TXN_OFFSET_COMMIT)
    with pytest.raises(PublishError):
        world.commit(0, lost, settings=HASTY)
    world.proxy.clear()
    part = world.task(b"a", run="next")
    assert not world.commit(0, part, run="next").was_committed
    assert world.values == [b"a"] or not world.keeps
    assert world.open_ids() == ([] if world.keeps else [lost.transactional_id])


def turn_two_phase_commit(broker: LocalBroker, word: str) -> None:
    broker.settings["transaction.two.phase.commit.enable"] = word
    broker.restart()


@pytest.mark.parametrize("restarts", [False, True], ids=["driver", "off"])
def test_a_start_aborts_what_a_driver_kept_before_its_decision_whatever_the_mode_is_now(
    tmp_path: Path, restarts: bool
) -> None:
    """The driver dies when it has taken the timeout from its task's transaction, and its successor
    writes by itself, or its tasks do so on a broker that has two-phase commit turned off.
    """
    with broker_behind_proxy(settings=TWO_PHASE) as (broker, proxy):
        world = World(broker, proxy, tmp_path)
        lost = world.task(b"lost")
        world.dies_at(TXN_OFFSET_COMMIT)
        with pytest.raises(PublishError):
            world.commit(0, lost, settings=HASTY)
        proxy.clear()
        assert world.open_ids() == [lost.transactional_id]
        if restarts:
            turn_two_phase_commit(broker, "false")
            assert not world.commit(0, world.task(b"a", run="next"), run="next").was_committed
        else:
            done = world.commit(0, run="next", inline=(b"a",), looks_for_open=True)
            assert not done.was_committed
        assert world.values == [b"a"] and world.open_ids() == []


def test_what_was_decided_is_committed_once_two_phase_commit_is_allowed_again(
    tmp_path: Path,
) -> None:
    with broker_behind_proxy(settings=TWO_PHASE) as (broker, proxy):
        world = World(broker, proxy, tmp_path)
        part = world.task(b"a")
        world.dies_at(END_TXN, 1)
        with pytest.raises(PublishError):
            world.commit(0, part, settings=HASTY)
        proxy.clear()
        turn_two_phase_commit(broker, "false")
        with pytest.raises(
            KeptPartError, match=r"Set transaction\.two\.phase\.commit\.enable=true"
        ):
            world.commit(0, run="next", inline=(b"a",), looks_for_open=True)
        assert world.open_ids() == [part.transactional_id]
        turn_two_phase_commit(broker, "true")
        assert world.commit(0, run="next", inline=(b"a",), looks_for_open=True).was_committed
        assert world.values == [b"a"] and world.open_ids() == []


def test_a_driver_aborts_the_transactions_of_its_failed_attempt(world: World) -> None:
    """The driver aborts only transactions of its own run, not those of another driver."""
    parts = world.task(b"a"), world.task(b"b", run="other")
    with Publisher(world.options, SETTINGS) as publisher:
        publisher.abandon(
            transactional_id=world.name,
            group_id=world.name,
            parts=TaskParts(run="run", transactions=parts[:1]),
        )
    assert world.open_ids() == [parts[1].transactional_id]
    assert not world.commit(0, parts[1], run="other").was_committed
    assert world.values == [b"b"]


@pytest.mark.parametrize("is_decided", [True, False])
def test_a_fenced_driver_aborts_the_transactions_that_it_did_not_decide_on(
    world: World, monkeypatch: pytest.MonkeyPatch, is_decided: bool
) -> None:
    """The driver is fenced at each attempt. It takes the transactional id back from the other
    driver only a few times.
    """
    part = world.task(b"a")
    commit = TransactionalProducer.commit

    def overtaken(producer: TransactionalProducer, *arguments: Any) -> None:
        if is_decided:
            commit(producer, *arguments)
        TaskProducer(world.options, SETTINGS, world.name).open()
        raise FencedError("another driver has begun")

    monkeypatch.setattr(TransactionalProducer, "commit", overtaken)
    if is_decided:  # the driver's next attempt finds that the batch is committed
        assert world.commit(0, part).was_committed
        assert world.values == [b"a"] and world.open_ids() == []
        return
    with pytest.raises(PublishError, match="ended by others twice"):
        world.commit(0, part)
    assert world.open_ids() == [] and world.values == []
    takes = world.proxy.requests.count(INIT_PRODUCER_ID)
    with Publisher(world.options, SETTINGS) as publisher:
        publisher.abandon(
            transactional_id=world.name,
            group_id=world.name,
            parts=TaskParts(run="run", transactions=(part,)),
        )
    assert world.proxy.requests.count(INIT_PRODUCER_ID) == takes, "there is nothing to abort"


def test_decided_transactions_are_not_aborted_as_undecided(world: World) -> None:
    """A driver dies after its decision to commit. Another driver that was fenced aborts undecided
    transactions, which must not abort the decided ones. The next driver commits these, so that its
    own record (`again`) is not written.
    """
    parts = world.task(b"a"), world.task(b"b")
    world.dies_at(END_TXN, 2)
    with pytest.raises(PublishError):
        world.commit(0, *parts, settings=HASTY)
    world.proxy.clear()
    with Publisher(world.options, SETTINGS) as publisher:
        producer = publisher._producer_for(world.name, world.name)
        publisher._abort_as_fenced(producer, TaskParts(run="run", transactions=parts))
    assert len(world.open_ids()) == 1
    assert world.commit(0, run="next", looks_for_open=True, inline=(b"again",)).was_committed
    assert sorted(world.values) == [b"a", b"b"]


def test_a_task_attempt_outside_the_decision_is_aborted_and_fenced(world: World) -> None:
    loser = world.writer()
    loser.append(world.encoded(b"lost"))
    loser._producer.finish()
    assert not world.commit(0, world.task(b"a")).was_committed
    assert world.values == [b"a"] and world.open_ids() == []
    loser.append(world.encoded(b"late"))
    with pytest.raises(FencedError):
        loser.close()
    assert world.values == [b"a"]


def test_a_task_transaction_that_is_no_longer_open_fails_the_batch(world: World) -> None:
    """Another producer with the same transactional id has aborted the task's transaction, so its
    rows are lost and the batch must not be committed.
    """
    part = world.task(b"a")
    usurper = TaskProducer(world.options, SETTINGS, part.transactional_id)
    usurper.open()
    usurper.write([world.encoded(b"of another attempt")])
    usurper.finish()
    with pytest.raises(LostPartError, match=r"2 tasks' transactions 1 .* no longer open"):
        world.commit(0, world.task(b"b"), part)
    assert world.values == []
    part = world.task(b"a")
    world.commit(0, part, looks_for_open=True)
    assert world.open_ids() == [] and world.values == [b"a"]


def test_a_transactional_id_is_reused_once_its_transaction_has_ended(world: World) -> None:
    first = world.task(b"a", batch_id=0)
    same_batch = world.task(b"b", batch_id=0)
    while_open = world.task(b"c", batch_id=1)
    names = {each.transactional_id for each in (first, same_batch, while_open)}
    assert len(names) == 3
    world.commit(0, first, same_batch, while_open)
    again = [world.task(b"%d" % number, batch_id=2) for number in range(2)]
    assert {each.transactional_id for each in again} <= names
    world.commit(2, *again)
    assert sorted(world.values) == [b"0", b"1", b"a", b"b", b"c"]


def test_a_task_survives_lost_responses_and_a_broker_restart(world: World) -> None:
    seen: list[int] = []

    def lose_response(frame: Frame) -> Any:
        if len(seen) < 2:
            seen.append(frame.connection)
            return PASS_THEN_CUT
        return None

    world.proxy.on_request(PRODUCE, lose_response)
    writer = world.writer()
    for number in range(5):
        writer.append(world.encoded(b"%d" % number))
        if number == 2:
            world.broker.kill()
            world.broker.restart()
    part = writer.close()
    assert len(seen) == 2, "two responses were lost"
    world.commit(0, part)
    assert world.values == [b"%d" % number for number in range(5)]


def test_a_long_list_of_transactions_is_noted_in_several_partitions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver notes the transactions of its tasks in the metadata of the group's offsets, at most
    `NOTE_BYTES` for each partition. After its death, the next driver reads the list there and
    commits all of them. A list that does not fit is an error.
    """
    monkeypatch.setattr(task_transactions, "NOTE_BYTES", 40)
    parts = [world.task(b"%d" % number) for number in range(3)]
    world.dies_at(END_TXN, 2)
    with pytest.raises(PublishError):
        world.commit(0, *parts, settings=HASTY)
    world.proxy.clear()
    assert world.commit(0, run="next", looks_for_open=True, inline=(b"again",)).was_committed
    assert sorted(world.values) == [b"0", b"1", b"2"]
    too_many = [world.task(b"%d" % number, batch_id=1) for number in range(9)]
    with pytest.raises(PublishError, match=r"too many tasks .*fewer tasks \(coalesce\)"):
        world.commit(1, *too_many)


def test_a_batch_whose_transactions_may_time_out_is_not_decided_on(world: World) -> None:
    """Without two-phase commit a timeout could end the transactions between the decision and their
    EndTxn.
    """
    # The transaction looks 46 s old, more than three quarters of its timeout of 60 s.
    part = world.task(b"a")._replace(began_ms=time.time_ns() // 1_000_000 - 46_000)
    if world.keeps:
        world.commit(0, part, timeout_ms=60_000)
        return
    with pytest.raises(LostPartError, match=r"46 s ago.* Raise that"):
        world.commit(0, part, timeout_ms=60_000)
    assert world.values == []
    world.commit(0, part)
    assert world.values == [b"a"]


def test_rows_whose_transaction_timed_out_after_the_decision_are_reported_as_lost(
    world: World,
) -> None:
    """Without two-phase commit, the task's transaction times out after the decision, and the next
    driver reports its rows as lost. With two-phase commit, the transaction does not time out, and
    its rows are committed.
    """
    brief = PublishSettings(transaction_timeout_ms=3_000)
    part = world.task(b"a", settings=brief)
    world.dies_at(END_TXN, 1)
    with pytest.raises(PublishError):
        world.commit(0, part, settings=HASTY)
    world.proxy.clear()
    witness = world.task(b"in no decision", run="other", settings=brief).transactional_id
    eventually(lambda: witness not in world.open_ids(), what="the timeout")
    if world.keeps:
        assert world.commit(0, run="next", inline=(b"again",)).was_committed
        assert world.values == [b"a"]
        return
    assert part.transactional_id not in world.open_ids() or eventually(
        lambda: not world.open_ids(), what="the timeout"
    )
    with pytest.raises(AbortedPartError, match="after the batch was decided"):
        world.commit(1, run="next", inline=(b"b",))
    assert not world.commit(1, run="next", inline=(b"b",), tolerates_aborts=True).was_committed
    assert world.values == [b"b"]


def test_tasks_write_by_default_only_with_two_phase_commit(world: World) -> None:
    ids = TransactionalIds(world.name, "run", str(world.root / "ids"))
    writer = open_task_writer(world.options, SETTINGS, ids, world.name, 0, only_two_phase=True)
    assert (writer is not None) == world.keeps
    if writer is not None:
        writer.append(world.encoded(b"a"))
        writer.discard()
        assert world.open_ids() == []


def test_opening_a_task_writer_without_brokers_is_an_error_with_the_query_name(
    tmp_path: Path,
) -> None:
    options = ClientOptions((("127.0.0.1", 1),), retry_backoff_ms=1)
    ids = TransactionalIds("query", "run", str(tmp_path))
    with pytest.raises(ClientError, match=r"preparing to write for 'query' failed"):
        open_task_writer(options, HASTY, ids, "query", 0, only_two_phase=True)
