"""Recorded cuts: what ListOffsets gives for a time in topics with `barnabas.transactions.whole`.

tests/property/test_whole_transactions.py compares the recorded offsets with those of the time of
the cut, over restarts; tests/property/test_cut_history.py compares thinned histories with a model.
"""

from __future__ import annotations

import errno
import logging
from typing import Any

import pytest
from helpers.disk_broker import READER, DiskBroker, Producer
from helpers.raised_faults import contained_faults
from sim.disk import Refusal

from barnabas.broker.transactions import cut_history
from barnabas.broker.transactions import cuts as cuts_module
from barnabas.protocol.cut_times import AT_OR_AFTER, AT_OR_BEFORE, CUT_TIMES_END, asks_for_cut
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

WHOLE = "barnabas.transactions.whole"
FILE = "/data/barnabas-cuts"
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
NO_CUT = (Code.NONE, -1, -1)


def broker(**settings: str) -> DiskBroker:
    """A broker with the topics a and b, which have the setting, and `plain` without it."""
    b = DiskBroker(**settings)
    for name in "ab":
        b.topic(name, **{WHOLE: "true"})
    b.topic("plain")
    return b


def ask(b: DiskBroker, timestamp: int, *topics: str) -> list[tuple[int, int, int]]:
    """The error code, the time and the offset that ListOffsets gives for partition 0 of each."""
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=0, current_leader_epoch=-1, timestamp=timestamp
                    )
                ],
            )
            for topic in topics
        ],
    )
    rows = [topic.partitions[0] for topic in b.call(request, 6, READER).topics]
    return [(row.error_code, row.timestamp, row.offset) for row in rows]


def before(b: DiskBroker, time_ms: int, *topics: str) -> list[tuple[int, int, int]]:
    return ask(b, AT_OR_BEFORE + time_ms, *topics)


def after(b: DiskBroker, time_ms: int, *topics: str) -> list[tuple[int, int, int]]:
    return ask(b, AT_OR_AFTER + time_ms, *topics)


def transact(p: Producer, *topics: str) -> None:
    """Commit a transaction with a record in each topic."""
    for topic in topics:
        p.send(topic, 0, b"x")
    assert p.end(True) == 0


def recorded(b: DiskBroker, p: Producer, *topics: str, after_ms: int = SECOND) -> int:
    """Commit a transaction, and let the broker record a cut. Gives: the time of the cut."""
    transact(p, *topics)
    b.tick(after_ms)
    return b.now_ms


def set_whole(b: DiskBroker, topic: str, value: str) -> None:
    row = AlterableConfig(name=WHOLE, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[row])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    assert b.call(request, 1).responses[0].error_code == Code.NONE


def delete(b: DiskBroker, topic: str) -> None:
    answer = b.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
    assert answer.responses[0].error_code == Code.NONE


def test_the_timestamps_are_far_from_those_that_clients_send() -> None:
    assert asks_for_cut(AT_OR_BEFORE) and asks_for_cut(AT_OR_AFTER + CUT_TIMES_END - 1)
    others = (-1, 0, 1_764_000_000_000, 1_764_000_000_000_000_000, 1 << 62, (1 << 63) - 1)
    assert not any(map(asks_for_cut, others))


def test_a_cut_is_found_by_its_time_in_all_topics() -> None:
    b, first = broker(), broker().now_ms
    p = Producer(b, "p")
    one = recorded(b, p, "a", "b")
    two = recorded(b, p, "b")
    assert before(b, first, "a", "b") == [NO_CUT, NO_CUT]
    assert before(b, one, "a", "b") == [(0, one, 2), (0, one, 2)]
    assert before(b, two - 1, "a", "b") == [(0, one, 2), (0, one, 2)]
    assert before(b, two + DAY, "a", "b") == [(0, two, 2), (0, two, 4)]
    assert after(b, 0, "a", "b") == [(0, one, 2), (0, one, 2)]
    assert after(b, one + 1, "a", "b") == [(0, two, 2), (0, two, 4)]
    assert after(b, two + 1, "a", "b") == [NO_CUT, NO_CUT]


def test_a_topic_without_the_setting_is_refused() -> None:
    b = broker()
    at = recorded(b, Producer(b, "p"), "a", "plain")
    refused = (Code.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1, -1)
    assert before(b, at, "a", "plain", "missing") == [
        (0, at, 2),
        refused,
        (Code.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    ]


def test_there_is_one_cut_in_an_interval_and_none_without_commits() -> None:
    b = broker()
    p = Producer(b, "p")
    cuts = b.parts.coordinators.get().cuts
    for _ in range(10):
        recorded(b, p, "a", after_ms=SECOND // 4)
    assert b.broker.counters.of("barnabas_cuts_recorded_total") == 2
    b.tick(SECOND)
    assert cuts.due_ms is None
    b.produce("a", (b"outside of transactions",))
    transact(p, "plain")
    assert cuts.due_ms is None
    assert b.broker.next_deadline_ms() > b.now_ms
    b.tick(HOUR)
    assert b.broker.counters.of("barnabas_cuts_recorded_total") == 3


def test_a_cut_has_nothing_that_is_held_back() -> None:
    b = broker()
    older, whole = Producer(b, "older"), Producer(b, "whole")
    older.send("a", 0, b"open")
    one = recorded(b, whole, "a", "b")
    assert before(b, one, "a", "b") == [NO_CUT, NO_CUT], "it would be no different from none"
    whole.send("plain", 0, b"x")
    assert older.end(False) == 0
    b.tick(SECOND)
    assert before(b, b.now_ms, "a", "b") == [(0, b.now_ms, 4), (0, b.now_ms, 2)]


def test_none_is_recorded_with_an_interval_of_0() -> None:
    b = broker(barnabas_transactions_whole_cut_interval_ms="0")
    at = recorded(b, Producer(b, "p"), "a")
    assert before(b, at, "a") == [NO_CUT]
    assert not b.disk.exists(FILE)


def test_without_the_setting_nothing_is_kept() -> None:
    b = DiskBroker()
    b.topic("plain")
    recorded(b, Producer(b, "p"), "plain")
    assert not b.disk.exists(FILE) and b.parts.coordinators.get().cuts.due_ms is None
    b.stop()
    assert b.parts.coordinators.get().cuts.due_ms is None
    b.tick(DAY)
    assert not b.disk.exists(FILE)


@pytest.mark.parametrize("how", ["kill", "stop", "lose_power"])
def test_cuts_outlast_the_process(how: str) -> None:
    b = broker()
    p = Producer(b, "p")
    one = recorded(b, p, "a", "b")
    b.sync("barnabas-cuts")
    getattr(b, how)()
    assert before(b, one, "a", "b") == [(0, one, 2), (0, one, 2)]
    p.reconnect()
    p.begin_session()
    two = recorded(b, p, "b")
    ends = [b.end_offset(topic) for topic in "ab"]  # a start writes markers again
    assert before(b, two, "a", "b") == [(0, two, ends[0]), (0, two, ends[1])]
    assert before(b, two - 1, "a", "b") == [(0, one, 2), (0, one, 2)]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_what_was_committed_just_before_the_end_is_in_a_cut_soon(how: str) -> None:
    b = broker()
    transact(Producer(b, "p"), "a", "b")
    getattr(b, how)()
    b.tick(SECOND)
    found = before(b, b.now_ms, "a", "b")
    assert [offset for _, _, offset in found] == [2, 2]


def test_a_clean_stop_records_the_last_cut() -> None:
    b = broker()
    transact(Producer(b, "p"), "a", "b")
    stopped_ms = b.now_ms
    b.stop()
    assert before(b, stopped_ms, "a", "b") == [(0, stopped_ms, 2), (0, stopped_ms, 2)]


def test_a_cut_above_records_that_a_power_loss_has_removed_is_dropped_for_good() -> None:
    b = broker(barnabas_transaction_durability="os")
    p = Producer(b, "p")
    one = recorded(b, p, "a", "b")
    b.sync("a-0")
    b.sync("b-0")
    two = recorded(b, p, "a", "b")
    b.sync("b-0")
    b.sync("barnabas-cuts")
    b.lose_power()
    assert (b.end_offset("a"), b.end_offset("b")) == (2, 4)
    assert before(b, two, "a", "b") == [(0, one, 2), (0, one, 2)]
    p = Producer(b, "p")
    for _ in range(3):
        transact(p, "a")
    b.kill()
    assert before(b, two, "a", "b") == [(0, one, 2), (0, one, 2)]
    b.tick(SECOND)
    three = b.now_ms
    assert before(b, three, "a", "b") == [(0, three, 8), (0, three, 4)]
    b.kill()
    assert before(b, two, "a", "b") == [(0, one, 2), (0, one, 2)]
    assert after(b, two, "a", "b") == [(0, three, 8), (0, three, 4)]


def test_a_log_that_grew_back_to_the_same_offset_is_in_the_next_cut() -> None:
    b = broker(barnabas_transaction_durability="os")
    transact(Producer(b, "p"), "a")
    b.sync("a-0")
    transact(Producer(b, "p"), "a")
    b.tick(SECOND)
    b.sync("barnabas-cuts")
    b.lose_power()
    assert b.end_offset("a") == 2
    at = recorded(b, Producer(b, "p"), "a")
    assert before(b, at, "a") == [(0, at, 4)]
    b.kill()
    assert before(b, at, "a") == [(0, at, 4)]


def test_a_cut_that_a_power_loss_has_removed_does_not_return_after_the_next_one() -> None:
    """The second loss removes the leader epoch by which the first one was noticed."""
    b = broker(barnabas_transaction_durability="os")
    p = Producer(b, "p")
    for _ in range(3):
        transact(p, "a")
    lost = recorded(b, p, "a")
    b.sync("barnabas-cuts")
    b.lose_power()
    assert b.end_offset("a") == 0 and before(b, lost, "a") == [NO_CUT]
    kept = recorded(b, Producer(b, "p"), "b")
    b.sync("barnabas-cuts")
    b.sync("b-0")
    b.lose_power()
    assert before(b, kept, "a", "b") == [(0, kept, 0), (0, kept, 2)]
    assert before(b, lost, "a", "b") == [NO_CUT, NO_CUT]


def test_a_topic_that_is_created_later_was_empty() -> None:
    b = broker()
    one = recorded(b, Producer(b, "p"), "a")
    b.topic("later", **{WHOLE: "true"})
    two = recorded(b, Producer(b, "p"), "later")
    for _ in range(2):
        assert before(b, one, "a", "later") == [(0, one, 2), (0, one, 0)]
        assert before(b, two, "a", "later") == [(0, two, 2), (0, two, 2)]
        b.kill()


def test_a_topic_that_gets_the_setting_later_is_not_in_earlier_cuts() -> None:
    b = broker()
    one = recorded(b, Producer(b, "p"), "a", "plain")
    set_whole(b, "plain", "true")
    not_included = [(0, one, 2), (0, one, -1)]
    assert before(b, one, "a", "plain") == not_included
    two = recorded(b, Producer(b, "p"), "a")
    for _ in range(2):
        assert before(b, one, "a", "plain") == not_included
        assert before(b, two, "a", "plain") == [(0, two, 4), (0, two, 2)]
        b.kill()


def test_a_topic_that_had_lost_the_setting_is_not_in_the_cuts_of_that_time() -> None:
    b = broker()
    p = Producer(b, "p")
    one = recorded(b, p, "a", "b")
    set_whole(b, "b", "false")
    two = recorded(b, p, "a", "b")
    set_whole(b, "b", "true")
    three = recorded(b, p, "a")
    for _ in range(2):
        assert before(b, one, "a", "b") == [(0, one, 2), (0, one, 2)]
        assert before(b, two, "a", "b") == [(0, two, 4), (0, two, -1)]
        assert before(b, three, "a", "b") == [(0, three, 6), (0, three, 4)]
        b.kill()


def test_a_topic_made_again_has_nothing_of_the_earlier_one() -> None:
    b = broker()
    p = Producer(b, "p")
    one = recorded(b, p, "a", "b")
    delete(b, "b")
    b.topic("b", **{WHOLE: "true"})
    assert before(b, one, "a", "b") == [(0, one, 2), (0, one, 0)]
    two = recorded(b, Producer(b, "q"), "a", "b")
    for _ in range(2):
        assert before(b, one, "a", "b") == [(0, one, 2), (0, one, 0)]
        assert before(b, two, "a", "b") == [(0, two, 4), (0, two, 2)]
        b.kill()


def test_cuts_go_with_the_last_partition_that_is_in_one() -> None:
    b = broker()
    p = Producer(b, "p")
    one = recorded(b, p, "a", "b")
    set_whole(b, "b", "false")
    delete(b, "a")
    b.topic("a", **{WHOLE: "true"})
    set_whole(b, "b", "true")
    assert before(b, one, "a", "b") == [(0, one, 0), (0, one, 2)]
    delete(b, "b")
    b.topic("b", **{WHOLE: "true"})
    for _ in range(2):
        assert before(b, one, "a", "b") == [NO_CUT, NO_CUT]
        b.kill()
    two = recorded(b, Producer(b, "p"), "a")
    for _ in range(2):
        assert before(b, two - 1, "a", "b") == [NO_CUT, NO_CUT]
        assert before(b, two, "a", "b") == [(0, two, 2), (0, two, 0)]
        b.kill()


def test_cuts_begin_again_in_a_new_file_after_the_last_partition_has_gone() -> None:
    b = broker()
    recorded(b, Producer(b, "p"), "a", "b")
    delete(b, "a")
    delete(b, "b")
    assert not b.disk.exists(FILE)
    b.topic("a", **{WHOLE: "true"})
    at = recorded(b, Producer(b, "q"), "a")
    b.kill()
    assert before(b, at, "a") == [(0, at, 2)]


def test_a_partition_that_was_off_line_is_not_in_the_cuts_of_that_time() -> None:
    b = broker()
    p = Producer(b, "p")
    recorded(b, p, "a", "b")
    one = recorded(b, p, "a", "b")
    saved = b.saved()
    log = "/data/b-0/00000000000000000000.log"
    b.load(saved | {log: b"\xff" * 40 + saved[log][40:]})
    b.open()
    assert ("b", 0) in b.broker.logs.offline
    b.tick(SECOND)
    p.reconnect()
    two = recorded(b, p, "a")
    assert before(b, two, "a") == [(0, two, 6)]
    b.load(b.saved() | {log: saved[log]})
    b.open()
    assert before(b, one, "a", "b") == [(0, one, 4), (0, one, 4)]
    assert before(b, two, "a", "b") == [(0, two, 6), (0, two, -1)]
    b.tick(SECOND)
    assert before(b, b.now_ms, "a", "b") == [(0, b.now_ms, 6), (0, b.now_ms, 4)]


def test_the_offset_is_never_below_the_start_of_the_log() -> None:
    b = broker()
    p = Producer(b, "p")
    one = recorded(b, p, "a", "b")
    recorded(b, p, "a")
    log = b.broker.topics.partition("a", 0)
    assert log is not None
    log.delete_records_before(3)
    assert before(b, one, "a", "b") == [(0, one, 3), (0, one, 2)]


def test_the_clock_that_is_set_back_does_not_reorder_cuts() -> None:
    b = broker()
    p = Producer(b, "p")
    one = recorded(b, p, "a")
    b.broker.wall.ahead_ms = -HOUR
    transact(p, "a")
    b.tick(SECOND)
    two = b.now_ms - HOUR
    assert before(b, two - 1, "a") == [NO_CUT]
    assert before(b, one - 1, "a") == before(b, one, "a") == [(0, two, 4)]
    assert after(b, two, "a") == [(0, one, 2)]
    assert after(b, one + 1, "a") == [NO_CUT]


# --- the file -------------------------------------------------------------------------------------


def damage(b: DiskBroker, at: int) -> None:
    """Change a byte of the file while the broker is down, and start it."""
    saved = b.saved()
    data = bytearray(saved[FILE])
    data[at] ^= 1
    b.load(saved | {FILE: bytes(data)})
    b.open()


def test_a_damaged_file_loses_past_cuts_only(caplog: pytest.LogCaptureFixture) -> None:
    b = broker()
    p = Producer(b, "p")
    one = recorded(b, p, "a", "b")
    size = len(b.saved()[FILE])
    two = recorded(b, p, "a", "b")
    damage(b, size + 20)
    assert before(b, two, "a", "b") == [(0, one, 2), (0, one, 2)]
    assert "the 1 past cuts before are known" in caplog.text
    assert b.end_offset("a", committed=True) == 4
    b.tick(SECOND)
    three = b.now_ms
    b.kill()
    assert before(b, three, "a", "b") == [(0, three, 4), (0, three, 4)]
    damage(b, 3)
    caplog.clear()
    assert before(b, three, "a", "b") == [NO_CUT, NO_CUT]
    assert "is damaged: past cuts are no longer known" in caplog.text
    b.tick(SECOND)
    assert before(b, b.now_ms, "a", "b") == [(0, b.now_ms, 4), (0, b.now_ms, 4)]


def test_an_error_of_the_broker_ends_the_recording_until_the_next_commit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file cannot be read by a fault of ours, and is not read again with each tick."""
    b = broker()
    p = Producer(b, "p")
    recorded(b, p, "a", "b")
    b.kill()
    with monkeypatch.context() as patch, contained_faults():
        patch.setattr(cuts_module.Cuts, "_drop_lost", lambda *_: 1 / 0)
        transact(Producer(b, "p"), "a", "b")
        for _ in range(20):
            b.tick(SECOND)
    assert caplog.text.count("ZeroDivisionError") == 1
    at = recorded(b, Producer(b, "p"), "a", "b")
    assert before(b, at, "a", "b") == [(Code.NONE, at, 6)] * 2


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ENOENT])
@pytest.mark.parametrize("call", ["open", "pread"])
def test_a_file_that_cannot_be_read_loses_past_cuts_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int, call: str
) -> None:
    """It belongs to another user, its medium is damaged, or a directory is in its place, which the
    disk sets aside. A question must not end the broker, and the start after it.
    """
    b = broker()
    p = Producer(b, "p")
    at = recorded(b, p, "a", "b")
    b.kill()
    opened = b.disk.open
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):

        def fail(*_: object) -> bytes:
            raise OSError(code, "the test's")

        def open_damaged(path: str, *, create: bool = False) -> Any:
            if path == FILE and call == "open" and not create:
                fail()
            return opened(path, create=create)

        if call == "pread":
            reader = cut_history.HistoryReader
            patch.setattr(cuts_module, "HistoryReader", lambda _, size: reader(fail, size))
        patch.setattr(b.disk, "open", open_damaged)
        assert before(b, at, "a", "b") == [NO_CUT] * 2
    assert "past cuts are no longer known" in caplog.text
    at = recorded(b, Producer(b, "p"), "a", "b")
    assert before(b, at, "a", "b") == [(Code.NONE, at, 4)] * 2
    b.kill()
    assert before(b, at, "a", "b") == [(Code.NONE, at, 4)] * 2


@pytest.mark.parametrize("size", [0, 1, 20])
def test_a_file_that_a_kill_has_left_unfinished_is_made_again(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    b = broker()
    p = Producer(b, "p")
    recorded(b, p, "a")
    saved = b.saved()
    b.load(saved | {FILE: saved[FILE][:size]})
    b.open()
    with caplog.at_level(logging.WARNING, "barnabas.transactions"):
        b.tick(SECOND)
    assert not caplog.records
    assert before(b, b.now_ms, "a") == [(0, b.now_ms, 2)]


def test_a_power_loss_takes_the_cuts_since_the_last_fsync_alone() -> None:
    """The file is made durable with the first cut of a run, then once in SYNC_MS."""
    b = broker()
    p = Producer(b, "p")
    times = [recorded(b, p, "a") for _ in range(2)]
    b.tick(cuts_module.SYNC_MS)
    times.append(recorded(b, p, "a"))
    times.append(recorded(b, p, "a"))
    b.lose_power()
    kept = [(0, time, 2 * number) for number, time in enumerate(times[:3], 1)]
    assert [before(b, time, "a") for time in times] == [[row] for row in [*kept, kept[-1]]]


def test_without_space_a_cut_is_recorded_later() -> None:
    b = broker()
    p = Producer(b, "p")
    transact(p, "a")
    b.disk.refuse(Refusal(frozenset({"write", "inode"}), errno.ENOSPC))
    b.tick(SECOND)
    assert before(b, b.now_ms, "a") == [NO_CUT]
    b.disk.refuse(None)
    b.tick(SECOND)
    assert before(b, b.now_ms, "a") == [(0, b.now_ms, 2)]


def test_old_cuts_are_thinned_out_and_the_file_becomes_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuts_module, "SMALL_BYTES", 0)
    monkeypatch.setattr(cut_history, "ALL_KEPT_MS", 10 * MINUTE)
    b = broker(barnabas_transactions_whole_cut_interval_ms=str(MINUTE // 4))
    p = Producer(b, "p")
    times = [recorded(b, p, "a", after_ms=MINUTE // 4) for _ in range(4 * 60)]
    first, last = times[0], times[-1]
    assert len(b.saved()[FILE]) < 200 * 49, "a frame of a cut with one row has 49 bytes"
    kept = []
    at = first
    while (found := after(b, at, "a")) != [NO_CUT]:
        kept.append(found[0][1])
        at = found[0][1] + 1
    young = [time for time in times if time >= last - 10 * MINUTE]
    assert kept[-len(young) :] == young
    old = [time // MINUTE for time in kept if time < last - 30 * MINUTE]
    assert old == list(range(old[0], old[-1] + 1)), "the last one of each minute"
    b.kill()
    for time in kept:
        assert after(b, time, "a") == [(0, time, 2 * (times.index(time) + 1))]


def test_a_cut_that_is_recorded_while_the_file_is_replaced_is_in_the_new_file() -> None:
    b = broker()
    p = Producer(b, "p")
    times = [recorded(b, p, "a")]
    steps = b.parts.coordinators.get().cuts._replace()
    for file in next(steps):
        file.fsync()
    times += [recorded(b, p, "a", "b"), recorded(b, p, "b")]
    for files in steps:
        for file in files:
            file.fsync()
    times.append(recorded(b, p, "a"))
    found = [before(b, time, "a", "b") for time in times]
    assert [[offset for _, _, offset in row] for row in found] == [[2, 0], [4, 2], [4, 4], [6, 4]]
    b.kill()
    assert [before(b, time, "a", "b") for time in times] == found


@pytest.mark.parametrize("is_begun", [False, True])
def test_without_space_the_file_is_not_replaced_and_stays_right(is_begun: bool) -> None:
    b = broker()
    p = Producer(b, "p")
    times = [recorded(b, p, "a")]
    cuts = b.parts.coordinators.get().cuts
    steps = cuts._replace()
    if is_begun:
        assert any(steps), "the new file is written"
        times.append(recorded(b, p, "a"))
    b.disk.refuse(Refusal(frozenset({"write", "inode"}), errno.ENOSPC))
    assert list(steps) == []
    b.disk.refuse(None)
    assert [name for name in b.saved() if name.startswith(FILE)] == [FILE]
    assert cuts._replacing is None, "it can be replaced later"
    times.append(recorded(b, p, "a"))
    b.kill()
    found = [(0, time, 2 * number) for number, time in enumerate(times, 1)]
    assert [before(b, time, "a") for time in times] == [[row] for row in found]


def test_the_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts_module, "SMALL_BYTES", 0)
    b = broker(barnabas_transactions_whole_cut_max_bytes=str(64 << 10))
    b.topic("wide", 100, **{WHOLE: "true"})
    cuts = b.parts.coordinators.get().cuts
    p = Producer(b, "p")
    for _ in range(100):
        for index in range(100):
            b.produce("wide", (b"x",), partition=index)
        transact(p, "wide")
        b.tick(SECOND)
        while cuts._thinning is not None:
            b.tick()
        assert cuts.loaded().size_bytes <= (64 << 10) + 2048
    assert len(b.saved()[FILE]) <= 3 * (64 << 10)
    assert after(b, b.now_ms, "wide") == [(0, b.now_ms, 300)]


def test_cuts_go_with_the_records_below_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts_module, "FEWEST_BETWEEN", 1)
    b = broker()
    p = Producer(b, "p")
    one = recorded(b, p, "a", "b")
    two = recorded(b, p, "a", "b")
    logs = [b.broker.topics.partition(topic, 0) for topic in "ab"]
    assert logs[0] is not None and logs[1] is not None
    logs[0].delete_records_before(4)
    recorded(b, p, "a", "b")
    assert before(b, one, "b") == [(0, one, 2)], "records of b are still there"
    logs[1].delete_records_before(3)
    recorded(b, p, "a", "b")
    assert before(b, one, "a", "b") == [NO_CUT, NO_CUT]
    assert before(b, two, "a", "b") == [(0, two, 4), (0, two, 4)]


def test_cuts_are_thinned_out_once_in_a_number_of_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuts_module, "FEWEST_BETWEEN", 4)
    b = broker()
    p = Producer(b, "p")
    cuts = b.parts.coordinators.get().cuts
    thin, times = cuts._thin, []
    monkeypatch.setattr(cuts, "_thin", lambda wall_ms: times.append(wall_ms) or thin(wall_ms))
    recorded_at = [recorded(b, p, "a") for _ in range(12)]
    assert times == recorded_at[3::4]


def test_a_file_whose_cuts_are_all_needed_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuts_module, "SMALL_BYTES", 0)
    monkeypatch.setattr(cuts_module, "FEWEST_BETWEEN", 1)
    b = broker()
    p = Producer(b, "p")
    replacements: list[object] = []
    monkeypatch.setattr(b.parts.coordinators.get().cuts._syncs, "run", replacements.append)
    for _ in range(5):
        recorded(b, p, "a")
    assert replacements == []


def test_cuts_of_many_partitions_are_thinned_out_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuts_module, "FEWEST_BETWEEN", 1)
    monkeypatch.setattr(cuts_module, "ROWS_AT_ONCE", 8)
    b = broker()
    b.topic("wide", 20, **{WHOLE: "true"})
    cuts = b.parts.coordinators.get().cuts
    recorded(b, Producer(b, "p"), "a")
    ticks = 0
    while cuts._thinning is not None:
        assert cuts.due_ms == b.now_ms
        b.tick()
        ticks += 1
    assert ticks == 2 * ((20 + 2) // 8), "to find the first cut with records, and to drop rows"
    assert cuts.due_ms is None


def test_cuts_are_thinned_out_less_again_once_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuts_module, "FEWEST_BETWEEN", 1)
    most_bytes = 64 << 10
    b = broker(barnabas_transactions_whole_cut_max_bytes=str(most_bytes))
    b.topic("wide", 100, **{WHOLE: "true"})
    cuts = b.parts.coordinators.get().cuts
    p = Producer(b, "p")
    while not cuts._level or cuts.loaded().size_bytes > most_bytes:
        for index in range(100):
            b.produce("wide", (b"x",), partition=index)
        recorded(b, p, "wide")
    level = cuts._level
    for _ in range(8):
        recorded(b, p, "a")
    assert cuts._level == level, "there is little more room"
    delete(b, "wide")
    times = [recorded(b, p, "a") for _ in range(100)]
    assert [before(b, time, "a")[0][1] for time in times[-30:]] == times[-30:]
