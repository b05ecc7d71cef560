"""Publishing batches to the real daemon. Each batch is written once and completely, whatever fails
meanwhile.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from confluent_kafka.admin import AdminClient
from helpers.e2e_clients import (
    PATIENCE_S,
    committed_offset,
    create_named_topic,
    create_topic,
    eventually,
    producer,
    read_all,
    transact,
    unique,
    values_of,
    wait_until_ready,
)
from helpers.kafka_proxy import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    CUT,
    END_TXN,
    INIT_PRODUCER_ID,
    METADATA,
    OFFSET_FETCH,
    PASS_THEN_CUT,
    PRODUCE,
    SWALLOW,
    TXN_OFFSET_COMMIT,
    KafkaProxy,
    broker_behind_proxy,
    hold,
    once,
)
from helpers.ports import refusing_port

from barnabas import LocalBroker
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.protocol.errors import Code
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write.deduplication import (
    CommitNote,
    CommittedBatch,
    Decision,
    GroupState,
)
from barnabas.spark_connector.write.publishing import (
    BegunNotes,
    Publication,
    Publisher,
    PublishError,
    PublishSettings,
)
from barnabas.spark_connector.write.transactional_producer import TransactionalProducer

pytestmark = pytest.mark.e2e

# These timeouts are longer than any test takes, however slow the machine is.
SETTINGS = PublishSettings(delivery_timeout_ms=600_000, transaction_timeout_ms=600_000)
PATIENT = {"request_timeout_ms": 600_000}


def encoded(
    topic: str, partition: int, *values: bytes, key: bytes | None = b"k"
) -> EncodedRecordBatch:
    """A transactional batch of these values."""
    # The records have the current time, since records older than retention.ms may expire at any
    # time.
    now_ms = time.time_ns() // 1_000_000
    records = [NewRecord(key, value, now_ms) for value in values]
    return EncodedRecordBatch(
        topic, partition, len(values), encode_batch(records, transactional=True)
    )


def options_of(port: int, **given: Any) -> ClientOptions:
    return ClientOptions((("127.0.0.1", port),), **{"retry_backoff_ms": 20, **PATIENT, **given})


def publish_to(
    port: int,
    name: str,
    batch_id: int,
    *record_batches: EncodedRecordBatch,
    settings: PublishSettings = SETTINGS,
) -> Publication:
    """Publish the batches as micro-batch `batch_id` of the query `name`."""
    with Publisher(options_of(port), settings) as publisher:
        return publisher.commit_once(
            transactional_id=name,
            group_id=name,
            batch_id=batch_id,
            metadata=f"batch {batch_id}",
            record_batches=lambda: record_batches,
        )


@pytest.fixture(scope="module")
def behind() -> Iterator[tuple[LocalBroker, KafkaProxy]]:
    """A broker behind a proxy, for the tests that inject a failure at an exact point."""
    with broker_behind_proxy() as pair:
        yield pair


@pytest.fixture
def proxied(behind: tuple[LocalBroker, KafkaProxy]) -> Iterator[tuple[LocalBroker, KafkaProxy]]:
    yield behind
    behind[1].clear()


def test_a_batch_is_published_once(broker: LocalBroker, servers: str) -> None:
    topic, name = create_topic(servers, "published", 3), unique("query")
    record_batches = [
        encoded(topic, 0, b"a", b"b"),
        encoded(topic, 2, b"c"),
        encoded(topic, 0, b"d"),
    ]
    size = sum(len(batch.data) for batch in record_batches)
    assert publish_to(broker.port, name, 0, *record_batches) == Publication(
        was_committed=False, record_count=4, byte_count=size, attempts=1
    )
    assert publish_to(broker.port, name, 0, *record_batches) == Publication(
        was_committed=True, record_count=0, byte_count=0, attempts=1
    )
    assert values_of(servers, topic) == [b"a", b"b", b"d", b"c"]
    assert committed_offset(servers, name, topic) == 1
    assert not publish_to(broker.port, name, 1, encoded(topic, 1, b"e")).was_committed
    assert publish_to(broker.port, name, 0, *record_batches).was_committed, (
        "an older batch came again after a newer one"
    )
    assert values_of(servers, topic) == [b"a", b"b", b"d", b"e", b"c"]


def test_a_repeated_batch_is_recognised_whichever_topics_its_records_go_to(
    broker: LocalBroker, servers: str
) -> None:
    first, second, name = (
        create_topic(servers, "first"),
        create_topic(servers, "second"),
        unique("query"),
    )
    publish_to(broker.port, name, 0, encoded(first, 0, b"a"))
    publish_to(broker.port, name, 1, encoded(second, 0, b"b"))
    assert publish_to(broker.port, name, 1, encoded(first, 0, b"b")).was_committed
    assert not publish_to(broker.port, name, 2, encoded(first, 0, b"c")).was_committed
    assert values_of(servers, first) == [b"a", b"c"]


def test_the_begun_note_outlives_the_groups_offsets() -> None:
    """After days without a batch, the offsets of the query's first group expire. The begun note,
    which is in a second group, remains, even after a restart.
    """
    with LocalBroker(control=True) as broker:
        topic = create_topic(broker.bootstrap_servers, "quiet", retention_ms="-1")
        seen: list[GroupState] = []

        def publish_as(batch_id: int, *, announces: bool = False) -> None:
            def decide(state: GroupState) -> Decision:
                seen.append(state)
                is_first = announces and not state.committed
                return Decision(True, True, frozenset({topic}), announces=is_first)

            with Publisher(options_of(broker.port), SETTINGS) as publisher:
                publisher.commit_once(
                    transactional_id="stream",
                    group_id="stream",
                    batch_id=batch_id,
                    metadata=f"batch {batch_id}",
                    record_batches=lambda: [encoded(topic, 0, b"%d" % batch_id)],
                    decide=decide,
                    begun=BegunNotes("announced", lambda: None),
                )

        publish_as(3, announces=True)
        noted = {topic: CommittedBatch(4, CommitNote("batch 3"))}
        announced = {topic: CommittedBatch(3, CommitNote("announced"))}
        assert seen == [GroupState(), GroupState(announced)]
        for _ in range(2):
            seen.clear()
            broker.control.advance(days=8)
            eventually(lambda: forgotten(broker.bootstrap_servers), what="the group's retention")
            broker.restart()
        publish_as(9, announces=True)
        assert seen[0] == GroupState({}, noted)
        assert values_of(broker.bootstrap_servers, topic) == [b"3", b"9"]


def forgotten(servers: str) -> bool:
    """Whether the offsets of the stream's group have expired."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    listed = admin.list_consumer_groups().result(60)
    return "stream" not in {each.group_id for each in listed.valid}


def test_nothing_is_sent_for_no_batches(servers: str) -> None:
    with Publisher(options_of(1), SETTINGS) as publisher:  # an address at which no broker listens
        done = publisher.commit_once(
            transactional_id="x", group_id="x", batch_id=0, metadata="", record_batches=lambda: ()
        )
    assert done == Publication(was_committed=False, record_count=0, byte_count=0, attempts=0)


def test_a_topic_is_made_as_for_any_producer(broker: LocalBroker, servers: str) -> None:
    topic = unique("new")
    publish_to(broker.port, unique("query"), 0, encoded(topic, 0, b"a"))
    assert values_of(servers, topic) == [b"a"]


def test_publishing_to_a_missing_topic_or_partition_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "barnabas.spark_connector.write.transactional_producer.UNKNOWN_TOPIC_PATIENCE_MS", 200
    )
    with LocalBroker(settings={"auto.create.topics.enable": "false"}) as broker:
        topic = create_topic(broker.bootstrap_servers, "there")
        name = unique("query")
        with pytest.raises(
            PublishError,
            match=r"topic 'missing' does not exist, and the broker does not create it .*"
            r"create it first",
        ):
            publish_to(broker.port, name, 0, encoded(topic, 0, b"a"), encoded("missing", 0, b"b"))
        with pytest.raises(
            PublishError,
            match=rf"partition {topic}-7 does not exist: topic '{topic}' has 1 partitions",
        ):
            publish_to(broker.port, name, 0, encoded(topic, 0, b"a"), encoded(topic, 7, b"b"))
        assert values_of(broker.bootstrap_servers, topic) == []
        publish_to(broker.port, name, 0, encoded(topic, 0, b"c"))
        assert values_of(broker.bootstrap_servers, topic) == [b"c"]


def _check_refused_for_good(
    settings: dict[str, str],
    wrong: list[EncodedRecordBatch],
    says: str,
    broker: LocalBroker,
    servers: str,
    code: Code,
) -> None:
    """Publish a valid batch to one topic, and an invalid one to a topic with `settings`. Check that
    the error has `code` and `says`, and that nothing of either batch is visible or committed.
    """
    good, bad, name = (
        create_topic(servers, "good"),
        create_topic(servers, "bad", **settings),
        unique("query"),
    )
    wrong = [batch._replace(topic=bad) for batch in wrong]
    with pytest.raises(PublishError, match=rf"partition {bad}-0: {code.name}.*{says}") as raised:
        publish_to(broker.port, name, 0, encoded(good, 0, b"a"), *wrong)
    assert raised.value.code == code
    # A reader gets to the end, since the transaction was ended at once, not by its timeout.
    transact_one(servers, good, b"later")
    assert values_of(servers, good) == [b"later"] and values_of(servers, bad) == []
    assert values_of(servers, good, committed=False) in ([b"a", b"later"], [b"later"])
    # -1001 is librdkafka's OFFSET_INVALID, which means that the group has no offset.
    assert committed_offset(servers, name, good) == committed_offset(servers, name, bad) == -1001


def transact_one(servers: str, topic: str, value: bytes) -> None:
    """Commit a transaction with one record."""
    client = producer(servers, transactional_id=unique("other"))
    client.init_transactions(PATIENCE_S)
    transact(client, topic, [value])


def test_a_batch_that_is_too_large_is_refused_whole(broker: LocalBroker, servers: str) -> None:
    _check_refused_for_good(
        {"max_message_bytes": "1000"},
        [encoded("", 0, bytes(2000))],
        "raise max.message.bytes",
        broker,
        servers,
        Code.MESSAGE_TOO_LARGE,
    )


def test_records_that_a_topic_does_not_take_are_refused_whole(
    broker: LocalBroker, servers: str
) -> None:
    wrong = [encoded("", 0, b"x", key=None)]
    _check_refused_for_good(
        {"cleanup_policy": "compact"},
        wrong,
        "a compacted topic needs a key",
        broker,
        servers,
        Code.INVALID_RECORD,
    )


def test_a_transaction_timeout_that_the_broker_refuses(broker: LocalBroker, servers: str) -> None:
    topic = create_topic(servers, "timeout")
    settings = PublishSettings(transaction_timeout_ms=2**31 - 1)
    with pytest.raises(
        PublishError, match=r"INVALID_TRANSACTION_TIMEOUT: lower kafka.transaction.timeout.ms"
    ):
        publish_to(broker.port, unique("query"), 0, encoded(topic, 0, b"a"), settings=settings)


def test_a_batch_with_a_wrong_checksum_fails_the_whole_publication(
    broker: LocalBroker, servers: str
) -> None:
    topic, name = create_topic(servers, "damaged", 2), unique("query")
    bad = bytearray(encoded(topic, 1, b"x").data)
    bad[-1] ^= 1
    with pytest.raises(
        PublishError, match=rf"a batch for {topic}-1 is damaged: its checksum is wrong"
    ):
        publish_to(
            broker.port, name, 0, encoded(topic, 0, b"a"), EncodedRecordBatch(topic, 1, 1, bad)
        )
    transact_one(servers, topic, b"later")
    assert values_of(servers, topic) == [b"later"]


def test_an_error_of_the_batches_aborts_the_transaction_and_is_raised(
    broker: LocalBroker, servers: str
) -> None:
    topic, name = create_topic(servers, "raising"), unique("query")

    def record_batches() -> Iterator[EncodedRecordBatch]:
        yield encoded(topic, 0, b"a")
        yield encoded(topic, 0, b"b")
        raise FileNotFoundError("gone")

    with Publisher(options_of(broker.port), SETTINGS) as publisher:
        with pytest.raises(FileNotFoundError, match="gone"):
            publisher.commit_once(
                transactional_id=name,
                group_id=name,
                batch_id=0,
                metadata="",
                record_batches=record_batches,
            )
        transact_one(servers, topic, b"later")
        assert values_of(servers, topic) == [b"later"]
        again = publisher.commit_once(
            transactional_id=name,
            group_id=name,
            batch_id=0,
            metadata="",
            record_batches=lambda: [encoded(topic, 0, b"c")],
        )
    assert not again.was_committed
    assert values_of(servers, topic) == [b"later", b"c"]


def test_batches_are_written_once_though_transaction_version_changes_and_brokers_are_killed(
    tmp_path: Path,
) -> None:
    """The broker is killed during each batch, and restarts with another level of
    transaction.version.
    """
    name, topic = "query", "changing"
    for number, level in enumerate((1, 2, 1, 0, 2, 2)):
        features = {"barnabas.features": f"transaction.version={level}"}
        with LocalBroker(tmp_path / "data", settings=features) as broker:
            if not number:
                create_named_topic(broker.bootstrap_servers, topic, 2)
            wait_until_ready(broker.bootstrap_servers)
            value = b"%d" % number
            batches = encoded(topic, 0, value), encoded(topic, 1, value)
            publish_to(broker.port, name, number, *batches)
            cut_off = TransactionalProducer(options_of(broker.port), SETTINGS, name, name)
            cut_off.begin()
            for batch in (encoded(topic, 0, b"cut off"), encoded(topic, 1, b"cut off")):
                cut_off.send(batch)
            if number % 2:
                cut_off.abort()
            broker.kill()
            cut_off.forget_connections()
            broker.restart()
            wait_until_ready(broker.bootstrap_servers)
            # The repeated batch also ends the transaction that was cut off.
            assert publish_to(broker.port, name, number, *batches).was_committed
            seen = values_of(broker.bootstrap_servers, topic)
            assert seen == 2 * [b"%d" % done for done in range(number + 1)]


WHEN = pytest.mark.parametrize("when", ["lost", "worked on", "answer lost"])
REQUESTS = [INIT_PRODUCER_ID, OFFSET_FETCH, METADATA, PRODUCE, TXN_OFFSET_COMMIT, END_TXN]


@pytest.fixture(scope="module")
def behind_at_level_1() -> Iterator[tuple[LocalBroker, KafkaProxy]]:
    with broker_behind_proxy({"barnabas.features": "transaction.version=1"}) as pair:
        yield pair


@pytest.mark.parametrize("api_key", REQUESTS)
@WHEN
def test_a_batch_is_written_once_though_the_connection_ends_at_any_request(
    proxied: tuple[LocalBroker, KafkaProxy], api_key: int, when: str
) -> None:
    end_a_connection(*proxied, api_key, when)


@pytest.mark.parametrize("api_key", [*REQUESTS, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN])
@WHEN
def test_a_batch_is_written_once_though_the_connection_ends_at_transaction_version_1(
    behind_at_level_1: tuple[LocalBroker, KafkaProxy], api_key: int, when: str
) -> None:
    end_a_connection(*behind_at_level_1, api_key, when)


def end_a_connection(broker: LocalBroker, proxy: KafkaProxy, api_key: int, when: str) -> None:
    """Publish a batch while the connection ends at the first request with `api_key`: before the
    broker gets the request ("lost"), after the broker got it, or before its response arrives
    ("answer lost"). The batch is written once, in the second attempt.
    """
    topic, name = create_topic(broker.bootstrap_servers, "cut", 2), unique("query")
    publish_to(proxy.port, name, 0, encoded(topic, 0, b"a"))
    if when == "answer lost":
        proxy.on_response(api_key, once(CUT))
    else:
        proxy.on_request(api_key, once(CUT if when == "lost" else PASS_THEN_CUT))
    done = publish_to(proxy.port, name, 1, encoded(topic, 0, b"b"), encoded(topic, 1, b"c"))
    assert done.attempts == 2
    if api_key == END_TXN and when == "answer lost":
        assert done.was_committed
    assert values_of(broker.bootstrap_servers, topic) == [b"a", b"b", b"c"]
    assert committed_offset(broker.bootstrap_servers, name, topic) == 2


def test_a_commit_whose_response_never_comes_is_recognised_as_committed(
    proxied: tuple[LocalBroker, KafkaProxy],
) -> None:
    broker, proxy = proxied
    topic, name = create_topic(broker.bootstrap_servers, "silent"), unique("query")
    publish_to(proxy.port, name, 0, encoded(topic, 0, b"a"))
    proxy.on_response(END_TXN, once(SWALLOW))
    with Publisher(options_of(proxy.port, request_timeout_ms=1000), SETTINGS) as publisher:
        record_batches = [encoded(topic, 0, b"b")]
        done = publisher.commit_once(
            transactional_id=name,
            group_id=name,
            batch_id=1,
            metadata="",
            record_batches=lambda: record_batches,
        )
    assert done.was_committed and done.attempts >= 2
    assert values_of(broker.bootstrap_servers, topic) == [b"a", b"b"]


def test_a_late_end_of_a_transaction_has_no_effect_after_another_driver_took_over(
    proxied: tuple[LocalBroker, KafkaProxy],
) -> None:
    """The first driver's EndTxn is held while a second driver publishes the same batch and the
    next. The first driver then finds that its batch was committed.
    """
    broker, proxy = proxied
    topic, name = create_topic(broker.bootstrap_servers, "late"), unique("query")
    release, reached = threading.Event(), threading.Event()
    proxy.on_request(END_TXN, once(hold(release, reached, timeout_s=600)))
    outcomes: list[Publication] = []
    record_batches = [encoded(topic, 0, b"a"), encoded(topic, 0, b"b")]
    zombie = threading.Thread(
        target=lambda: outcomes.append(publish_to(proxy.port, name, 0, *record_batches))
    )
    zombie.start()
    assert reached.wait(PATIENCE_S)
    assert not publish_to(proxy.port, name, 0, *record_batches).was_committed
    assert not publish_to(proxy.port, name, 1, encoded(topic, 0, b"c")).was_committed
    release.set()
    zombie.join(PATIENCE_S)
    assert [outcome.was_committed for outcome in outcomes] == [True]
    assert values_of(broker.bootstrap_servers, topic) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("api_key", [PRODUCE, END_TXN])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_batch_is_written_once_though_the_broker_is_killed_and_restarted(
    api_key: int, when: str
) -> None:
    with broker_behind_proxy() as (broker, proxy):
        topic, name = create_topic(broker.bootstrap_servers, "killed"), unique("query")
        publish_to(proxy.port, name, 0, encoded(topic, 0, b"a"))

        def crash(frame: object) -> None:
            broker.kill()
            broker.restart()

        (proxy.on_request if when == "before" else proxy.on_response)(api_key, once(crash))
        done = publish_to(proxy.port, name, 1, encoded(topic, 0, b"b"))
        assert done.attempts >= 2 or when == "after"
        assert publish_to(proxy.port, name, 1, encoded(topic, 0, b"b")).was_committed
        wait_until_ready(broker.bootstrap_servers)
        assert values_of(broker.bootstrap_servers, topic) == [b"a", b"b"]


def test_a_publisher_survives_restarts_during_a_batch_and_between_batches() -> None:
    with LocalBroker() as broker:
        topic, name = create_topic(broker.bootstrap_servers, "restarted"), unique("query")
        crashes = 1

        def record_batches() -> Iterator[EncodedRecordBatch]:
            nonlocal crashes
            yield encoded(topic, 0, b"a")
            yield encoded(topic, 0, b"b")
            if crashes:
                crashes -= 1
                broker.kill()
                broker.restart()
            yield encoded(topic, 0, b"c")

        with Publisher(options_of(broker.port), SETTINGS) as publisher:
            done = publisher.commit_once(
                transactional_id=name,
                group_id=name,
                batch_id=0,
                metadata="",
                record_batches=record_batches,
            )
            assert done.attempts == 2 and done.record_count == 3
            broker.kill()
            broker.restart()
            again = publisher.commit_once(
                transactional_id=name,
                group_id=name,
                batch_id=1,
                metadata="",
                record_batches=lambda: [encoded(topic, 0, b"d")],
            )
            assert again.attempts == 1, (
                "connections that the broker closed while they were idle are not used again"
            )
        assert values_of(broker.bootstrap_servers, topic) == [b"a", b"b", b"c", b"d"]


def test_publishing_without_any_broker_fails_after_the_delivery_timeout() -> None:
    says = (
        r"publishing batch 1 as 'gone' failed .* times.*"
        r"no broker of kafka.bootstrap.servers can be reached"
    )
    with refusing_port() as port, pytest.raises(ClientError, match=says):
        publish_to(
            port,
            "gone",
            1,
            encoded("t", 0, b"b"),
            settings=PublishSettings(delivery_timeout_ms=200),
        )


@pytest.mark.parametrize("same_batch", [True, False])
def test_a_publisher_that_is_fenced_by_one_with_the_same_batch_finds_it_committed(
    broker: LocalBroker, servers: str, same_batch: bool
) -> None:
    """Another publisher commits batch 0 while the first is writing it, and, unless `same_batch`,
    also batch 1. The first is fenced, and its second attempt finds that the batch is committed.
    """
    topic, name = create_topic(servers, "fenced"), unique("query")
    others = 1

    def record_batches() -> Iterator[EncodedRecordBatch]:
        nonlocal others
        yield encoded(topic, 0, b"a")
        yield encoded(topic, 0, b"b")
        if others:
            others -= 1
            publish_to(broker.port, name, 0, encoded(topic, 0, b"a", b"b", b"c"))
            if not same_batch:
                publish_to(broker.port, name, 1, encoded(topic, 0, b"d"))
        yield encoded(topic, 0, b"c")

    with Publisher(options_of(broker.port), SETTINGS) as publisher:
        done = publisher.commit_once(
            transactional_id=name,
            group_id=name,
            batch_id=0,
            metadata="",
            record_batches=record_batches,
        )
    assert done == Publication(was_committed=True, record_count=0, byte_count=0, attempts=2)
    assert values_of(servers, topic) == [b"a", b"b", b"c"] + [b"d"] * (not same_batch)


def test_a_publisher_that_is_fenced_in_each_attempt_fails(
    broker: LocalBroker, servers: str
) -> None:
    """In each attempt another producer begins a session with the same transactional id."""
    topic, name = create_topic(servers, "duel"), unique("query")

    def record_batches() -> Iterator[EncodedRecordBatch]:
        yield encoded(topic, 0, b"a")
        producer(servers, transactional_id=name).init_transactions(PATIENCE_S)
        yield encoded(topic, 0, b"b")

    with (
        Publisher(options_of(broker.port), SETTINGS) as publisher,
        pytest.raises(
            PublishError,
            match=r"ended by others twice.*another driver publishes.*stop one.*"
            r"kafka.transaction.timeout.ms",
        ),
    ):
        publisher.commit_once(
            transactional_id=name,
            group_id=name,
            batch_id=0,
            metadata="",
            record_batches=record_batches,
        )
    assert values_of(servers, topic) == []


def test_a_batch_whose_transaction_times_out_is_published_in_a_second_attempt(
    broker: LocalBroker, servers: str
) -> None:
    topic, name = create_topic(servers, "slow"), unique("query")
    slow = 1

    def record_batches() -> Iterator[EncodedRecordBatch]:
        nonlocal slow
        yield encoded(topic, 0, b"a")
        yield encoded(topic, 0, b"b")
        if slow:
            slow -= 1
            eventually(
                lambda: values_of(servers, topic, committed=False),
                what="the first batch is in the log",
            )
            transact_one(servers, topic, b"x")  # readable once the previous transaction has ended
            eventually(lambda: values_of(servers, topic), what="the broker ends the transaction")
            assert publisher._producer is not None
            publisher._producer._settings = (
                SETTINGS  # settings for the next attempt, which must not time out
            )
        yield encoded(topic, 0, b"c")

    with Publisher(
        options_of(broker.port), PublishSettings(transaction_timeout_ms=2000)
    ) as publisher:
        done = publisher.commit_once(
            transactional_id=name,
            group_id=name,
            batch_id=0,
            metadata="",
            record_batches=record_batches,
        )
    assert (done.was_committed, done.attempts) == (False, 2)
    assert values_of(servers, topic) == [b"x", b"a", b"b", b"c"]


def test_each_batch_is_written_once_though_three_drivers_race(
    broker: LocalBroker, servers: str
) -> None:
    topic, name = create_topic(servers, "race", 4), unique("query")
    start = threading.Barrier(3)
    outcomes: list[Publication | Exception] = []

    def drive() -> None:
        record_batches = [encoded(topic, index % 4, b"%d" % index) for index in range(40)]
        start.wait(PATIENCE_S)
        with Publisher(options_of(broker.port), SETTINGS) as publisher:
            for batch_id in range(5):
                try:
                    outcomes.append(
                        publisher.commit_once(
                            transactional_id=name,
                            group_id=name,
                            batch_id=batch_id,
                            metadata="",
                            record_batches=lambda: record_batches,
                        )
                    )
                except PublishError as error:
                    outcomes.append(error)
                    return

    threads = [threading.Thread(target=drive) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    published = [
        outcome
        for outcome in outcomes
        if isinstance(outcome, Publication) and not outcome.was_committed
    ]
    assert all(
        "another driver" in str(outcome) for outcome in outcomes if isinstance(outcome, Exception)
    )
    batches_there = committed_offset(servers, name, topic)
    assert len(read_all(servers, topic)) == 40 * batches_there and batches_there >= len(published)
    assert batches_there == 5, outcomes


def test_a_thousand_partitions_in_one_publish() -> None:
    with LocalBroker() as wide:
        topic, name = create_topic(wide.bootstrap_servers, "wide", 1000), unique("query")
        done = publish_to(
            wide.port, name, 0, *(encoded(topic, index, b"%d" % index) for index in range(1000))
        )
        assert (done.record_count, done.attempts) == (1000, 1)
        assert values_of(wide.bootstrap_servers, topic) == [b"%d" % index for index in range(1000)]
        wide.kill()  # killed, since a clean stop with this many partitions takes too long


def test_two_hundred_megabytes_need_little_memory(broker: LocalBroker, servers: str) -> None:
    topic, name = create_topic(servers, "large", 4), unique("query")
    template = encoded(topic, 0, *[bytes(1000)] * 512).data

    def record_batches() -> Iterator[EncodedRecordBatch]:
        for index in range(400):
            yield EncodedRecordBatch(topic, index % 4, 512, bytearray(template))

    with Publisher(options_of(broker.port), SETTINGS) as publisher:
        tracemalloc.start()
        try:
            done = publisher.commit_once(
                transactional_id=name,
                group_id=name,
                batch_id=0,
                metadata="",
                record_batches=record_batches,
            )
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert done.byte_count > 200_000_000 and done.attempts == 1
    assert peak < 8 << 20, f"{peak} bytes at once"
    assert counted(servers, topic) == dict.fromkeys(range(4), 100 * 512)


def counted(servers: str, topic: str) -> dict[int, int]:
    """The number of committed records by partition, counted without keeping them in memory."""
    counts: dict[int, int] = {}
    for seen in read_all(servers, topic, timeout_s=120):
        counts[seen.partition] = counts.get(seen.partition, 0) + 1
    return counts


def test_a_publisher_works_after_pickling_and_after_a_fork(
    broker: LocalBroker, servers: str
) -> None:
    topic, name = create_topic(servers, "forked"), unique("query")

    def publish_with(publisher: Publisher, batch_id: int) -> Publication:
        batch = encoded(topic, 0, b"%d" % batch_id)
        return publisher.commit_once(
            transactional_id=name,
            group_id=name,
            batch_id=batch_id,
            metadata="",
            record_batches=lambda: [batch],
        )

    with Publisher(options_of(broker.port), SETTINGS) as publisher:
        publish_with(publisher, 0)
        with pickle.loads(pickle.dumps(publisher)) as copy:
            publish_with(copy, 1)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # the warning that this process has threads, which belong to other clients
            child = os.fork()
        if not child:
            code = 1
            try:
                code = 0 if publish_with(publisher, 2).attempts == 1 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (
            not publish_with(publisher, 3).was_committed
            # The publication may take two attempts, since a takeover of the transactional id may
            # close the former connection.
        )
    assert values_of(servers, topic) == [b"0", b"1", b"2", b"3"]
