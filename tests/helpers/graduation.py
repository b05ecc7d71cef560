"""A data directory of a broker on a simulated disk, the hand-over of this directory to Apache
Kafka, and the metadata records that Kafka then writes there.
"""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from sim.disk import SimDisk

from barnabas.broker.core import Broker
from barnabas.broker.security.stored import Acl, ScramCredential
from barnabas.broker.settings.config import BrokerConfig
from barnabas.coordinator.internal_topics import TRANSACTIONS_TOPIC
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.coordinator.transactions.transaction_records import encode_key, encode_value
from barnabas.coordinator.transactions.transaction_state import (
    TransactionMetadata,
    TransactionState,
)
from barnabas.daemon.opening import open_broker
from barnabas.graduation.bootstrap import encode_bootstrap
from barnabas.graduation.hand_over import HandOver, plan_hand_over
from barnabas.graduation.kafka_directory.kafka_metadata import values_of_file
from barnabas.graduation.kafka_directory.kafka_records import KafkaRecord, encode_record
from barnabas.graduation.kafka_versions import KAFKA_VERSIONS
from barnabas.graduation.server_properties import StartSettings, write_properties
from barnabas.graduation.steps import hand_over
from barnabas.graduation.survey import take_survey
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.files.checkpoints import CLEAN_SHUTDOWN_NAME
from barnabas.storage.log.broker_appends import append_records
from helpers.admin_host import NOW_MS, CountedIds

DATA = "/data"
NODE_ID, PRODUCER_ID = 3, 4711
ACL_ID = uuid.UUID(int=77)
ACL = Acl(2, "orders", 3, "User:alice", "*", 3, 3)
CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)
ALICES = (("user", "alice"),)
PLAN_BYTES = 12345.0
# The content of the file with which Kafka marks a clean stop.
KAFKAS_MARK = b'{"version":0,"brokerEpoch":8}'


def new_disk(seed: int = 0) -> SimDisk:
    """An empty disk."""
    return SimDisk(random.Random(seed), lambda: NOW_MS)


def config_of(**settings: str) -> BrokerConfig:
    """The broker's settings as a BrokerConfig. In the names of settings, underscores replace the
    dots.
    """
    return BrokerConfig.from_properties(properties_of(**settings))


def properties_of(**settings: str) -> dict[str, str]:
    """The properties with which the broker is started."""
    return {
        "log.dirs": DATA,
        "node.id": str(NODE_ID),
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def opened(disk: SimDisk, **settings: str) -> Broker:
    """A broker that has opened the directory."""
    return open_broker(config_of(**settings), CountedIds(), disk=disk, now_ms=NOW_MS)


def fill(disk: SimDisk) -> None:
    """Run a broker that writes topics with records, users, ACLs, quotas, settings and an open
    transaction, and stop it cleanly.
    """
    broker = opened(disk)
    for name, count, configs in (
        ("orders", 2, {"retention.ms": "-1"}),
        ("events", 1, {"segment.bytes": "100000", "message.downconversion.enable": "false"}),
    ):
        broker.topics.create_topic(name, count, configs, now_ms=NOW_MS)
        for log in broker.topics.logs_of(name):
            log.files.make()
    metadata = broker.metadata
    metadata.set_scram_credentials({("alice", 1): CREDENTIAL})
    metadata.add_acls({ACL_ID: ACL})
    metadata.set_client_quotas({ALICES: {"producer_byte_rate": PLAN_BYTES}})
    metadata.set_group_configs("g", {"consumer.session.timeout.ms": "50000"})
    metadata.set_client_metrics("m", {"interval.ms": "1000"})
    broker.topics.set_broker_configs({"log.retention.ms": "864000000"})
    broker.topics.set_broker_default_configs({"log.cleaner.backoff.ms": "1000"})
    log = broker.topics.partition("orders", 0)
    assert log is not None
    append_records(log, [CoordinatorRecord(b"k", b"v")], NOW_MS)
    begin_transaction(broker, "open-one")
    broker.close_logs(NOW_MS)


def begin_transaction(broker: Broker, transactional_id: str, **changes: int) -> None:
    """Begin a transaction on orders-0 by writing its record.

    Takes: changes, other values of the record's fields.
    """
    ongoing = TransactionMetadata(
        transactional_id,
        PRODUCER_ID,
        5,
        60_000,
        TransactionState.ONGOING,
        {TopicPartition("orders", 0): None},
        NOW_MS,
        NOW_MS,
    )._replace(**changes)  # type: ignore[arg-type]
    record = CoordinatorRecord(encode_key(transactional_id), encode_value(ongoing))
    append_records(broker.topics.internal_log(TRANSACTIONS_TOPIC, 0, NOW_MS), [record], NOW_MS)


def planned(
    disk: SimDisk,
    kafka: str = "4.3",
    topic_settings: Mapping[str, str] | None = None,
    kinds_of_files: Mapping[str, str] = MappingProxyType({}),
    **settings: str,
) -> HandOver:
    """The plan for handing the directory over. Takes: kinds_of_files, the kinds of key stores by
    their paths.
    """
    config = config_of(**settings)
    plan = plan_hand_over(
        take_survey(disk, DATA), KAFKA_VERSIONS[kafka], config, topic_settings or {}
    )
    salts = itertools.count()
    write_properties(
        plan,
        config,
        StartSettings(properties_of(**settings), properties_of(**settings)),
        data_dir=DATA,
        controller="127.0.0.1:9093",
        password="drawn",
        new_salt=lambda: b"salt %d" % next(salts),
        kind_of_file=kinds_of_files.get,
    )
    return plan


def graduate(disk: SimDisk) -> None:
    """Hand the directory over to Kafka."""
    plan = planned(disk)
    hand_over(disk, DATA, plan, encode_bootstrap(plan, NOW_MS), lambda path: flush(disk, path))


def flush(disk: SimDisk, directory: str) -> None:
    """Make all files in a directory durable, with their names."""
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        if disk.is_dir(path):
            flush(disk, path)
        else:
            file = disk.open(path)
            file.fsync()
            file.close()
    disk.fsync_dir(directory)


def run_kafka(disk: SimDisk, changes: Iterable[KafkaRecord] = (), *, base_offset: int = 0) -> None:
    """Write what a run of Kafka leaves: its metadata log, with all records of the bootstrap
    checkpoint and `changes`. If `base_offset` is not 0, the log has only `changes`, as after a
    snapshot.
    """
    values = [encode_record(record) for record in changes]
    if not base_offset:
        values = [*values_of_file(disk, f"{DATA}/bootstrap.checkpoint", 0), *values]
    directory = f"{DATA}/__cluster_metadata-0"
    disk.mkdir(directory)
    records = [NewRecord(None, value, NOW_MS) for value in values]
    batch = encode_batch(records, base_offset=base_offset)
    disk.write_atomic(f"{directory}/{base_offset:020}.log", batch)
    disk.write_atomic(f"{directory}/{base_offset + len(values):020}.snapshot", b"")
    disk.write_atomic(f"{DATA}/{CLEAN_SHUTDOWN_NAME}", KAFKAS_MARK)
    disk.fsync_dir(DATA)
