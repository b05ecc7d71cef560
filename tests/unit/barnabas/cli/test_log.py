"""`barnabas log` on directories that Apache Kafka 3.9 wrote, unchanged and damaged."""

from __future__ import annotations

import random
import shutil
import uuid
from pathlib import Path

import pytest
from fuzz.damage import directory
from helpers.admin_host import NOW_MS, AdminHost, creatable
from helpers.cli_commands import CommandLine
from helpers.disk_broker import DATA_DIR
from helpers.places import TESTS

from barnabas.broker.transactions.cut_history import Cut, CutHistory, Track, encode_cut
from barnabas.broker.transactions.cuts import CUTS_NAME
from barnabas.broker.transactions.unwritten_markers import (
    UNWRITTEN_MARKERS_NAME,
    UnwrittenMarker,
    UnwrittenMarkers,
)
from barnabas.cli.log_verify import Fault, verify_partition
from barnabas.coordinator.transactions.transaction_records import encode_key, encode_value
from barnabas.coordinator.transactions.transaction_state import (
    TransactionMetadata,
    TransactionState,
)
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.data_files import OF_DIRECTORY, OF_PARTITION
from barnabas.storage.files.flush_journal import (
    FlushJournal,
    JournalDecision,
    PartitionEnd,
)
from barnabas.storage.files.segment_files import SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX
from barnabas.storage.log.broker_appends import append_records

FIXTURES = TESTS / "fixtures"
LOGDIR = FIXTURES / "kafka-logdir" / "logdir"
RESTARTED = FIXTURES / "kafka-logdir-restarted" / "logdir"
SEGMENT = "00000000000000000003"
# Changes of these files need not be found: no other file contradicts a wrong topic id, for example,
# or a wrong start of the only epoch.
UNCHECKED = ("partition.metadata", "leader-epoch-checkpoint", "quorum-state")


@pytest.fixture
def barnabas(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line."""
    return CommandLine(monkeypatch, capsys)


def faults_of(directory: Path) -> tuple[Fault, ...]:
    """The faults that `barnabas log` finds in the directory of a partition that no broker uses."""
    return verify_partition(
        str(directory), in_use=False, compacted=False, opens=True, advance=lambda count: None
    ).faults


@pytest.mark.parametrize(("logdir", "partitions"), [(LOGDIR, 9), (RESTARTED, 10)])
def test_directory_of_kafka_has_no_faults(
    barnabas: CommandLine, logdir: Path, partitions: int
) -> None:
    shown = barnabas.ok("log", "verify", str(logdir), "--json").data
    assert (shown["good"], shown["faults"], shown["partitions"]) == (True, [], partitions)
    assert [row["partition"] for row in shown["open_transactions"]] == ["txn-0"]
    assert "no faults" in barnabas.ok("log", "verify", str(logdir)).out


@pytest.mark.parametrize("partition", ["txn-0", "txn-1", "plain-0", "__transaction_state-0"])
def test_each_changed_bit_and_cut_is_found(tmp_path: Path, partition: str) -> None:
    directory = tmp_path / partition
    shutil.copytree(RESTARTED / partition, directory)
    chance = random.Random(partition)
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        if not data or path.name in UNCHECKED:
            continue
        for at in chance.sample(range(len(data)), min(25, len(data))):
            bit = chance.randrange(8)
            if path.suffix == ".timeindex" and at % 12 == 11:
                continue  # the changed offset may belong to the same batch, which is no fault
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            assert faults_of(directory), f"{path.name}: bit {bit} of byte {at}"
        # a time index without its last byte only makes look-ups slower
        if path.suffix != ".timeindex":
            path.write_bytes(data[:-1])
            assert faults_of(directory), f"{path.name} without its last byte"
        path.write_bytes(data)
        assert faults_of(directory) == (), path.name


def test_fault_is_named_with_file_and_position(barnabas: CommandLine, tmp_path: Path) -> None:
    shutil.copytree(LOGDIR / "txn-0", tmp_path / "txn-0")
    path = tmp_path / "txn-0" / f"{SEGMENT}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    run = barnabas("log", "verify", str(tmp_path / "txn-0"), "--json")
    assert run.code == 3
    (fault,) = run.data["faults"]
    assert fault["file"] == str(path)
    assert "CRC" in fault["fault"]
    last = barnabas.ok("log", "dump", str(path), "--json").lines[-1]
    assert (fault["position"], last["crc_is_right"]) == (last["position"], False)


def test_missing_segment_and_index_without_segment(tmp_path: Path) -> None:
    shutil.copytree(LOGDIR / "txn-0", tmp_path / "txn-0")
    (tmp_path / "txn-0" / f"{SEGMENT}.log").unlink()
    texts = [fault.text for fault in faults_of(tmp_path / "txn-0")]
    assert any("the offsets 3 to 27 are missing" in text for text in texts)
    assert any("no segment of that name" in text for text in texts)


def test_an_empty_file_of_leader_epochs_is_as_kafka_makes_it(tmp_path: Path) -> None:
    """Kafka creates the file empty. With batches in the log, their epochs are missing in it."""
    directory = tmp_path / "plain-0"
    directory.mkdir()
    (directory / f"{0:020}.log").touch()
    for data, good in ((b"", True), (b"0\n", False)):
        (directory / "leader-epoch-checkpoint").write_bytes(data)
        assert (faults_of(directory) == ()) is good
    shutil.copytree(LOGDIR / "plain-0", directory, dirs_exist_ok=True)
    (directory / "leader-epoch-checkpoint").write_bytes(b"")
    assert "leader-epoch-checkpoint lacks the epoch 0" in faults_of(directory)[0].text


def test_unfinished_end_is_no_fault_where_a_broker_writes(tmp_path: Path) -> None:
    directory = tmp_path / "plain-0"
    shutil.copytree(LOGDIR / "plain-0", directory)
    path = directory / "00000000000000000000.log"
    data = path.read_bytes()
    path.write_bytes(data + data[:70])
    assert "the next start cuts it off" in faults_of(directory)[0].text
    report = verify_partition(
        str(directory), in_use=True, compacted=False, opens=True, advance=lambda count: None
    )
    assert report.faults == ()


@pytest.mark.parametrize("offset", range(1, 7))
@pytest.mark.parametrize("is_running", [False, True])
def test_leader_epochs_begin_with_the_log_after_records_were_deleted(
    tmp_path: Path, offset: int, is_running: bool
) -> None:
    """The first segment may still contain deleted records. The report must omit the leader epochs
    that only these records have.
    """
    for _ in range(3):  # each start begins a leader epoch
        host = AdminHost(tmp_path)
        if "t" not in host.broker.topics:
            host.create(creatable("t", 1))
        (log,) = host.broker.topics.logs_of("t")
        for _ in range(2):
            append_records(log, [(b"k", b"v")], NOW_MS)
        if log.log_end_offset == 6:
            log.delete_records_before(offset)
            host.broker.on_tick(NOW_MS)
        if not is_running or log.log_end_offset < 6:
            host.broker.close_logs(NOW_MS)
    report = verify_partition(
        str(tmp_path / "data" / "t-0"),
        in_use=is_running, compacted=False, opens=True, advance=lambda count: None,
    )  # fmt: skip
    assert (report.faults, report.log_end_offset) == ((), 6)


def test_partitions_of_one_topic_have_one_id(barnabas: CommandLine, tmp_path: Path) -> None:
    shutil.copytree(LOGDIR, tmp_path / "logdir")
    other = (LOGDIR / "txn-0" / "partition.metadata").read_bytes()
    (tmp_path / "logdir" / "plain-1" / "partition.metadata").write_bytes(other)
    run = barnabas("log", "verify", str(tmp_path / "logdir"))
    assert (run.code, "has another topic id" in run.out) == (3, True)


def test_damaged_checkpoint_is_named(barnabas: CommandLine, tmp_path: Path) -> None:
    shutil.copytree(LOGDIR, tmp_path / "logdir")
    (tmp_path / "logdir" / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\nplain 0")
    run = barnabas("log", "verify", str(tmp_path / "logdir"))
    assert (run.code, "recovery-point-offset-checkpoint" in run.out) == (3, True)


def test_directory_that_is_none(barnabas: CommandLine, tmp_path: Path) -> None:
    run = barnabas("log", "verify", str(tmp_path))
    assert (run.code, "neither a data directory" in run.err) == (1, True)


def test_dump_of_a_segment_with_its_records(barnabas: CommandLine) -> None:
    path = str(LOGDIR / "txn-0" / f"{SEGMENT}.log")
    rows = barnabas.ok("log", "dump", path, "--records", "--json").lines
    assert {row["kind"] for row in rows} == {"transactional", "commit", "abort"}
    assert [row["base_offset"] for row in rows] == sorted(row["base_offset"] for row in rows)
    assert all(len(row["records"]) == row["record_count"] for row in rows)
    words = barnabas.ok("log", "dump", path, "--records").out
    assert "commit marker" in words
    assert len(barnabas.ok("log", "dump", path, "--json", "-n", "2").lines) == 2


def test_dump_of_indexes_and_snapshots(barnabas: CommandLine) -> None:
    directory = LOGDIR / "txn-0"
    (aborted,) = barnabas.ok("log", "dump", str(directory / f"{SEGMENT}.txnindex"), "--json").lines
    batches = barnabas.ok("log", "dump", str(directory / f"{SEGMENT}.log"), "--json").lines
    markers = {row["last_offset"]: row for row in batches if row["kind"] == "abort"}
    assert markers[aborted["last_offset"]]["producer_id"] == aborted["producer_id"]
    times = barnabas.ok("log", "dump", str(directory / f"{SEGMENT}.timeindex"), "--json").lines
    assert [row["timestamp_ms"] for row in times] == [
        max(row["max_timestamp_ms"] for row in batches)
    ]
    snapshot = barnabas.ok("log", "dump", str(directory / f"{SEGMENT}.snapshot"), "--json").lines
    assert [row["last_offset"] for row in snapshot] == [2]
    unknown = barnabas("log", "dump", str(FIXTURES / "kafka-logdir" / "expected.json"))
    assert (unknown.code, "not a file of a data directory" in unknown.err) == (1, True)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_preallocated_index_of_apache_kafka_is_dumped_as_empty(
    barnabas: CommandLine, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"{SEGMENT}.{suffix}"
    path.write_bytes(bytes(10_485_760 - 10_485_760 % 12))
    assert barnabas.ok("log", "dump", str(path), "--json").lines == []


def test_records_of_internal_topics_are_dumped_field_by_field(barnabas: CommandLine) -> None:
    path = str(LOGDIR / "__consumer_offsets-0" / "00000000000000000000.log")
    rows = barnabas.ok("log", "dump", path, "--records", "--json").lines
    record = rows[0]["records"][0]
    assert (record["kind"], record["group"], record["topic"]) == ("offset", "readers", "plain")
    assert record["committed_offset"] == 1
    path = str(LOGDIR / "__transaction_state-0" / "00000000000000000000.log")
    rows = barnabas.ok("log", "dump", path, "--records", "--json").lines
    states = {record["state"] for row in rows for record in row["records"]}
    assert {"Empty", "Ongoing", "PrepareCommit", "CompleteCommit"} <= states


def test_flush_journal_is_dumped_and_verified(barnabas: CommandLine, tmp_path: Path) -> None:
    shutil.copytree(LOGDIR, tmp_path / "logdir")
    data_dir = str(tmp_path / "logdir")
    journal = FlushJournal(OsDisk(), data_dir)
    shown = TransactionMetadata("payments", 7, 1, 60_000, TransactionState.PREPARE_COMMIT)
    topic_id = uuid.UUID(int=5)
    journal.append([("plain", 0, topic_id.bytes, 0, 10, b"\0" * 61)])
    journal.note_flushed()
    decision = JournalDecision(
        encode_key("payments"), encode_value(shown), (PartitionEnd("plain", 0, topic_id.bytes, 9),)
    )
    journal.append([], [decision])
    (path,) = Path(data_dir).glob("*.journal")
    data, shown_decision = barnabas.ok("log", "dump", str(path), "--json").lines
    assert (data["kind"], data["topic"], data["size_bytes"]) == ("data", "plain", 61)
    assert (shown_decision["kind"], shown_decision["transactional_id"]) == ("decision", "payments")
    assert (shown_decision["state"], shown_decision["ends"]) == ("PrepareCommit", ["plain-0@9"])
    barnabas.ok("log", "verify", data_dir)
    damaged = bytearray(path.read_bytes())
    damaged[40] ^= 1
    path.write_bytes(damaged)
    run = barnabas("log", "verify", data_dir)
    assert (run.code, "says it was durable" in run.out) == (3, True)


# --- each kind of file ----------------------------------------------------------------------------

OF_PATTERNS = (
    *(f"{SEGMENT}{suffix}" for suffix in SEGMENT_SUFFIXES),
    f"{SEGMENT}{SNAPSHOT_SUFFIX}",
    f"{SEGMENT}.log.set-aside-2",
    "barnabas-flush-0000000001.journal",
    "barnabas-cuts.next",
)
KINDS = [
    kind.name
    if isinstance(kind.name, str)
    else next(name for name in OF_PATTERNS if kind.has_name(name))
    for kind in (*OF_PARTITION, *OF_DIRECTORY)
]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("under_way", ["", ".tmp"])
def test_each_kind_of_file_is_printed_and_one_that_cannot_be_read_is_explained(
    barnabas: CommandLine, tmp_path: Path, name: str, under_way: str
) -> None:
    path = tmp_path / (name + under_way)
    for data in (b"", b"\xff" * 100, bytes(range(256)), b"0\n1\na\n"):
        path.write_bytes(data)
        run = barnabas("log", "dump", str(path))
        if run.code:
            assert f"{path} cannot be read: " in run.err, (data, run)
        else:
            assert run.out or ("is empty" in run.err) == (not data), (data, run)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_each_file_of_a_broker_is_printed(
    barnabas: CommandLine, tmp_path: Path, is_stopped: bool
) -> None:
    for name, data in directory(is_stopped=is_stopped).items():
        path = tmp_path / Path(name).relative_to(DATA_DIR)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        run = barnabas.ok("log", "dump", str(path), "--records", "--json")
        assert "unreadable" not in run.out and '"error"' not in run.out, (name, run)
    sizes = barnabas.ok("log", "dump", str(tmp_path / "barnabas-metadata.journal.size"), "--json")
    journal = tmp_path / "barnabas-metadata.journal"
    assert max(row["journal_bytes"] for row in sizes.lines) == journal.stat().st_size
    epoch = barnabas.ok("log", "dump", str(tmp_path / "barnabas-leader-epoch"), "--json")
    assert epoch.lines == [{"leader_epoch": 0}]


def test_unwritten_markers_are_printed(barnabas: CommandLine, tmp_path: Path) -> None:
    topic_id = uuid.uuid4()
    markers = UnwrittenMarkers(OsDisk(), str(tmp_path))
    markers.add([UnwrittenMarker("t", 3, topic_id.bytes, 7, 1, 0, False, NOW_MS)])
    path = tmp_path / UNWRITTEN_MARKERS_NAME
    (row,) = barnabas.ok("log", "dump", str(path), "--json").lines
    assert (row["topic"], row["partition"], row["topic_id"]) == ("t", 3, str(topic_id))
    assert (row["producer_id"], row["marker"], row["decided_ms"]) == (7, "abort", NOW_MS)
    path.write_bytes(path.read_bytes()[:-1])
    assert "its checksum is wrong" in barnabas("log", "dump", str(path)).err


def test_cuts_are_printed(barnabas: CommandLine, tmp_path: Path) -> None:
    topic_id, history = uuid.uuid4(), CutHistory()
    track = Track(0, (topic_id.bytes, 2), 0)
    history.add(Cut(4, NOW_MS, 1), [track], [(track, 10)])
    frames = [*history.frames(), encode_cut(Cut(5, NOW_MS + 1000, 1), [], [(track, 12)])]
    path = tmp_path / CUTS_NAME
    path.write_bytes(b"".join(frames))
    rows = barnabas.ok("log", "dump", str(path), "--json").lines
    assert [row["time_ms"] for row in rows if row["kind"] == "cut"] == [NOW_MS, NOW_MS + 1000]
    offsets = [row for row in rows if row["kind"] == "offset"]
    assert [(row["cut"], row["partition"], row["offset"]) for row in offsets] == [
        (4, 2, 10),
        (5, 2, 12),
    ]
    assert {row["topic_id"] for row in offsets} == {str(topic_id)}
    path.write_bytes(b"".join(frames)[:-1])
    last = barnabas.ok("log", "dump", str(path), "--json").lines[-1]
    assert (last["kind"], last["size_bytes"]) == ("unreadable", len(frames[-1]) - 1)
    path.write_bytes(frames[0][:-1])
    assert "its beginning are damaged" in barnabas("log", "dump", str(path)).err
