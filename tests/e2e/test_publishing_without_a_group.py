"""Publishing a batch that has no number. It leaves no consumer group, and is written once although
no group's offset shows whether an attempt was committed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow")

from helpers.e2e_clients import admin, create_topic, eventually, unique, values_of
from helpers.kafka_proxy import (
    ADD_PARTITIONS_TO_TXN,
    CUT,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PASS_THEN_CUT,
    PRODUCE,
    Action,
    Frame,
    KafkaProxy,
    broker_behind_proxy,
    once,
)

from barnabas import LocalBroker
from barnabas.client.options import ClientOptions
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write.publishing import (
    Publication,
    Publisher,
    PublishError,
    PublishSettings,
)

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

PATIENT = PublishSettings(delivery_timeout_ms=600_000, transaction_timeout_ms=600_000)
REQUESTS = [FIND_COORDINATOR, INIT_PRODUCER_ID, METADATA, PRODUCE, END_TXN]


@pytest.fixture(scope="module", params=["1", "2"])
def behind(request: pytest.FixtureRequest) -> Iterator[tuple[LocalBroker, KafkaProxy]]:
    """A broker behind a proxy, for each version of the transaction protocol."""
    settings = {"barnabas.features": f"transaction.version={request.param}"}
    with broker_behind_proxy(settings, control=True) as pair:
        yield pair


@pytest.fixture
def proxied(behind: tuple[LocalBroker, KafkaProxy]) -> Iterator[tuple[LocalBroker, KafkaProxy]]:
    yield behind
    behind[1].clear()


def encoded(topic: str, partition: int, *values: bytes) -> EncodedRecordBatch:
    """A transactional batch of these values."""
    now_ms = time.time_ns() // 1_000_000
    records = [NewRecord(None, value, now_ms) for value in values]
    return EncodedRecordBatch(
        topic, partition, len(values), encode_batch(records, transactional=True)
    )


def publish(port: int, topic: str, settings: PublishSettings = PATIENT) -> Publication:
    """Publish three records to two partitions under a unique transactional id."""
    options = ClientOptions((("127.0.0.1", port),), retry_backoff_ms=20, request_timeout_ms=600_000)
    batches = [encoded(topic, 0, b"a", b"b"), encoded(topic, 1, b"c")]
    with Publisher(options, settings) as publisher:
        return publisher.commit_unnumbered(
            transactional_id=unique("write"), record_batches=lambda: batches
        )


def groups(servers: str) -> set[str]:
    listed = admin(servers).list_consumer_groups().result(30)
    return {group.group_id for group in listed.valid}


def test_publishing_without_a_number_creates_no_group(
    proxied: tuple[LocalBroker, KafkaProxy],
) -> None:
    broker, proxy = proxied
    topic = create_topic(broker.bootstrap_servers, "alone", 2)
    before = groups(broker.bootstrap_servers)
    for _ in range(3):
        done = publish(proxy.port, topic)
        assert done == Publication(False, 3, done.byte_count, 1)
    assert values_of(broker.bootstrap_servers, topic) == [b"a", b"b"] * 3 + [b"c"] * 3
    assert groups(broker.bootstrap_servers) == before


@pytest.mark.parametrize("api_key", [*REQUESTS, ADD_PARTITIONS_TO_TXN])
@pytest.mark.parametrize("when", ["lost", "worked on", "answer lost"])
def test_the_records_are_written_once_though_the_connection_ends_at_any_request(
    proxied: tuple[LocalBroker, KafkaProxy], api_key: int, when: str
) -> None:
    broker, proxy = proxied
    topic = create_topic(broker.bootstrap_servers, "cut", 2)
    if when == "answer lost":
        proxy.on_response(api_key, once(CUT))
    else:
        proxy.on_request(api_key, once(CUT if when == "lost" else PASS_THEN_CUT))
    done = publish(proxy.port, topic)
    assert (done.was_committed, done.record_count) == (False, 3)
    assert values_of(broker.bootstrap_servers, topic) == [b"a", b"b", b"c"]


def test_the_records_are_written_again_if_the_transaction_timed_out_before_its_end(
    proxied: tuple[LocalBroker, KafkaProxy],
) -> None:
    """The repeated EndTxn is refused, which proves that the first one had no effect. The time
    passes on the test's clock: a short timeout could end the next attempt's transaction, too.
    """
    broker, proxy = proxied
    topic = create_topic(broker.bootstrap_servers, "late", 2)

    def wait_for_the_abort(frame: Frame) -> Action:
        broker.control.advance(seconds=PATIENT.transaction_timeout_ms // 1000 + 1)
        eventually(lambda: not broker.open_transactions(), what="the broker ends the transaction")
        return CUT

    proxy.on_request(END_TXN, once(wait_for_the_abort))
    done = publish(proxy.port, topic)
    assert done.attempts > 1
    assert values_of(broker.bootstrap_servers, topic) == [b"a", b"b", b"c"]


def test_an_unknown_outcome_is_an_error_that_warns_of_writing_again(
    proxied: tuple[LocalBroker, KafkaProxy],
) -> None:
    broker, proxy = proxied
    topic = create_topic(broker.bootstrap_servers, "unknown", 2)
    proxy.on_response(END_TXN, lambda frame: CUT)
    with pytest.raises(PublishError) as caught:
        publish(proxy.port, topic, PublishSettings(delivery_timeout_ms=200))
    assert "look at the topic before you write it again, or set the option writeId" in str(
        caught.value
    )
    assert "safe" not in str(caught.value)
