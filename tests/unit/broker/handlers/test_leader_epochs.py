"""Leader epochs (KIP-101, KIP-320). Every start raises them. Clients use them to find out which
records a power loss removed, and coordinators use them as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.core_host import delete_topic, fetch
from helpers.disk_broker import DiskBroker, Producer
from sim.disk import Crash

from barnabas.broker.slices import run_through
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.records import decode_marker
from barnabas.storage.log.append_info import NewMarker

Restart = Callable[[DiskBroker], None]
ENDS = pytest.mark.parametrize("again", [DiskBroker.stop, DiskBroker.kill, DiskBroker.lose_power])


def described_epochs(b: DiskBroker, topic: str) -> list[int]:
    """The leader epochs in Metadata and in DescribeTopicPartitions, which must be equal."""
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    found = [row.leader_epoch for row in b.call(asked, 12).topics[0].partitions]
    described = b.call(
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=topic)], response_partition_limit=100, cursor=None
        ),
        0,
    )
    assert [row.leader_epoch for row in described.topics[0].partitions] == found
    return found


def end_of_epoch(
    b: DiskBroker, topic: str, epoch: int, *, current: int = -1
) -> tuple[int, int, int]:
    """The (code, epoch, end offset) of partition 0 in the response to OffsetForLeaderEpoch."""
    partition = OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    asked = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )
    row = b.call(asked, 4).topics[0].partitions[0]
    return row.error_code, row.leader_epoch, row.end_offset


def listed(b: DiskBroker, topic: str, timestamp: int, *, current: int = -1) -> tuple[int, int, int]:
    """The (code, offset, leader epoch) of partition 0 in the response to ListOffsets."""
    wanted = ListOffsetsPartition(
        partition_index=0, current_leader_epoch=current, timestamp=timestamp
    )
    asked = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
    )
    row = b.call(asked, 7).topics[0].partitions[0]
    return row.error_code, row.offset, row.leader_epoch


def fetch_code(b: DiskBroker, topic: str, current: int, *, offset: int = 0) -> int:
    """The error code of partition 0 in a Fetch with the current leader epoch."""
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=current,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    asked = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )
    code: int = b.call(asked, 11).responses[0].partitions[0].error_code
    return code


def batch_epochs(b: DiskBroker, topic: str) -> list[int]:
    """The leader epoch of each batch in partition 0."""
    log = b.broker.topics.partition(topic, 0)
    assert log is not None
    return [header.leader_epoch for header, _ in log.read_batches()]


@ENDS
def test_each_start_raises_the_leader_epoch_in_every_response(again: Restart) -> None:
    b = DiskBroker()
    b.topic("t", 2)
    assert described_epochs(b, "t") == [0, 0]
    b.produce("t", (b"0",))
    b.sync("")
    for epoch in (1, 2, 3):
        again(b)
        assert described_epochs(b, "t") == [epoch, epoch]
        end = listed(b, "t", -1)[1]
        assert listed(b, "t", -1) == (0, end, epoch)
        assert listed(b, "t", -2) == (0, 0, 0), "the first record is of epoch 0"
        assert end_of_epoch(b, "t", epoch) == (0, epoch, end)
        assert end_of_epoch(b, "t", epoch - 1) == (
            0,
            epoch - 1 if epoch - 1 in batch_epochs(b, "t") else 0,
            end,
        )
        assert end_of_epoch(b, "t", epoch + 1) == (0, -1, -1)
        for code in (
            fetch_code(b, "t", epoch - 1),
            listed(b, "t", -1, current=epoch - 1)[0],
            end_of_epoch(b, "t", 0, current=epoch - 1)[0],
        ):
            assert code == Code.FENCED_LEADER_EPOCH
        for code in (
            fetch_code(b, "t", epoch + 1),
            listed(b, "t", -1, current=epoch + 1)[0],
            end_of_epoch(b, "t", 0, current=epoch + 1)[0],
        ):
            assert code == Code.UNKNOWN_LEADER_EPOCH
        assert fetch_code(b, "t", epoch) == 0
        b.produce("t", (b"%d" % epoch,))
        b.sync("t-0/0")  # only the .log file, since the checkpoint of epochs may be lost
        assert batch_epochs(b, "t")[-1] == epoch


def test_a_new_partition_begins_at_epoch_0_after_any_number_of_starts() -> None:
    b = DiskBroker()
    b.topic("old")
    b.stop()
    b.topic("new")
    run_through(b.broker.topics.add_partitions({"old": 2}, b.now_ms), b.now_ms)
    assert (described_epochs(b, "new"), described_epochs(b, "old")) == ([0], [1, 0])
    b.produce("new", (b"0",))
    assert batch_epochs(b, "new") == [0]
    b.stop()
    assert (described_epochs(b, "new"), described_epochs(b, "old")) == ([2], [2, 2])
    assert end_of_epoch(b, "new", 0) == (0, 0, 1)
    delete_topic(b.parts.deletion, "new", b.now_ms)
    b.topic("new")
    assert described_epochs(b, "new") == [0]


def test_an_epoch_without_records_is_not_used_again_after_a_power_loss() -> None:
    """In this epoch no records were appended, or a power loss removed them. A client may know the
    epoch nevertheless.
    """
    b = DiskBroker()
    b.topic("t")
    b.produce("t", (b"0",))
    b.sync("")
    b.kill()
    assert described_epochs(b, "t") == [1]
    b.produce("t", (b"lost",))
    b.lose_power()
    assert b.read("t") == [b"0"]
    assert described_epochs(b, "t") == [2]
    b.lose_power()
    assert described_epochs(b, "t") == [3]
    assert [end_of_epoch(b, "t", epoch) for epoch in (0, 1, 2, 3)] == [
        (0, 0, 1),
        (0, 0, 1),
        (0, 0, 1),
        (0, 3, 1),
    ]


def test_a_reader_finds_the_truncation_offset_by_the_end_of_its_epoch() -> None:
    """The reader has 15 records. A power loss removed five of them, and five others were
    acknowledged at the same offsets.
    """
    b = DiskBroker()
    b.topic("t")
    for number in range(15):
        b.produce("t", (b"%d" % number,))
        if number == 9:
            b.sync("")
    (epoch,) = described_epochs(b, "t")
    b.lose_power()
    b.produce("t", (b"other",))
    for number in range(10):
        b.produce("t", (b"other %d" % number,))
    (later,) = described_epochs(b, "t")
    assert fetch_code(b, "t", epoch, offset=15) == Code.FENCED_LEADER_EPOCH
    assert end_of_epoch(b, "t", epoch, current=later) == (0, epoch, 10)


def fetch_after(
    b: DiskBroker, topic: str, last_fetched_epoch: int, offset: int, max_wait_ms: int = 0
) -> Any:
    """Send Fetch 12 for partition 0, with the epoch of the last record that the reader has. Gives:
    the partition's part of the response.
    """
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    asked = FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )
    return b.call(asked, 12).responses[0].partitions[0]


def fetch_diverging(
    b: DiskBroker, topic: str, last_fetched_epoch: int, offset: int, max_wait_ms: int = 0
) -> tuple[int, int] | None:
    """Return the epoch and offset at which the reader's log diverges. Gives: None if it does not
    diverge.
    """
    row = fetch_after(b, topic, last_fetched_epoch, offset, max_wait_ms)
    assert row.error_code == Code.NONE
    diverging = row.diverging_epoch
    if (diverging.epoch, diverging.end_offset) == (-1, -1):
        return None
    assert len(row.records) == 0
    return diverging.epoch, diverging.end_offset


def with_a_lost_tail(*commits: tuple[str, dict[str, Any]]) -> DiskBroker:
    """Return a broker after a power loss that removed the last five of 15 records. The offset
    commits of groups are durable.
    """
    b = DiskBroker()
    b.topic("t")
    for number in range(15):
        b.produce("t", (b"%d" % number,))
        if number == 9:
            b.commit("first", "t", 0)  # creates __consumer_offsets
            b.sync("")
    for group, committed in commits:
        assert b.commit(group, "t", committed.pop("offset", 15), **committed) == 0
    b.sync("__consumer_offsets")
    b.lose_power()
    return b


def test_a_fetch_with_a_last_fetched_epoch_gets_the_truncation_offset() -> None:
    b = with_a_lost_tail()
    for number in range(15):
        b.produce("t", (b"other %d" % number,))
    assert fetch_diverging(b, "t", 0, 15) == (0, 10)
    assert fetch_diverging(b, "t", 0, 15, max_wait_ms=1000) == (0, 10), "at once"
    assert fetch_diverging(b, "t", 0, 10) is None and fetch_diverging(b, "t", 1, 15) is None


def test_in_a_session_a_cut_is_told_of_though_nothing_else_is_new() -> None:
    b = with_a_lost_tail()
    for number in range(15):
        b.produce("t", (b"other %d" % number,))
    begun = b.call(fetch({"t": {0: 25}}, session=(0, 0)), 12)
    request = fetch({"t": {0: 25}}, session=(begun.session_id, 1))
    request.topics[0].partitions[0].last_fetched_epoch = 0
    (topic,) = b.call(request, 12).responses
    (row,) = topic.partitions
    assert (row.error_code, row.high_watermark) == (Code.NONE, 25)
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, 10)


@pytest.mark.parametrize(
    ("epoch", "offset"), [(7, 10), (7, 99)], ids=["of an epoch to come", "and beyond the end"]
)
def test_a_fetch_with_an_unknown_last_fetched_epoch_is_out_of_range(
    epoch: int, offset: int
) -> None:
    """For an unknown last fetched epoch, Kafka's Partition.readRecords has the same rule."""
    b = with_a_lost_tail()
    b.produce("t", (b"other",))
    row = fetch_after(b, "t", epoch, offset)
    assert row.error_code == Code.OFFSET_OUT_OF_RANGE
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (-1, -1)


def test_an_offset_of_an_epoch_that_is_not_known_is_set_back_to_the_end() -> None:
    b = with_a_lost_tail(("ahead", {"leader_epoch": 7}))
    assert b.group_offset("ahead", "t")[1] == 10


def test_a_late_commit_of_a_lost_offset_is_set_back_at_the_next_start() -> None:
    """A slow client commits an offset whose records were lost, after other records were written
    there.
    """
    b = with_a_lost_tail()
    for number in range(2):
        b.produce("t", (b"other %d" % number,))
    assert b.commit("late", "t", 15, leader_epoch=0) == 0
    b.kill()
    assert b.group_offset("late", "t")[1] == 10


def test_committed_offsets_in_a_lost_tail_are_set_back_to_the_log_end(
    caplog: Any,
) -> None:
    """An offset with metadata is kept, since it may be the state of an application rather than a
    position. The changed offsets are durable before the first request is handled, so a second power
    loss keeps them.
    """
    with caplog.at_level("WARNING"):
        b = with_a_lost_tail(
            ("with", {"leader_epoch": 0}),
            ("without", {}),
            ("before", {"offset": 9}),
            ("ledger", {"metadata": "batch 15"}),
        )
    groups = ("with", "without", "before", "ledger")
    assert [b.group_offset(group, "t")[1] for group in groups] == [10, 10, 9, 15]
    assert "group with continues at offset 10 of t-0, not at its committed 15" in caplog.text
    for number in range(15):
        b.produce("t", (b"other %d" % number,))
    b.sync("t-0")
    b.lose_power()
    assert b.end_offset("t") == 25
    assert [b.group_offset(group, "t")[1] for group in groups] == [10, 10, 9, 15], (
        "the changed offsets are durable before the first request"
    )


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_a_start_after_a_crashed_start_sets_lost_offsets_back(steps: int) -> None:
    """A power loss removes a record whose offset two groups have committed. The next start crashes
    after `steps` changes of the disk. The start after that must set both groups back to the end of
    the log.
    """
    b = DiskBroker()
    b.topic("t")
    b.produce("t", (b"kept",))
    b.commit("first", "t", 0)
    b.sync("")
    b.produce("t", (b"read and lost",))
    assert b.commit("g", "t", 2) == b.commit("h", "t", 2, leader_epoch=0) == 0
    b.sync("__consumer_offsets")
    b.disk.lose_power()
    b.disk.crash_in(steps)
    try:
        b.open()
    except Crash:
        b.disk.crash_in(-1)
        b.lose_power()
    b.disk.crash_in(-1)
    assert b.group_offset("g", "t") == b.group_offset("h", "t") == (0, 1)


def test_a_clean_stop_or_a_kill_sets_no_offset_back() -> None:
    b = DiskBroker()
    b.topic("t")
    b.produce("t", (b"0",))
    assert b.commit("g", "t", 1, leader_epoch=0) == b.commit("numbers", "t", 77) == 0
    for again in (b.kill, b.stop, b.kill):
        again()
        assert (b.group_offset("g", "t"), b.group_offset("numbers", "t")) == ((0, 1), (0, 77))


def test_a_known_partition_whose_log_is_lost_does_not_begin_at_epoch_0() -> None:
    b = DiskBroker()
    b.topic("t")
    b.produce("t", (b"read and lost",))
    b.disk.rmtree("/data/t-0")
    b.kill()
    assert described_epochs(b, "t") == [1]
    assert end_of_epoch(b, "t", 0) == (0, 0, 0)


def test_without_the_epoch_files_leader_epochs_are_read_from_the_batches() -> None:
    b = DiskBroker()
    b.topic("t", segment_bytes="500")
    for epoch in range(4):
        for number in range(3 * epoch):
            b.produce("t", (b"%d" % number + b"." * 60,))
        b.stop()
    b.disk.unlink("/data/t-0/leader-epoch-checkpoint")
    b.disk.unlink("/data/barnabas-leader-epoch")
    b.kill()
    assert described_epochs(b, "t") == [4]
    assert [end_of_epoch(b, "t", epoch)[1:] for epoch in range(5)] == [
        (0, 0),
        (1, 3),
        (2, 9),
        (3, 18),
        (4, 18),
    ]


@ENDS
def test_markers_have_the_leader_epoch_of_the_coordinators_partition(again: Restart) -> None:
    b = DiskBroker()
    b.topic("t")
    for epoch in (0, 1, 2):
        producer = Producer(b, "txn")
        producer.send("t", 0, b"%d" % epoch)
        assert producer.end(commit=True) == 0
        log = b.broker.topics.partition("t", 0)
        assert log is not None
        markers = [
            decode_marker(batch).coordinator_epoch
            for header, batch in log.read_batches()
            if header.is_control
        ]
        assert markers == sorted(markers) and markers[-1] == epoch
        again(b)
    assert b.read("t", committed=True) == [b"0", b"1", b"2"]


@ENDS
@pytest.mark.parametrize("durability", ["flush", "os"])
def test_a_clients_marker_with_a_high_coordinator_epoch_does_not_hide_later_commits(
    again: Restart, durability: str
) -> None:
    """As in Apache Kafka, WriteTxnMarkers accepts any coordinator epoch. In Apache Kafka the
    coordinator then abandons its own markers, and the transaction hangs.
    """
    b = DiskBroker(barnabas_transaction_durability=durability)
    b.topic("t")
    producer = Producer(b, "txn")
    producer.send("t", 0, b"first")
    assert producer.end(commit=True) == 0
    assert (
        b.write_marker(producer.pid, producer.epoch, "t", commit=False, coordinator_epoch=2**31 - 1)
        == 0
    )
    producer.send("t", 0, b"second")
    assert producer.end(commit=True) == 0
    assert b.read("t", committed=True) == [b"first", b"second"]
    b.tick(1000)
    b.sync("")
    again(b)
    assert b.read("t", committed=True) == [b"first", b"second"]
    producer = Producer(b, "txn")
    producer.send("t", 0, b"third")
    again(b)
    assert Producer(b, "txn").epoch >= 0
    assert b.read("t", committed=True) == [b"first", b"second"]
    assert b.fetch("t", committed=True).last_stable_offset == b.end_offset("t")


def test_a_marker_with_a_lower_producer_epoch_and_no_open_transaction_is_dropped(
    caplog: Any,
) -> None:
    b = DiskBroker()
    b.topic("t")
    pid = b.init(None)[1]
    assert b.produce("t", (b"x",), pid=pid, epoch=5, sequence=0)[0] == 0
    with caplog.at_level("INFO"):
        marker = NewMarker(pid, 3, 0, True)
        assert b.parts.coordinators.get().markers.append("t", 0, marker, b.now_ms) is None
    assert "has no open transaction to end" in caplog.text
