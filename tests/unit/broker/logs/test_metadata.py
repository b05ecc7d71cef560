"""The metadata journal: changes survive a restart, a torn end is removed, damage is detected, and
obsolete frames are dropped.
"""

from __future__ import annotations

import errno
import logging
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from crc32c import crc32c
from helpers.disk_broker import Worst
from sim.disk import SimDisk

from barnabas.broker.logs import journal_file
from barnabas.broker.logs import metadata as metadata_module
from barnabas.broker.logs.durable_size import (
    MOST_RECORDS,
    RECORD_BYTES,
    SIZE_SUFFIX,
    highest_record,
)
from barnabas.broker.logs.journal_file import ENCODED_AT_ONCE, JournalError, decode_frame
from barnabas.broker.logs.metadata import SMALLEST_REWRITE, ClusterMetadata, Topic, changes_in
from barnabas.broker.logs.syncs import Syncs
from barnabas.broker.outbox import Outbox
from barnabas.broker.security.stored import ScramCredential
from barnabas.storage.disk import REPLACING_SUFFIX, File, OsDisk
from barnabas.storage.log.log_directory import LogDirectoryError

IDS = [uuid.UUID(int=number) for number in range(1, 9)]
OF_USER, OF_DEFAULT = (("client-id", "c"), ("user", "u")), (("user", None),)


class CountingDisk(OsDisk):
    """A real disk that records the order of writes and flushes."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        calls = self.calls

        class Noting:
            def __getattr__(self, name: str) -> object:
                if name in ("append", "fsync"):
                    calls.append(name)
                return getattr(file, name)

        return Noting()  # type: ignore[return-value]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "barnabas-metadata.journal"


def size_file(path: Path) -> Path:
    return path.with_name(path.name + SIZE_SUFFIX)


def opened(path: Path) -> ClusterMetadata:
    return ClusterMetadata(OsDisk(), str(path))


def frame(body: object) -> bytes:
    """A frame in the format of the module's layout table: length, CRC-32C, msgpack."""
    data = msgpack.packb(body)
    return struct.pack(">II", len(data), crc32c(data)) + data


HEADER = frame({"kind": "header", "version": 1})


def filled(path: Path) -> bytes:
    """The bytes of a journal that has changes of every kind."""
    metadata = opened(path)
    metadata.create_topic("a", IDS[0], 1, {})
    metadata.create_topic("b", IDS[1], 3, {"retention.ms": "5"})
    metadata.set_broker_configs({"log.retention.ms": "7"})
    metadata.set_broker_default_configs({"log.retention.ms": "8"})
    metadata.set_client_metrics("s", {"interval.ms": "100"})
    metadata.set_client_metrics("gone", {"interval.ms": "100"})
    metadata.set_client_metrics("gone", {})
    metadata.set_group_configs("g", {"consumer.session.timeout.ms": "50000"})
    metadata.set_group_configs("gone", {"consumer.session.timeout.ms": "50000"})
    metadata.set_group_configs("gone", {})
    metadata.set_client_quotas({OF_USER: {"producer_byte_rate": 1.5}, OF_DEFAULT: {"x": 1.0}})
    metadata.set_client_quotas({OF_DEFAULT: {}})
    metadata.set_next_producer_id(1000)
    metadata.add_partitions("a", 4)
    metadata.delete_topics(["b"])
    metadata.set_topic_configs("a", {"cleanup.policy": "compact"})
    metadata.close()
    return path.read_bytes()


def test_a_new_journal_is_its_header(path: Path) -> None:
    opened(path).close()
    assert path.read_bytes() == HEADER


def test_only_its_owner_may_read_the_journal(path: Path) -> None:
    """The journal contains verifiers of users' passwords; earlier versions created the file with
    mode 0640.
    """
    opened(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    opened(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_every_kind_of_change_is_there_after_a_restart(path: Path) -> None:
    filled(path)
    metadata = opened(path)
    assert metadata.topics == {"a": Topic("a", IDS[0], 4, {"cleanup.policy": "compact"})}
    assert metadata.topic("a") is metadata.topic_by_id(IDS[0])
    assert metadata.topic("b") is None
    assert metadata.topic_by_id(IDS[1]) is None
    assert metadata.broker_configs == {"log.retention.ms": "7"}
    assert metadata.broker_default_configs == {"log.retention.ms": "8"}
    assert metadata.client_metrics == {"s": {"interval.ms": "100"}}
    assert metadata.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}
    assert metadata.client_quotas == {OF_USER: {"producer_byte_rate": 1.5}}
    assert metadata.next_producer_id == 1000


def test_a_recreated_topic_has_only_its_new_id(path: Path) -> None:
    metadata = opened(path)
    metadata.create_topic("a", IDS[0], 1, {})
    metadata.delete_topics(["a"])
    metadata.create_topic("a", IDS[1], 2, {})
    metadata.close()
    metadata = opened(path)
    assert metadata.topic_by_id(IDS[0]) is None
    assert metadata.topic_by_id(IDS[1]) == Topic("a", IDS[1], 2, {})


def test_topics_keep_the_order_of_their_creation(path: Path) -> None:
    metadata = opened(path)
    for number, name in enumerate(("c", "a", "b")):
        metadata.create_topic(name, IDS[number], 1, {})
    metadata.add_partitions("c", 2)
    metadata.close()
    assert list(opened(path).topics) == ["c", "a", "b"]


def test_the_metadata_copies_the_configs_that_it_gets(path: Path) -> None:
    metadata = opened(path)
    configs = {"retention.ms": "1"}
    metadata.create_topic("a", IDS[0], 1, configs)
    configs["retention.ms"] = "2"
    assert metadata.topics["a"].configs == {"retention.ms": "1"}


def test_internal_topics_are_known_by_name(path: Path) -> None:
    metadata = opened(path)
    assert metadata.create_topic("__consumer_offsets", IDS[0], 4, {}).internal
    assert not metadata.create_topic("a", IDS[1], 4, {}).internal


def test_adopted_internal_topics_are_compacted_and_others_keep_all_records(path: Path) -> None:
    """A start adopts a topic if it finds the topic's directories without a journal. The topic's
    settings are then unknown, so retention must not delete its records.
    """
    metadata = opened(path)
    metadata.adopt_topic("__transaction_state", IDS[0], 4)
    metadata.adopt_topic("plain", IDS[1], 2)
    metadata.close()
    metadata = opened(path)
    assert metadata.topics["__transaction_state"].configs == {"cleanup.policy": "compact"}
    assert metadata.topics["plain"] == Topic("plain", IDS[1], 2, {"retention.ms": "-1"})


def test_every_change_is_one_write_that_is_flushed(tmp_path: Path) -> None:
    disk = CountingDisk()
    metadata = ClusterMetadata(disk, str(tmp_path / "journal"))
    disk.calls.clear()
    metadata.create_topic("a", IDS[0], 1, {})
    metadata.set_topic_configs("a", {"retention.ms": "1"})
    metadata.add_partitions("a", 2)
    metadata.set_broker_configs({})
    metadata.set_next_producer_id(1000)
    metadata.delete_topics(["a"])
    assert disk.calls == ["append", "fsync", "append"] * 6, "the last one: of the size"


def test_a_journal_cut_at_any_byte_loads_its_whole_changes(path: Path) -> None:
    data = filled(path)
    loaded = []
    for size in range(len(data)):
        path.write_bytes(data[:size])
        size_file(path).unlink()
        metadata = opened(path)
        loaded.append(
            (
                len(metadata.topics),
                metadata.next_producer_id,
                metadata.topics.get("a", Topic("a", IDS[0], 0)).partition_count,
            )
        )
        metadata.create_topic("after", IDS[5], 1, {})  # changes after the truncation are kept
        metadata.close()
        metadata = opened(path)
        assert metadata.topics["after"].topic_id == IDS[5]
        metadata.close()
    assert list(dict.fromkeys(loaded)) == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 0, 1),
        (2, 1000, 1),
        (2, 1000, 4),
        (1, 1000, 4),
    ]


def test_a_journal_that_was_cut_between_two_changes_is_refused(path: Path) -> None:
    """If the journal were accepted, later changes such as ACLs and settings would be lost without a
    message.
    """
    metadata = opened(path)
    metadata.set_broker_configs({"a": "1"})
    metadata.close()
    before = path.read_bytes()
    metadata = opened(path)
    metadata.set_broker_configs({"a": "2"})
    metadata.close()
    path.write_bytes(before)
    with pytest.raises(JournalError) as refused:
        opened(path)
    assert f"has {len(before)} bytes of whole changes, and had {2 * len(before) - len(HEADER)}" in (
        str(refused.value)
    )
    assert f"remove {size_file(path)}" in str(refused.value)
    size_file(path).unlink()
    assert opened(path).broker_configs == {"a": "1"}
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(JournalError):
        opened(path)


def test_a_missing_journal_is_reported_and_begun_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(path)
    path.unlink()
    metadata = opened(path)
    assert metadata.topics == {} and "is gone: the settings, users, ACLs and quotas" in caplog.text
    metadata.close()
    opened(path).close()


def test_an_earlier_copy_is_refused_right_after_a_rewrite(path: Path) -> None:
    """The journal is replaced by a copy from before its last rewriting, and no later change or
    start has noted the new size.
    """
    metadata = opened(path)
    early = b""
    for number in range(2 * SMALLEST_REWRITE):
        if path.stat().st_size < len(early):
            break  # the last change has rewritten the journal
        early = path.read_bytes()
        metadata.set_next_producer_id(number)
    assert path.stat().st_size < len(early)
    metadata.close()
    path.write_bytes(early)
    with pytest.raises(JournalError, match="is an earlier version, from before it was rewritten"):
        opened(path)


def test_an_earlier_copy_of_a_rewritten_journal_is_refused(path: Path) -> None:
    metadata = opened(path)
    metadata.create_topic("a", IDS[0], 1, {})
    early = path.read_bytes()
    for number in range(SMALLEST_REWRITE + 10):
        metadata.set_next_producer_id(number)
    late = path.read_bytes()
    metadata.close()
    opened(path).close()
    path.write_bytes(early)
    with pytest.raises(JournalError, match="is an earlier version, from before it was rewritten"):
        opened(path)
    path.write_bytes(late[:-1])
    with pytest.raises(JournalError, match="bytes of whole changes"):
        opened(path)
    path.write_bytes(late)
    assert list(opened(path).topics) == ["a"]


def test_the_size_file_stays_small_and_is_ignored_if_damaged(
    path: Path,
) -> None:
    metadata = opened(path)
    for number in range(3 * MOST_RECORDS):
        metadata.set_broker_configs({"a": str(number)})
        assert size_file(path).stat().st_size <= MOST_RECORDS * RECORD_BYTES
    metadata.close()
    for damaged in (b"", b"torn", bytes(64), size_file(path).read_bytes()[:-3]):
        size_file(path).write_bytes(damaged)
        opened(path).close()
        assert opened(path).broker_configs == {"a": str(number)}
        assert highest_record(size_file(path).read_bytes()) == (0, path.stat().st_size)


def test_a_change_is_kept_if_the_size_file_cannot_be_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = opened(path)
    noted = metadata._durable_size.noted

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    assert metadata._durable_size._file is not None
    monkeypatch.setattr(
        metadata._durable_size, "_file", SimpleNamespace(size=0, append=refuse, fsync=lambda: None,
                                                         close=lambda: None),
    )  # fmt: skip
    metadata.set_broker_configs({"a": "1"})
    assert metadata._durable_size.noted == noted, (
        "the noted size may be lower than the journal's size"
    )
    metadata.close()
    assert opened(path).broker_configs == {"a": "1"}


def test_a_truncation_of_the_journal_is_logged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = filled(path)
    path.write_bytes(data + b"\0\0\0\x20half")
    with caplog.at_level(logging.WARNING):
        opened(path).close()
    assert path.read_bytes() == data
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: cutting 8 bytes of a change that was not finished"
    ]


def test_a_damaged_byte_before_the_last_change_is_an_error_with_its_position(path: Path) -> None:
    data = filled(path)
    frames = [0]
    while frames[-1] < len(data):
        frames.append(frames[-1] + 8 + struct.unpack_from(">I", data, frames[-1])[0])
    for position in range(frames[-2]):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :])
        damaged = max(start for start in frames if start <= position)
        with pytest.raises(
            JournalError,
            match=f"{path.name} is damaged at byte {damaged}, .*restore the file from a copy",
        ):
            opened(path)
        assert path.stat().st_size == len(data), "a damaged journal is left as it is"


def test_a_damaged_last_change_is_dropped(path: Path) -> None:
    data = filled(path)
    last = frame({"kind": "producer_ids", "next": 2000})
    for position in range(len(last)):
        path.write_bytes(
            data + last[:position] + bytes([last[position] ^ 0x41]) + last[position + 1 :]
        )
        metadata = opened(path)
        assert metadata.next_producer_id == 1000
        assert metadata.topics["a"].partition_count == 4
        metadata.close()
        assert path.read_bytes() == data


def test_a_file_that_is_no_journal_is_refused_and_not_changed(path: Path) -> None:
    for data in (
        b"PK\x03\x04 somebody's archive, longer than a header",
        b"short",
        frame({"kind": "producer_ids", "next": 5}),
    ):
        path.write_bytes(data)
        with pytest.raises(JournalError, match="restore the file from a copy"):
            opened(path)
        assert path.read_bytes() == data


def test_a_header_torn_by_a_power_loss_is_written_again(path: Path) -> None:
    for torn in (bytes(len(HEADER)), HEADER[:9] + bytes(len(HEADER) - 9), HEADER[:1]):
        path.write_bytes(torn)
        size_file(path).unlink(missing_ok=True)  # a new journal has no size file
        opened(path).close()
        assert path.read_bytes() == HEADER


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"kind": "header", "version": 2}, "is of version 2, this broker reads 1"),
        ({"kind": "marvel"}, "unknown kind 'marvel' at byte"),
        ({"kind": "topic", "name": "a"}, "that cannot be read"),
        (
            {"kind": "topic", "name": "a", "id": b"short", "partitions": 1, "configs": {}},
            "that cannot be read",
        ),
        ({"no": "kind"}, "that cannot be read"),
    ],
)
def test_a_whole_frame_with_invalid_content_is_an_error(
    path: Path, body: object, said: str
) -> None:
    path.write_bytes(HEADER + frame(body))
    with pytest.raises(JournalError, match=said):
        opened(path)


def test_the_start_tells_of_a_damaged_journal_as_of_a_damaged_directory() -> None:
    assert issubclass(JournalError, LogDirectoryError)


CHANGES: dict[
    str, tuple[Callable[[ClusterMetadata, int], Any], Callable[[ClusterMetadata], Any]]
] = {
    "partitions": (
        lambda m, n: m.add_partitions("a", n + 1),
        lambda m: m.topics["a"].partition_count,
    ),
    "configs": (
        lambda m, n: m.set_topic_configs("a", {"k": str(n)} if n < 3 else {}),
        lambda m: m.topics["a"].configs,
    ),
    "replicas": (
        lambda m, n: m.set_topic_replicas("a", ((n, 9), (9, n)) if n < 3 else ()),
        lambda m: m.topics["a"].replicas,
    ),
    "broker": (
        lambda m, n: m.set_broker_configs({"k": str(n)} if n < 3 else {}),
        lambda m: m.broker_configs,
    ),
    "brokers": (
        lambda m, n: m.set_broker_default_configs({"k": str(n)} if n < 3 else {}),
        lambda m: m.broker_default_configs,
    ),
    "client metrics": (
        lambda m, n: m.set_client_metrics("a", {"k": str(n)} if n < 3 else {}),
        lambda m: m.client_metrics,
    ),
    "groups": (
        lambda m, n: m.set_group_configs("a", {"k": str(n)} if n < 3 else {}),
        lambda m: m.group_configs,
    ),
    "users": (
        lambda m, n: m.set_scram_credentials(
            {("a", 1): ScramCredential(b"", b"", b"", n) if n < 3 else None}
        ),
        lambda m: m.scram_credentials,
    ),
    "quotas": (
        lambda m, n: m.set_client_quotas({OF_USER: {"k": float(n)} if n < 3 else {}}),
        lambda m: m.client_quotas,
    ),
    "features": (
        lambda m, n: m.set_features({"f": n}, {"f": n} if n < 3 else {}),
        lambda m: (m.feature_levels, m.updated_features, m.features_epoch),
    ),
    "producer ids": (lambda m, n: m.set_next_producer_id(n), lambda m: m.next_producer_id),
}


@pytest.mark.parametrize("is_rewritten", [False, True])
@pytest.mark.parametrize("kind", CHANGES)
def test_of_several_changes_of_one_thing_the_last_counts_after_a_restart(
    path: Path, kind: str, is_rewritten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third change removes the value, if values of this kind can be removed."""
    change, value_of = CHANGES[kind]
    for count in (1, 2, 3):
        path.unlink(missing_ok=True)
        size_file(path).unlink(missing_ok=True)
        metadata = opened(path)
        metadata.create_topic("a", IDS[0], 1, {"k": "first"})
        values = [value_of(metadata)]
        for number in range(1, count + 1):
            change(metadata, number)
            values.append(value_of(metadata))
        if is_rewritten:
            monkeypatch.setattr(metadata_module, "SMALLEST_REWRITE", 1)
            monkeypatch.setattr(metadata_module, "REWRITE_FACTOR", 0)
            epoch = metadata._epoch
            metadata.create_topic("b", IDS[1], 1, {})
            assert metadata._epoch > epoch
        metadata.close()
        assert value_of(opened(path)) == values[-1]
        monkeypatch.undo()


@pytest.mark.parametrize("record", ["gone", "from before", "latest"])
def test_a_cut_of_a_rewritten_journal_is_refused_whatever_record_of_its_size_is_left(
    path: Path, record: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill may occur before the size of the rewritten journal is recorded. The header of the
    journal then has the size.
    """
    monkeypatch.setattr(metadata_module, "SMALLEST_REWRITE", 12)
    monkeypatch.setattr(metadata_module, "REWRITE_FACTOR", 1)
    metadata = opened(path)
    for number in range(4):
        metadata.create_topic(f"t{number}", IDS[number], 1, {})
    records, epoch = [size_file(path).read_bytes()], metadata._epoch
    while metadata._epoch == epoch:
        metadata.set_broker_configs({"a": "b"})
        records.append(size_file(path).read_bytes())
    whole = path.read_bytes()
    assert int.from_bytes(decode_frame(whole, 0)["size"]) == len(whole)  # type: ignore[index]
    for end in [end for _, end, _ in changes_in(whole)]:
        path.write_bytes(whole[:end])
        if record == "gone":
            size_file(path).unlink(missing_ok=True)
        else:
            size_file(path).write_bytes(records[-2 if record == "from before" else -1])
        if end == len(whole):
            assert set(opened(path).topics) == {f"t{number}" for number in range(4)}
        else:
            with pytest.raises(JournalError, match=f"{end} bytes of whole changes, and had"):
                opened(path)


@pytest.mark.parametrize("change", ["configs", "made and deleted", "producer ids"])
def test_a_journal_with_mostly_obsolete_changes_is_rewritten(path: Path, change: str) -> None:
    metadata = opened(path)
    metadata.create_topic("a", IDS[0], 2, {"retention.ms": "1"})
    metadata.set_broker_configs({"log.retention.ms": "7"})
    metadata.set_broker_default_configs({"log.retention.ms": "8"})
    metadata.set_client_metrics("s", {"metrics": "*"})
    metadata.set_group_configs("g", {"consumer.session.timeout.ms": "50000"})
    metadata.set_client_quotas({OF_USER: {"producer_byte_rate": 1.5}})
    largest = 0
    for number in range(SMALLEST_REWRITE + 10):
        if change == "configs":
            metadata.set_topic_configs("a", {"retention.ms": str(number)})
        elif change == "made and deleted":
            metadata.create_topic("b", IDS[1], 1, {})
            metadata.delete_topics(["b"])
        else:
            metadata.set_next_producer_id(number * 1000)
        largest = max(largest, path.stat().st_size)
    assert path.stat().st_size < largest / 5

    def state(metadata: ClusterMetadata) -> tuple[object, ...]:
        settings = (
            metadata.broker_configs,
            metadata.broker_default_configs,
            metadata.client_metrics,
            metadata.group_configs,
            metadata.client_quotas,
        )
        return (metadata.topics, *settings, metadata.next_producer_id)

    before = state(metadata)
    metadata.close()
    assert state(opened(path)) == before


def test_topics_that_are_all_deleted_leave_a_small_journal(path: Path) -> None:
    metadata = opened(path)
    for number in range(SMALLEST_REWRITE // 2 + 10):
        metadata.create_topic(f"t{number}", uuid.UUID(int=number + 1), 1, {})
    frames = 0
    for name in list(metadata.topics):
        metadata.end_deletion(metadata.delete_topics([name])[0])
        frames = max(frames, metadata._frames)
    assert metadata._frames < SMALLEST_REWRITE < frames
    assert opened(path).topics == {}


def test_a_journal_of_existing_topics_is_not_rewritten(path: Path) -> None:
    metadata = opened(path)
    sizes = []
    for number in range(SMALLEST_REWRITE + 200):
        metadata.create_topic(f"t{number}", uuid.UUID(int=number + 1), 1, {})
        sizes.append(path.stat().st_size)
    assert sizes == sorted(sizes)
    assert len(opened(path).topics) == SMALLEST_REWRITE + 200


def test_a_large_journal_is_rewritten_in_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_module, "REWRITE_FACTOR", 1)
    metadata = opened(path)
    count = 3 * ENCODED_AT_ONCE
    topics = [Topic(f"t{number}", uuid.UUID(int=number + 1), 1) for number in range(count)]
    metadata.begin_topics(topics)
    for topic in topics:
        metadata.end_creation(topic)
    encoded: list[str] = []
    encode = journal_file.encode_frame

    def counted(body: dict[str, Any]) -> bytes:
        encoded.append(body["kind"])
        return encode(body)

    monkeypatch.setattr(journal_file, "encode_frame", counted)
    while not metadata.is_rewriting:
        metadata.set_next_producer_id(metadata.next_producer_id + 1)
    ticks = 0
    while metadata.is_rewriting:
        encoded.clear()
        metadata.on_tick()
        assert len(encoded) <= ENCODED_AT_ONCE
        ticks += 1
        if ticks == 2:  # change a topic that is already in the new file, and one that is not
            metadata.set_topic_configs("t1", {"retention.ms": "1"})
            metadata.set_topic_configs(f"t{count - 1}", {"retention.ms": "2"})
            metadata.end_deletion(metadata.delete_topics(["t2"])[0])
            metadata.delete_topics(["t3"])
            metadata.create_topic("t3", uuid.UUID(int=count + 1), 2, {})
            assert opened(path).topic("t3") is not None, "a kill in between loses nothing"
    assert ticks == 4
    metadata.set_next_producer_id(7)
    metadata.close()
    again = opened(path)
    assert (again.topics, again.deletions) == (metadata.topics, metadata.deletions)
    assert list(again.topics) == list(metadata.topics) and again.next_producer_id == 7


@pytest.mark.parametrize("encoded_at_once", [1000, 1])
def test_a_rewritten_journal_has_the_topics_whose_creation_has_not_ended(
    path: Path, monkeypatch: pytest.MonkeyPatch, encoded_at_once: int
) -> None:
    """The journal is rewritten by the change that begins the creation of the topics, or by a later
    change before their logs exist. If it lacked these topics, a start would treat their directories
    as topics without settings.
    """
    monkeypatch.setattr(metadata_module, "SMALLEST_REWRITE", 6)
    monkeypatch.setattr(metadata_module, "REWRITE_FACTOR", 1)
    monkeypatch.setattr(journal_file, "ENCODED_AT_ONCE", encoded_at_once)
    for change_count in range(12):
        path.unlink(missing_ok=True)
        metadata = opened(path)
        for number in range(change_count):
            metadata.set_next_producer_id(number)
        metadata.begin_topics([Topic("a", IDS[0], 2, {"retention.ms": "1"}), Topic("b", IDS[1], 1)])
        for number in range(change_count, 24):
            metadata.on_tick()
            metadata.set_next_producer_id(number)
            assert list(opened(path).topics.values()) == list(metadata.coming.values())


def test_a_deletion_is_stored_until_it_is_complete(path: Path) -> None:
    """The journal is rewritten in between, and must still have the deletions that are not
    complete.
    """
    metadata = opened(path)
    for number in range(1, 5):
        metadata.create_topic(f"t{number}", uuid.UUID(int=number), 1, {})
    metadata.end_deletion(metadata.delete_topics(["t1"])[0])
    metadata.delete_topics(["t2"])
    for _ in range(SMALLEST_REWRITE):
        metadata.set_next_producer_id(metadata.next_producer_id + 1)
    assert path.stat().st_size < 1000
    metadata.delete_topics(["t3"])
    metadata.create_topic("t3", uuid.UUID(int=33), 1, {})
    metadata.close()
    again = opened(path)
    assert again.deletions == {uuid.UUID(int=2): "t2", uuid.UUID(int=3): "t3"}
    assert list(again.topics) == ["t4", "t3"]
    again.end_deletion(uuid.UUID(int=2))
    again.close()
    assert opened(path).deletions == {uuid.UUID(int=3): "t3"}


def test_a_setting_of_a_topic_under_its_former_name_is_kept(path: Path) -> None:
    former = {
        "kind": "topic",
        "name": "t",
        "id": IDS[0].bytes,
        "partitions": 1,
        "configs": {"remote.copy.disable": "true"},
    }
    path.write_bytes(HEADER + frame(former))
    metadata = opened(path)
    assert metadata.topics["t"].configs == {"remote.log.copy.disable": "true"}
    metadata.close()


@pytest.mark.parametrize("way", ["kill", "lose_power"])
def test_changes_made_during_a_rewrite_survive_a_crash(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change is made at each step of the rewrite. Neither a kill nor a power loss loses a
    change.
    """
    monkeypatch.setattr(metadata_module, "SMALLEST_REWRITE", 12)
    monkeypatch.setattr(metadata_module, "REWRITE_FACTOR", 1)
    most_steps = 3  # the new file, the changes made in the meantime, the rename
    for steps in range(most_steps + 1):
        disk = SimDisk(Worst(), lambda: 0)
        disk.mkdir("/data")
        disk.fsync_dir("/")
        metadata, outbox = ClusterMetadata(disk, "/data/journal"), Outbox()
        metadata.run_steps = Syncs(outbox).run
        while not outbox.flushes:
            metadata.set_next_producer_id(metadata.next_producer_id + 1)
        for step in range(steps + 1):
            metadata.create_topic(f"t{step}", uuid.UUID(int=step + 1), 1, {})
            if step < steps:
                (job,) = outbox.flushes
                outbox.flushes.clear()
                for file in job.files:
                    file.fsync()
                assert job.then is not None
                job.then(0)
        assert bool(outbox.flushes) == (steps < most_steps)
        getattr(disk, way)()
        again = ClusterMetadata(disk, "/data/journal")
        assert list(again.topics) == [f"t{step}" for step in range(steps + 1)]
        assert again.next_producer_id == metadata.next_producer_id


def test_a_stop_during_a_rewrite_removes_the_unfinished_file(path: Path) -> None:
    metadata = opened(path)
    metadata.rewriting = metadata_module.Rewriting(iter(()), 1)
    new = Path(f"{path}{REPLACING_SUFFIX}")
    new.write_bytes(b"half")
    metadata.close()
    assert not new.exists() and metadata.rewriting is None
