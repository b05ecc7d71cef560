"""Topics taken over from Apache Kafka with the settings in its metadata log. The tests use a real
log, and logs made from the schemas.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import struct
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import CountedIds
from helpers.places import TESTS
from helpers.storage_logs import kill, set_offset_and_epoch

from barnabas.broker.core import Broker
from barnabas.broker.logs.metadata import QuotaEntity
from barnabas.broker.security.stored import Acl, ScramCredential
from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.opening import open_broker
from barnabas.graduation.kafka_directory.kafka_metadata import DIRECTORY, read_kafka_metadata
from barnabas.protocol.records import NewRecord, encode_batch, read_header
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    NO_TOPIC_ID,
    RECOVERY_POINT_NAME,
    decode_partition_metadata,
)
from barnabas.storage.opening.last_run import BOOT_ID_NAME

FIXTURES = TESTS / "fixtures"
NOW_MS = 1_700_000_100_000
SEGMENT = "00000000000000000000.log"
A, B = uuid.UUID(int=0xA), uuid.UUID(int=0xB)


def varint(number: int) -> bytes:
    """Encode a number as an unsigned varint, as Kafka's records do."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def string(text: str | None) -> bytes:
    return varint(0) if text is None else varint(len(text.encode()) + 1) + text.encode()


def record(api_key: int, body: bytes, version: int = 0) -> bytes:
    return varint(1) + varint(api_key) + varint(version) + body + b"\0"


def topic(name: str, topic_id: uuid.UUID) -> bytes:
    return record(2, string(name) + topic_id.bytes)


def config(resource: str, name: str, value: str | None, kind: int = 2) -> bytes:
    return record(4, bytes([kind]) + string(resource) + string(name) + string(value))


def removed(topic_id: uuid.UUID) -> bytes:
    return record(9, topic_id.bytes)


def scram(user: str, mechanism: int, iterations: int) -> bytes:
    """The record of a SCRAM credential (UserScramCredentialRecord, key 11)."""
    secrets = b"".join(varint(len(one) + 1) + one for one in (b"salt", b"stored", b"server"))
    return record(
        11, string(user) + bytes([mechanism]) + secrets + iterations.to_bytes(4, signed=True)
    )


def acl(acl_id: uuid.UUID, name: str, principal: str) -> bytes:
    """The record of an ACL: ALLOW (3) READ (3) for topics (2) with this prefix (4)."""
    return record(
        18,
        acl_id.bytes + b"\2" + string(name) + b"\4" + string(principal) + string("*") + b"\3\3",
    )


def described(api_key: int, text: str) -> bytes:
    """A record whose only field is a description, in its tagged field 0 (KIP-868)."""
    value = string(text)
    return varint(1) + varint(api_key) + varint(0) + b"\1\0" + varint(len(value)) + value


BEGIN, END, ABORT = described(23, "why"), record(24, b""), described(25, "no leader")


def write(directory: Path, name: str, values: Sequence[bytes], base_offset: int = 0) -> Path:
    """Write a file with two batches of these records; a checkpoint also gets a header and a
    footer.
    """
    directory.mkdir(parents=True, exist_ok=True)
    half = (len(values) + 1) // 2
    batches = [
        (start, encode_batch([NewRecord(None, value, NOW_MS) for value in part]))
        for start, part in ((0, values[:half]), (half, values[half:]))
        if part
    ]
    if name.endswith(".checkpoint"):
        batches = [
            (0, control_batch(3, bytes(11))),
            *((start + 1, batch) for start, batch in batches),
            (len(values) + 1, control_batch(4, bytes(3))),
        ]
    data = bytearray()
    for start, batch in batches:
        set_offset_and_epoch(batch, base_offset + start, 1)
        data += batch
    path = directory / name
    path.write_bytes(data)
    return path


def control_batch(kind: int, value: bytes) -> bytearray:
    """A batch with one control record, in the format of KIP-630."""
    return encode_batch([NewRecord(struct.pack(">hh", 0, kind), value, NOW_MS)], control=True)


def configs_of(data_dir: Path, name: str, topic_id: uuid.UUID) -> dict[str, str] | None:
    """Return the settings of a topic according to the metadata log. Gives: None if this log does
    not know the topic.
    """
    metadata = read_kafka_metadata(OsDisk(), str(data_dir))
    assert metadata is not None
    return metadata.topic_configs(name, topic_id)


def opened(data_dir: Path, **settings: str) -> Broker:
    properties = {
        "log.dirs": str(data_dir),
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return open_broker(BrokerConfig.from_properties(properties), CountedIds(), now_ms=NOW_MS)


@pytest.fixture
def kafka_directory(tmp_path: Path) -> Path:
    """A copy of a data directory of Apache Kafka 3.9, including its metadata log."""
    data_dir = tmp_path / "data"
    shutil.copytree(FIXTURES / "kafka-logdir" / "logdir", data_dir)
    shutil.copytree(FIXTURES / "kafka-metadata", data_dir, dirs_exist_ok=True)
    for path in data_dir.rglob("*"):
        path.chmod(0o755)
    return data_dir


def test_the_settings_of_a_real_log_are_taken_over(
    kafka_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        broker = opened(kafka_directory)
    found = {name: topic.configs for name, topic in broker.metadata.topics.items()}
    assert found["plain"] == {}
    assert found["txn"] == {"segment.bytes": "2048"}
    assert found["compacted"] == {"cleanup.policy": "compact"}
    assert found["__consumer_offsets"] == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    log = broker.topics.partition("compacted", 0)
    assert log is not None and log.config.is_compacted
    assert "settings are not known" not in caplog.text
    broker.close_logs(NOW_MS)
    assert {
        name: topic.configs for name, topic in opened(kafka_directory).metadata.topics.items()
    } == found


def test_without_the_metadata_log_taken_over_topics_have_no_retention(
    kafka_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(kafka_directory / DIRECTORY)
    broker = opened(kafka_directory)
    assert broker.metadata.topics["plain"].configs == {"retention.ms": "-1"}
    assert "settings are not known" in caplog.text


@pytest.mark.parametrize("at", [3000, 70])
def test_a_damaged_metadata_log_is_ignored(
    kafka_directory: Path, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = kafka_directory / DIRECTORY / SEGMENT
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)
    broker = opened(kafka_directory)
    assert broker.metadata.topics["txn"].configs == {"retention.ms": "-1"}
    assert f"{DIRECTORY} cannot be read" in caplog.text


def test_the_last_value_of_a_setting_in_the_metadata_log_applies(tmp_path: Path) -> None:
    values = [
        topic("a", A),
        config("a", "retention.ms", "5"),
        config("a", "segment.bytes", "100"),
        config("a", "retention.ms", "6"),
    ]
    write(
        tmp_path / DIRECTORY,
        SEGMENT,
        [*values, config("a", "segment.bytes", None), config("b", "retention.ms", "7")],
    )
    assert configs_of(tmp_path, "a", A) == {"retention.ms": "6"}
    assert configs_of(tmp_path, "b", B) is None


def test_settings_of_a_deleted_topic_do_not_apply_to_a_later_one_of_the_name(
    tmp_path: Path,
) -> None:
    values = [topic("a", A), config("a", "retention.ms", "5"), removed(A), topic("a", B)]
    write(tmp_path / DIRECTORY, SEGMENT, values)
    assert configs_of(tmp_path, "a", A) is None
    assert configs_of(tmp_path, "a", B) == {}


def test_records_of_an_aborted_or_open_metadata_transaction_are_ignored(tmp_path: Path) -> None:
    values = [
        topic("a", A),
        BEGIN,
        config("a", "retention.ms", "5"),
        END,
        BEGIN,
        config("a", "retention.ms", "6"),
        ABORT,
    ]
    write(
        tmp_path / DIRECTORY,
        SEGMENT,
        [*values, config("a", "segment.bytes", "100"), BEGIN, config("a", "retention.ms", "7")],
    )
    assert configs_of(tmp_path, "a", A) == {"retention.ms": "5", "segment.bytes": "100"}


def test_the_latest_checkpoint_replaces_the_records_before_its_offset(tmp_path: Path) -> None:
    directory = tmp_path / DIRECTORY
    write(directory, "00000000000000000002-0000000001.checkpoint", [topic("b", B)])
    write(
        directory,
        "00000000000000000010-0000000001.checkpoint",
        [topic("a", A), config("a", "retention.ms", "5")],
    )
    write(
        directory,
        "00000000000000000008.log",
        [config("a", "retention.ms", "3"), config("a", "x", "1"), config("a", "segment.ms", "9")],
        8,
    )
    write(directory, "00000000000000000011.log", [config("a", "segment.bytes", "100")], 11)
    assert configs_of(tmp_path, "a", A) == {
        "retention.ms": "5",
        "segment.ms": "9",
        "segment.bytes": "100",
    }
    assert configs_of(tmp_path, "b", B) is None


def test_a_log_that_lacks_its_beginning_is_not_believed(tmp_path: Path) -> None:
    write(tmp_path / DIRECTORY, "00000000000000000008.log", [topic("a", A)], 8)
    assert read_kafka_metadata(OsDisk(), str(tmp_path)) is None


def test_a_metadata_log_that_ends_before_its_last_snapshot_is_ignored(tmp_path: Path) -> None:
    """A clean stop writes a producer snapshot whose name is the end offset of the log. A checkpoint
    without a log is not sufficient.
    """
    directory = tmp_path / DIRECTORY
    write(directory, SEGMENT, [topic("a", A), config("a", "retention.ms", "5")])
    (directory / f"{2:020}.snapshot").touch()
    assert configs_of(tmp_path, "a", A) == {"retention.ms": "5"}
    (directory / f"{3:020}.snapshot").touch()
    assert read_kafka_metadata(OsDisk(), str(tmp_path)) is None
    for path in directory.iterdir():
        path.unlink()
    write(directory, "00000000000000000002-0000000001.checkpoint", [topic("a", A)])
    assert read_kafka_metadata(OsDisk(), str(tmp_path)) is None
    (directory / f"{2:020}.log").touch()
    assert configs_of(tmp_path, "a", A) == {}


@pytest.mark.parametrize("part", [0.0, 0.5, 0.9])
def test_a_truncated_checkpoint_is_ignored(tmp_path: Path, part: float) -> None:
    """The topics of a truncated checkpoint would have no settings, so the broker's default
    retention would apply to them.
    """
    directory = tmp_path / DIRECTORY
    values = [topic("a", A), config("a", "retention.ms", "-1")]
    path = write(directory, "00000000000000000002-0000000001.checkpoint", values)
    (directory / f"{2:020}.log").touch()
    assert configs_of(tmp_path, "a", A) == {"retention.ms": "-1"}
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    assert read_kafka_metadata(OsDisk(), str(tmp_path)) is None


@pytest.mark.parametrize(
    "value", [b"", b"\1", b"\2\2\0", record(4, b"\2\5ab"), record(2, b"", version=9), b"\x80" * 6]
)
def test_records_that_cannot_be_read_are_not_believed(tmp_path: Path, value: bytes) -> None:
    write(tmp_path / DIRECTORY, SEGMENT, [topic("a", A), value])
    assert read_kafka_metadata(OsDisk(), str(tmp_path)) is None


def test_a_torn_last_batch_of_the_metadata_log_is_ignored(tmp_path: Path) -> None:
    path = write(tmp_path / DIRECTORY, SEGMENT, [topic("a", A), config("a", "retention.ms", "5")])
    path.write_bytes(path.read_bytes()[:-1])
    assert configs_of(tmp_path, "a", A) == {}


def test_an_unknown_or_invalid_setting_is_left_out_with_one_warning(
    kafka_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two topics have the same unknown setting, and the same value that is invalid in this
    broker.
    """
    metadata = read_kafka_metadata(OsDisk(), str(kafka_directory))
    assert metadata is not None
    values = [topic(name, topic_id) for name, topic_id in metadata.topic_ids.items()]
    for name in ("plain", "txn"):
        values += [
            config(name, "some.new.setting", "1"),
            config(name, "segment.ms", "0"),
            config(name, "retention.ms", "77"),
        ]
    write(kafka_directory / DIRECTORY, SEGMENT, values)
    broker = opened(kafka_directory)
    assert broker.metadata.topics["plain"].configs == {"retention.ms": "77"}
    assert caplog.text.count("some.new.setting is unknown") == 1
    assert caplog.text.count("segment.ms=0") == 1


def test_dynamic_settings_of_this_broker_and_of_all_are_taken_over(kafka_directory: Path) -> None:
    metadata = read_kafka_metadata(OsDisk(), str(kafka_directory))
    assert metadata is not None
    values = [topic(name, topic_id) for name, topic_id in metadata.topic_ids.items()]
    values += [
        config("", "log.retention.ms", "-1", kind=4),
        config("", "producer.id.expiration.ms", "777", kind=4),
        config("", "num.io.threads", "3", kind=4),
    ]
    values += [
        config("1", "log.segment.bytes", "5000", kind=4),
        config("2", "log.segment.bytes", "6000", kind=4),
    ]
    write(kafka_directory / DIRECTORY, SEGMENT, values)
    broker = opened(kafka_directory)
    assert broker.metadata.broker_configs == broker.config.dynamic == {"log.segment.bytes": "5000"}
    assert (
        broker.metadata.broker_default_configs
        == broker.config.dynamic_defaults
        == {"log.retention.ms": "-1", "producer.id.expiration.ms": "777"}
    )
    log = broker.topics.partition("plain", 0)
    assert log is not None and (log.config.retention_ms, log.config.segment_bytes) == (-1, 5000)


def test_everything_is_taken_over_with_the_first_topics_and_changes_here_stay(
    kafka_directory: Path, tmp_path: Path
) -> None:
    """Users, ACLs and settings are taken over from Kafka's metadata log with the first topics.
    Later changes in Barnabas are kept when a later start takes over more topics.
    """
    later = ("txn-0", "txn-1")
    for name in later:
        shutil.move(kafka_directory / name, tmp_path / name)
    metadata = read_kafka_metadata(OsDisk(), str(kafka_directory))
    assert metadata is not None
    values = [topic(name, topic_id) for name, topic_id in metadata.topic_ids.items()]
    values += [scram("ann", 1, 4096), scram("ann", 2, 5000), scram("ben", 2, 4096)]
    values += [acl(A, "orders.", "User:ann"), acl(B, "x", "User:ben")]
    values += [record(19, B.bytes), record(22, string("ben") + b"\2")]
    values += [config(node, "log.retention.ms", "60000", kind=4) for node in ("", "1")]
    write(kafka_directory / DIRECTORY, SEGMENT, values)
    broker = opened(kafka_directory)
    ann = {
        ("ann", 1): ScramCredential(b"salt", b"stored", b"server", 4096),
        ("ann", 2): ScramCredential(b"salt", b"stored", b"server", 5000),
    }
    acls = {A: Acl(2, "orders.", 4, "User:ann", "*", 3, 3)}
    assert broker.metadata.scram_credentials == ann
    assert broker.metadata.acls == acls
    broker.metadata.remove_acls([A])
    assert broker.metadata.broker_configs == {"log.retention.ms": "60000"}
    ours, ours_of_all = {"log.retention.ms": "70000"}, {"log.retention.ms": "80000"}
    broker.topics.set_broker_configs(ours)
    broker.topics.set_broker_default_configs(ours_of_all)
    assert "txn" not in broker.metadata.topics
    broker.close_logs(NOW_MS)
    for name in later:
        shutil.move(tmp_path / name, kafka_directory / name)
    again = opened(kafka_directory)
    assert "txn" in again.metadata.topics, "the start takes over the topic that was added"
    assert again.metadata.scram_credentials == ann
    assert again.metadata.acls == {}, "the ACL that was removed in Barnabas is not taken over again"
    assert again.metadata.broker_configs == ours
    assert again.metadata.broker_default_configs == ours_of_all


@pytest.mark.parametrize("earlier_starts", [0, 1, 2])
def test_producer_ids_that_kafka_has_reserved_are_not_assigned_again(
    kafka_directory: Path, earlier_starts: int
) -> None:
    """An idempotent producer of Apache Kafka may have an id although it has written nothing yet. No
    log shows that id.
    """
    reserved = 1000  # the value that Kafka wrote
    metadata = read_kafka_metadata(OsDisk(), str(kafka_directory))
    assert metadata is not None
    assert metadata.next_producer_id == reserved
    for _ in range(earlier_starts):  # only the first start reads Kafka's metadata log
        opened(kafka_directory).close_logs(NOW_MS)
    assert opened(kafka_directory).routes.parts.producer_ids.allocate() == reserved


@pytest.mark.parametrize("topics_are_known", [True, False])
def test_an_empty_segment_that_kafkas_cleaner_left_does_not_end_the_recovery(
    kafka_directory: Path, *, topics_are_known: bool
) -> None:
    """Kafka's cleaner removed all records of the first segment, and then Kafka was killed. The
    start must not set the later segments aside.
    """
    directory = kafka_directory / "compacted-0"
    batch = bytearray((directory / SEGMENT).read_bytes())
    count = read_header(batch).next_offset
    set_offset_and_epoch(batch, 5, 0)
    (directory / SEGMENT).write_bytes(b"")
    (directory / f"{5:020d}.log").write_bytes(batch)
    for path in [*directory.glob("*.snapshot"), kafka_directory / CLEAN_SHUTDOWN_NAME]:
        path.unlink(missing_ok=True)
    (kafka_directory / RECOVERY_POINT_NAME).unlink()
    if not topics_are_known:
        shutil.rmtree(kafka_directory / DIRECTORY)
    for run in ("after Kafka's kill", "after a loss of power"):
        broker = opened(kafka_directory)
        log = broker.topics.partition("compacted", 0)
        assert log is not None
        assert log.log_end_offset == 5 + count, run
        assert log.durability.recovery_point == 5 + count, run
        kill(broker.logs, machine=False)
        (kafka_directory / BOOT_ID_NAME).write_text("another-run-of-the-machine 1")


def test_a_log_without_a_topic_id_gets_the_id_of_its_topic(kafka_directory: Path) -> None:
    """A log of Apache Kafka before 2.8 has no topic id, and a power loss may remove the file that
    contains the id.
    """
    path = kafka_directory / "compacted-0" / "partition.metadata"
    path.unlink()
    broker = opened(kafka_directory)
    log, topic = broker.topics.partition("compacted", 0), broker.metadata.topics["compacted"]
    assert log is not None
    assert log.topic_id == topic.topic_id == decode_partition_metadata(path.read_bytes())
    assert log.durability.recovery_point == log.log_end_offset, "no flush journal has it yet"
    kill(broker.logs)
    again = opened(kafka_directory).topics.partition("compacted", 0)
    assert again is not None
    assert again.topic_id == topic.topic_id


@pytest.mark.parametrize(("code", "is_fatal"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_log_without_a_topic_id_is_served_although_the_disk_is_full(
    kafka_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    code: int,
    is_fatal: bool,
) -> None:
    path = kafka_directory / "compacted-0" / "partition.metadata"
    path.unlink()
    write = OsDisk.write_atomic

    def refuse(disk: OsDisk, name: str, data: Any, *, sync: bool = True) -> None:
        if name == str(path):
            raise OSError(code, os.strerror(code))
        write(disk, name, data, sync=sync)

    monkeypatch.setattr(OsDisk, "write_atomic", refuse)
    if is_fatal:
        with pytest.raises(OSError, match=os.strerror(code)):
            opened(kafka_directory)
        return
    log = opened(kafka_directory).topics.partition("compacted", 0)
    assert log is not None
    assert log.topic_id == NO_TOPIC_ID and log.log_end_offset > 0
    assert "compacted-0 has no topic id until there is space" in caplog.text


# Written by Apache Kafka 3.9: consumer_byte_rate=5 and controller_mutation_rate=3 of the default
# user, connection_creation_rate=7 of the default address.
KAFKAS_QUOTAS = (
    "010e00020575736572000013636f6e73756d65725f627974655f7261746540140000000000000000",
    "010e0002036970000019636f6e6e656374696f6e5f6372656174696f6e5f72617465401c0000000000000000",
    "010e00020575736572000019636f6e74726f6c6c65725f6d75746174696f6e5f7261746540080000000000000000",
)


def client_quota(entity: dict[str, str | None], key: str, value: float, *, removed: bool) -> bytes:
    """The record of a client quota (ClientQuotaRecord, key 14)."""
    body = varint(len(entity) + 1)
    for entity_type, name in entity.items():
        body += string(entity_type) + string(name) + b"\0"
    return record(14, body + string(key) + struct.pack(">d?", value, removed))


def test_quotas_that_still_exist_are_taken_over(kafka_directory: Path) -> None:
    metadata = read_kafka_metadata(OsDisk(), str(kafka_directory))
    assert metadata is not None
    both: dict[str, str | None] = {"user": "u", "client-id": "c"}
    values = [topic(name, topic_id) for name, topic_id in metadata.topic_ids.items()]
    values += [
        *map(bytes.fromhex, KAFKAS_QUOTAS),
        client_quota(both, "request_percentage", 0.5, removed=False),
        client_quota(both, "producer_byte_rate", 9.0, removed=False),
        client_quota(both, "producer_byte_rate", 0.0, removed=True),
        client_quota({"client-id": "gone"}, "producer_byte_rate", 9.0, removed=False),
        client_quota({"client-id": "gone"}, "producer_byte_rate", 0.0, removed=True),
    ]
    write(kafka_directory / DIRECTORY, SEGMENT, values)
    broker = opened(kafka_directory)
    taken: dict[QuotaEntity, dict[str, float]] = {
        (("user", None),): {"consumer_byte_rate": 5.0, "controller_mutation_rate": 3.0},
        (("ip", None),): {"connection_creation_rate": 7.0},
        (("client-id", "c"), ("user", "u")): {"request_percentage": 0.5},
    }
    assert broker.metadata.client_quotas == taken
    broker.close_logs(NOW_MS)
    assert opened(kafka_directory).metadata.client_quotas == taken


def test_settings_of_groups_and_of_clients_metrics_are_taken_over(
    kafka_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = read_kafka_metadata(OsDisk(), str(kafka_directory))
    assert metadata is not None
    values = [topic(name, topic_id) for name, topic_id in metadata.topic_ids.items()]
    values += [
        config("s", "share.auto.offset.reset", "earliest", kind=32),
        config("s", "share.of.the.future", "1", kind=32),
        config("c", "consumer.session.timeout.ms", "46000", kind=32),
        config("c", "consumer.session.timeout.ms", None, kind=32),
        config("m", "interval.ms", "60000", kind=16),
    ]
    write(kafka_directory / DIRECTORY, SEGMENT, values)
    broker = opened(kafka_directory)
    assert broker.metadata.group_configs == {"s": {"share.auto.offset.reset": "earliest"}}
    assert broker.metadata.client_metrics == {"m": {"interval.ms": "60000"}}
    assert "share.of.the.future is unknown" in caplog.text
    broker.metadata.set_group_configs("s", {})
    broker.close_logs(NOW_MS)
    assert opened(kafka_directory).metadata.group_configs == {}
