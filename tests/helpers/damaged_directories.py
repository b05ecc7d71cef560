"""A small log directory with every kind of file, in which one file is damaged, and a check of how
the broker handles the damage. Two outcomes are correct.

The broker starts. Then every batch outside the damage can be read, or is in a file that was set
aside, or its partition is offline with an error that names the file. The state of the journal and
the coordinators is complete, unless their own files are damaged. In this case the log reports the
damage.

Or the broker refuses to start. Then one line names the file and says what to do.

`python -m helpers.damaged_directories` tries every byte.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from barnabas.broker.core import Broker
from barnabas.broker.settings.config import BrokerConfig
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.daemon.opening import open_broker
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.records import NewRecord, batches_in, encode_batch, records_of
from barnabas.storage.disk import Slice
from barnabas.storage.files.checkpoints import METADATA_JOURNAL_NAME
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.log.log_reader import Isolation
from barnabas.storage.opening.last_run import BOOT_ID_NAME
from helpers.admin_host import NOW_MS, AdminHost, CountedIds, creatable
from helpers.hard_state import hard_state
from helpers.scratch import IN_MEMORY, SamePlaceDisk, scratch_directory

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.segment.bytes": "1200",
    "transaction.state.log.segment.bytes": "1200",
    "barnabas.transaction.durability": "os",
    "log.retention.ms": "-1",
}
WAYS = ("clean", "killed")
KINDS = ("truncate", "flip", "delete")
ADVICE = ("restore", "remove", "move", "truncate", "delete", "copy", "give", "use")


class Damage(NamedTuple):
    """A change of one file: it is truncated at a byte, one byte is changed, or the file is
    deleted.
    """

    way: str
    name: str
    kind: str
    at: int
    value: int = 1


class Original(NamedTuple):
    """The directory before it is damaged, and the state of the broker that wrote it."""

    path: str
    topics: dict[str, Any]
    broker_configs: dict[str, str]
    next_producer_id: int
    transactions: dict[str, Any]
    groups: Any
    batches: dict[
        tuple[str, int], list[tuple[int, int, str, int, bytes]]
    ]  # base offset, last offset, file, position and bytes of each batch
    committed: dict[tuple[str, int], dict[int, bytes | None]]


# --- a directory with something of everything ---------------------------------------------------


def history(path: Path) -> AdminHost:
    """A broker with a varied history. It has topics with settings, of which one was deleted and one
    got further partitions; groups with plain and transactional offsets; and transactions with every
    outcome.
    """
    host = AdminHost(
        path,
        disk=SamePlaceDisk(),
        **{name.replace(".", "_"): value for name, value in SETTINGS.items()},
    )
    small: dict[str, str | None] = {"segment.bytes": "700", "index.interval.bytes": "100"}
    host.create(
        creatable("plain", 2, configs=small),
        creatable("payments", 1, configs=small),
        creatable("gone", 1),
    )
    host.call(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000), 4)
    produce(host, "plain", 0, [b"a%d" % number for number in range(3)])
    identity = start_session(host, "paying")
    for turn in range(4):
        transact(host, "paying", identity, turn, commit=turn != 1)
        produce(host, "plain", 0, [b"p%d" % turn] * 4)
        produce(host, "plain", 1, [b"q" * 60])
        commit_offset(host, "billing", turn)
    other = start_session(host, "left open")
    add_partition(host, "left open", other)
    produce(
        host, "payments", 0, [b"open"], identity=other, transactional_id="left open", sequence=0
    )
    host.broker.topics.partition("plain", 0).delete_records_before(2)  # type: ignore[union-attr]
    host.broker.logs.write_starts()
    return host


def produce(
    host: AdminHost,
    topic: str,
    index: int,
    values: list[bytes],
    *,
    identity: Any = None,
    transactional_id: str | None = None,
    sequence: int = -1,
) -> None:
    """Write a batch of these values, and check that it was accepted."""
    records = [NewRecord(b"key", value, NOW_MS) for value in values]
    batch = encode_batch(records)
    if identity is not None:
        batch = encode_batch(
            records,
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
            transactional=True,
        )
    data = [
        TopicProduceData(
            name=topic,
            partition_data=[PartitionProduceData(index=index, records=bytes(batch))],
        )
    ]
    request = ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=data
    )
    (answer,) = host.call(request, 9).responses[0].partition_responses
    assert answer.error_code == Code.NONE, answer


def start_session(host: AdminHost, transactional_id: str) -> tuple[int, int]:
    """Start a session of the transactional id, and return the producer id and epoch."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    answer = host.call(request, 4)
    assert answer.error_code == Code.NONE
    return answer.producer_id, answer.producer_epoch


def add_partition(host: AdminHost, transactional_id: str, identity: tuple[int, int]) -> None:
    """Add payments-0 to the transaction."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity[0],
        v3_and_below_producer_epoch=identity[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="payments", partitions=[0])],
    )
    assert (
        host.call(request, 3)
        .results_by_topic_v3_and_below[0]
        .results_by_partition[0]
        .partition_error_code
        == Code.NONE
    )


def transact(
    host: AdminHost, transactional_id: str, identity: tuple[int, int], turn: int, *, commit: bool
) -> None:
    """Write two records and an offset of the group "billing" in a transaction, and end it."""
    add_partition(host, transactional_id, identity)
    produce(
        host,
        "payments",
        0,
        [b"t%d" % turn] * 2,
        identity=identity,
        transactional_id=transactional_id,
        sequence=2 * turn,
    )
    names = {
        "transactional_id": transactional_id,
        "producer_id": identity[0],
        "producer_epoch": identity[1],
    }
    assert host.call(AddOffsetsToTxnRequest(group_id="billing", **names), 3).error_code == Code.NONE
    offset = TxnOffsetCommitRequestPartition(
        partition_index=1, committed_offset=turn, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        group_id="billing",
        generation_id=-1,
        member_id="",
        topics=[TxnOffsetCommitRequestTopic(name="plain", partitions=[offset])],
        **names,
    )
    assert host.call(request, 3).topics[0].partitions[0].error_code == Code.NONE
    assert host.call(EndTxnRequest(committed=commit, **names), 3).error_code == Code.NONE


def commit_offset(host: AdminHost, group: str, offset: int) -> None:
    """Commit an offset of plain-0 for a group without members."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="note"
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="plain", partitions=[partition])],
    )
    assert host.call(request, 7).topics[0].partitions[0].error_code == Code.NONE


@cache
def original(way: str) -> Original:
    """The directory after `history`.

    Takes: way, whether the broker was stopped cleanly ("clean") or killed.
    """
    host = history(Path(scratch_directory()))
    broker = host.broker
    data_dir = broker.logs.data_dir
    if way == "clean":
        host.close()
        path = data_dir
    else:
        path = scratch_directory()
        shutil.copytree(data_dir, path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))
    for name in ("cleaner-offset-checkpoint", ".lock"):
        Path(path, name).unlink(missing_ok=True)
    reader = opened(shutil.copytree(path, scratch_directory() + "/data"))
    return Original(
        path,
        topics_of(reader),
        dict(reader.metadata.broker_configs),
        reader.metadata.next_producer_id,
        reader.transactions.snapshot(),
        hard_state(reader.groups),
        {key: batches_on_disk(Path(path), *key) for key in reader.logs.logs},
        {key: committed_values(log) for key, log in reader.logs.logs.items()},
    )


def opened(path: str) -> Broker:
    """A broker opened on the directory."""
    properties = {"node.id": "7", "log.dirs": path, **SETTINGS}
    return open_broker(
        BrokerConfig.from_properties(properties), CountedIds(), disk=SamePlaceDisk(), now_ms=NOW_MS
    )


def topics_of(broker: Broker) -> dict[str, Any]:
    """Id, number of partitions and settings of each topic."""
    return {
        name: (topic.topic_id, topic.partition_count, dict(topic.configs))
        for name, topic in broker.metadata.topics.items()
    }


def batches_on_disk(path: Path, topic: str, index: int) -> list[tuple[int, int, str, int, bytes]]:
    """The batches of a partition, each as base offset, last offset, file, position and content."""
    found = []
    for file in sorted(path.joinpath(f"{topic}-{index}").glob("*.log")):
        data = file.read_bytes()
        for position, header in batches_in(data):
            content = data[position : position + header.size_bytes]
            found.append(
                (
                    header.base_offset,
                    header.last_offset,
                    f"{topic}-{index}/{file.name}",
                    position,
                    content,
                )
            )
    return found


def content_of(piece: Slice | None) -> bytes:
    return b"" if piece is None else piece.file.pread(piece.size, piece.position)


def committed_values(log: Log) -> dict[int, bytes | None]:
    """The values, by offset, that a read_committed consumer of the partition gets."""
    found: dict[int, bytes | None] = {}
    at = log.log_start_offset
    while at < log.last_stable_offset:
        data = log.read(at, max_bytes=1, isolation=Isolation.READ_COMMITTED, min_one_batch=True)
        raw = content_of(data.slice)
        assert raw, f"{log!r} gives nothing at {at}"
        for position, header in batches_in(raw):
            aborted = any(
                header.producer_id == row.producer_id and row.first_offset <= header.base_offset
                for row in data.aborted or ()
            )
            if not (header.is_control or (header.is_transactional and aborted)):
                found |= {
                    record.offset: record.value
                    for record in records_of(raw[position:])
                    if record.offset >= log.log_start_offset
                }
            at = header.next_offset
    return found


def files_of(way: str) -> dict[str, int]:
    """Every file of the directory, with its size."""
    path = Path(original(way).path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.stat().st_size for file in files}


# --- the damage, and what may come of it --------------------------------------------------------


def inflict(path: Path, damage: Damage) -> None:
    """Delete, truncate or change the file that the damage names."""
    file = path / damage.name
    if damage.kind == "delete":
        file.unlink()
        return
    data = bytearray(file.read_bytes())
    if damage.kind == "truncate":
        del data[damage.at :]
    else:
        data[damage.at] ^= damage.value
    file.write_bytes(data)


class Complaints(logging.Handler):
    """Collects what the broker logs at WARNING and above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert record.exc_info is None, "a traceback in the log"
        self.texts.append(record.getMessage())


def check(damage: Damage) -> str:
    """Start a broker on a damaged copy of the directory. Return a word for what happened.

    Raises: AssertionError if the broker handles the damage wrongly.
    """
    before = original(damage.way)
    complaints = Complaints()
    root = logging.getLogger()
    root.addHandler(complaints)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as scratch:
        copy = Path(shutil.copytree(before.path, Path(scratch, "data")))
        inflict(copy, damage)
        try:
            broker = opened(str(copy))
        except LogDirectoryError as error:
            root.removeHandler(complaints)
            check_refusal(damage, str(error))
            return "refused"
        try:
            lost = check_batches(damage, before, broker, copy, complaints)
            check_knowledge(damage, before, broker, complaints, lost=lost)
            if broker.logs.offline:
                return "off line"
            return "said" if complaints.texts else "silent"
        finally:
            root.removeHandler(complaints)
            broker.close_logs(NOW_MS)


def check_refusal(damage: Damage, text: str) -> None:
    """Check that the error names the file and a remedy, and that the broker cannot start without
    the file.
    """
    assert "\n" not in text, text
    assert damage.name in text or damage.name.split("/")[0] in text, (
        f"the error does not name {damage.name}: {text}"
    )
    assert any(word in text.lower() for word in ADVICE), (
        f"the error does not say what to do: {text}"
    )
    assert damage.name in (METADATA_JOURNAL_NAME, "meta.properties") or damage.name.startswith(
        "__"
    ), f"for {damage.name} the broker need not stay down: {text}"


def is_touched(damage: Damage, name: str, position: int, size: int) -> bool:
    """Whether the damage affects the batch at this position of the file `name`."""
    if name != damage.name:
        return False
    if damage.kind == "flip":
        return position <= damage.at < position + size
    return damage.kind == "delete" or position + size > damage.at


def check_batches(
    damage: Damage, before: Original, broker: Broker, copy: Path, complaints: Complaints
) -> bool:
    """Check that every undamaged batch can be read, or was set aside, or is in a partition that is
    offline with an error. Return whether any batch is lost.
    """
    lost = False
    for key, batches in before.batches.items():
        topic, index = key
        error = broker.logs.offline.get(key)
        if error is not None:
            assert damage.name.startswith(f"{topic}-{index}/"), (
                f"{topic}-{index} is off line by the damage of {damage.name}"
            )
            assert f"{topic}-{index}" in str(error) and any(
                word in str(error).lower() for word in ADVICE
            ), str(error)
            lost = True
            continue
        log = broker.topics.partition(topic, index)
        assert log is not None, f"{topic}-{index} is not there"
        aside = b"".join(
            file.read_bytes()
            for file in sorted(copy.joinpath(f"{topic}-{index}").glob("*.set-aside*"))
        )
        for base, last, name, position, content in batches:
            if last < log.log_start_offset:
                lost |= last >= original_start(key)
                assert not lost or is_touched(damage, name, position, len(content)), (
                    f"{topic}-{index} lost its first records up to {last}"
                )
                continue
            found = read_batch(log, max(base, log.log_start_offset))
            if found == content:
                continue
            touched = is_touched(damage, name, position, len(content))
            if name == damage.name and is_in_a_base_offset(damage, before):
                # No checksum covers the base offset of a batch. If it is slightly wrong, the
                # batches around it are not found, as in Apache Kafka.
                continue
            if (
                touched
                and damage.kind == "flip"
                and (found is not None or base < log.log_end_offset)
            ):
                # A consumer gets either the changed batch, whose checksum does not match, or an
                # error that names the file.
                continue
            assert (
                touched
                or content in aside
                or (found is None and damage.name.startswith(f"{topic}-{index}/"))
            ), (
                f"the batch at {base} of {topic}-{index} is whole in {name}, and is not read: "
                f"{found!r}"
            )
            lost = True
        if (
            damage.name.startswith(f"{topic}-{index}/") and damage.name.endswith(".log")
        ) or topic.startswith("__"):
            continue
        assert committed_values(log) == before.committed[key], (
            f"{topic}-{index}: what is committed differs"
        )
    if lost and (
        damage.way == "clean" or damage.kind == "flip"
    ):  # after a kill, nothing shows that the last batch or the last file is missing
        assert complaints.texts, f"batches are gone, and nothing is said of {damage}"
    return lost


def is_in_a_base_offset(damage: Damage, before: Original) -> bool:
    """Whether the damage changed one of a batch's first eight bytes."""
    positions = [
        row[3]
        for batches in before.batches.values()
        for row in batches
        if row[2] == damage.name and row[3] <= damage.at
    ]
    return damage.kind == "flip" and bool(positions) and damage.at - max(positions) < 8


def original_start(key: tuple[str, int]) -> int:
    return 2 if key == ("plain", 0) else 0


def read_batch(log: Log, offset: int) -> bytes | None:
    """Return the batch that contains the offset, or None if there is no such batch or the read
    fails.
    """
    if offset >= log.log_end_offset:
        return None
    try:
        raw = content_of(log.read(offset, max_bytes=1, min_one_batch=True).slice)
    except KafkaError as error:
        assert error.code == Code.KAFKA_STORAGE_ERROR and ".log" in str(error), error
        return None
    return next((raw[at : at + header.size_bytes] for at, header in batches_in(raw)), None)


def check_knowledge(
    damage: Damage, before: Original, broker: Broker, complaints: Complaints, *, lost: bool
) -> None:
    """Check that topics, settings, groups and transactions are complete, unless the damage is in
    the file that stores them.
    """
    # If the boot id is missing, the broker treats any unclean stop as a power loss, and gives each
    # transactional id another producer id.
    seems_powerless = damage.name == BOOT_ID_NAME and damage.way == "killed"
    if damage.name == METADATA_JOURNAL_NAME:
        assert set(broker.metadata.topics) >= {key[0] for key in before.batches}, (
            "a topic whose directory is there is gone"
        )
        assert {
            name: row[0] for name, row in topics_of(broker).items() if name in before.topics
        } == {name: row[0] for name, row in before.topics.items()}, (
            "topic ids are those that the directories have"
        )
        used = max(metadata.producer_id for metadata in before.transactions.values())
        assert broker.routes.parts.producer_ids.allocate() > used, (
            "a producer id is given out twice"
        )
        assert complaints.texts or damage.kind != "flip", (
            f"the journal was changed at {damage.at}, and nothing is said"
        )
    else:
        assert topics_of(broker) == before.topics
        assert dict(broker.metadata.broker_configs) == before.broker_configs
        given_out = broker.metadata.next_producer_id
        assert given_out == before.next_producer_id or (
            seems_powerless and given_out > before.next_producer_id
        )
    if seems_powerless:
        return
    if is_in_a_base_offset(damage, before):
        # The state of a group includes the offsets of its records in the log, which this damage
        # changes.
        return
    if not (lost and damage.name.startswith(TRANSACTIONS_TOPIC)):
        assert broker.transactions.snapshot() == before.transactions
    if not (lost and damage.name.startswith((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))):
        assert hard_state(broker.groups) == before.groups


# --- every byte ---------------------------------------------------------------------------------


def all_damages(way: str, every: int) -> Iterator[Damage]:
    """The damages to try on each file: its deletion, and at every n-th byte a truncation and a
    changed byte.
    """
    random = Random(1)
    for name, size in files_of(way).items():
        yield Damage(way, name, "delete", 0)
        for at in range(random.randrange(every), size, every):
            yield Damage(way, name, "truncate", at)
            yield Damage(way, name, "flip", at, random.randrange(1, 256))


def main() -> int:
    """Try all kinds of damage, and return 0 if the broker handled each of them correctly."""
    options = argparse.ArgumentParser(
        prog="python -m helpers.damaged_directories", description=__doc__
    )
    options.add_argument(
        "--every", type=int, default=1, help="try only one byte of so many (default: every one)"
    )
    options.add_argument("--file", default="", help="only files whose names contain this")
    arguments = options.parse_args()
    logging.lastResort = None
    outcomes: dict[str, int] = {}
    failures: dict[str, tuple[int, Damage]] = {}
    began = time.perf_counter()
    for way in WAYS:
        for damage in all_damages(way, arguments.every):
            if arguments.file not in damage.name:
                continue
            try:
                outcome = check(damage)
            except Exception as error:
                outcome = "FAILED"
                what = f"{type(error).__name__}: {str(error)[:300]}"
                key = f"{damage.way} {damage.kind} {damage.name}: {what}"
                failures[key] = (failures.get(key, (0, damage))[0] + 1, damage)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    for key, (count, damage) in failures.items():
        print(f"{count} times: {key}\n    {damage}")
    print(f"{outcomes} in {time.perf_counter() - began:.0f} s")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
