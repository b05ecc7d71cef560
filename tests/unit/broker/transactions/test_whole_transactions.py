"""Topics with `barnabas.transactions.whole`: what readers of several partitions get together.

tests/property/test_whole_transactions.py compares the offsets with a model.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.disk_broker import READER, DiskBroker, Producer

from barnabas.broker.observe import look_at_partitions, look_at_transactional_ids
from barnabas.broker.transactions import whole_transactions
from barnabas.broker.transactions.whole_transactions import note_of
from barnabas.metrics.labels import label_text
from barnabas.metrics.rim.table import _WHOLE_HOLDER, _held_elsewhere
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.records import computed_crc, records_of
from barnabas.storage.log.log import Log

WHOLE = "barnabas.transactions.whole"


class TwoPhase(Producer):
    """A producer in a session of two-phase commit."""

    def begin_session(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.txn,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
            enable2_pc=True,
        )
        answer = self.b.call(request, 6, self.connection)
        assert answer.error_code == 0
        self.pid, self.epoch = answer.producer_id, answer.producer_epoch


def broker(**settings: str) -> DiskBroker:
    """A broker with the topics a, b and c, which have the setting."""
    b = DiskBroker(**settings)
    for name in "abc":
        b.topic(name, **{WHOLE: "true"})
    return b


def ends(b: DiskBroker, *topics: str) -> list[int]:
    """The last stable offset of each topic's partition 0."""
    return [b.end_offset(topic, committed=True) for topic in topics]


def half(b: DiskBroker) -> tuple[Producer, Producer]:
    """An older producer with an open transaction in a, and one that has committed in a and b."""
    older, whole = Producer(b, "older"), Producer(b, "whole")
    older.send("a", 0, b"open")
    whole.send("a", 0, b"x")
    whole.send("b", 0, b"y")
    assert whole.end(True) == 0
    return older, whole


def test_a_transaction_is_readable_in_all_its_topics_at_once() -> None:
    b = broker()
    older, _ = half(b)
    assert ends(b, "a", "b") == [0, 0]
    assert older.end(False) == 0
    assert ends(b, "a", "b") == [4, 2]
    assert b.read("a", committed=True) == [b"x"] and b.read("b", committed=True) == [b"y"]


def test_without_the_setting_each_partition_is_on_its_own() -> None:
    b = DiskBroker()
    b.topic("a")
    b.topic("b")
    half(b)
    assert ends(b, "a", "b") == [0, 2]
    log = b.broker.topics.partition("b", 0)
    assert log is not None
    (marker,) = [marker for _, marker in log.reader.transactional(0) if marker is not None]
    assert records_of(marker)[0].headers == (), "the same bytes as in Apache Kafka"


def test_a_fetch_that_waits_is_answered_when_the_other_partition_is_free() -> None:
    b = broker()
    older, _ = half(b)
    reader = b.connect()
    b.send_fetch(reader, "b", 0, committed=True, max_wait_ms=10_000)
    assert b.fetched(reader) is None
    older.end(False)
    found = b.fetched(reader)
    assert found is not None and [value for _, value in found.rows()] == [b"y"]


def test_a_result_waits_for_its_cause() -> None:
    """The producer's second transaction, in another topic, may have been written because of the
    first one.
    """
    b = broker()
    older, whole = half(b)
    whole.send("c", 0, b"z")
    assert whole.end(True) == 0
    assert ends(b, "c") == [0]
    older.end(True)
    assert ends(b, "c") == [2]


def test_transactions_that_overlap_do_not_wait_for_each_other() -> None:
    b = broker()
    other = Producer(b, "other")
    other.send("c", 0, b"before")
    b.tick(1)
    older, _ = half(b)
    b.tick(1)
    assert other.end(True) == 0
    assert ends(b, "a", "b", "c") == [0, 0, 2]
    older.end(True)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_cut_is_the_same_after_a_restart(how: str) -> None:
    b = broker()
    older, whole = half(b)
    whole.send("c", 0, b"z")
    assert whole.end(True) == 0
    getattr(b, how)()
    assert ends(b, "a", "b", "c") == [0, 0, 0]
    older.reconnect()
    assert older.end(True) == 0
    assert ends(b, "a", "b", "c") == [4, 2, 2]


def test_the_cut_is_the_same_after_a_restart_with_an_open_transaction_at_the_end_of_each_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last marker of a log is found further back than the first look goes."""
    monkeypatch.setattr(whole_transactions, "_FIRST_STEP", 1)
    b = broker()
    open_in_all, older, whole = (Producer(b, name) for name in ("open", "older", "whole"))
    whole.send("a", 0, b"x")
    older.send("b", 0, b"open")
    whole.send("b", 0, b"y")
    assert whole.end(True) == 0
    for topic in "abc":
        for _ in range(6):
            open_in_all.send(topic, 0, b"z")
    assert ends(b, "a", "b", "c") == [0, 0, 0]
    b.kill()
    assert ends(b, "a", "b", "c") == [0, 0, 0]
    older.reconnect()
    assert older.end(True) == 0
    assert ends(b, "a", "b", "c") == [2, 3, 0]


def test_the_cut_is_the_same_after_a_power_loss() -> None:
    """Only an open transaction of two-phase commit survives a power loss."""
    b = broker(transaction_two_phase_commit_enable="true")
    older, whole = TwoPhase(b, "older"), Producer(b, "whole")
    older.send("a", 0, b"open")
    whole.send("a", 0, b"x")
    whole.send("b", 0, b"y")
    assert whole.end(True) == 0
    assert ends(b, "a", "b") == [0, 0]
    b.lose_power()
    assert ends(b, "a", "b") == [0, 0]


def test_a_commit_whose_markers_a_start_writes_after_a_kill_waits_for_its_cause() -> None:
    b = broker()
    older, whole = Producer(b, "older"), Producer(b, "whole")
    whole.send("b", 0, b"a first one, so that one file has data and decision of the next")
    assert whole.end(True) == 0
    older.send("a", 0, b"open")
    whole.send("a", 0, b"the cause")
    assert whole.end(True) == 0
    whole.send("b", 0, b"the result")
    b.hold_flushes()
    whole.start_end(True)
    for job in b.broker.outbox.flushes:
        for file in job.files:
            file.fsync()  # the decision is durable, and the broker does not know it yet
    b.kill()
    assert b.end_offset("b") > 3, "a start has written the marker"
    assert ends(b, "a", "b") == [0, 2]
    older.reconnect()
    assert older.end(False) == 0
    assert ends(b, "a", "b") == [4, b.end_offset("b")]


@pytest.mark.parametrize("end", ["kill", "lose_power", "stop"])
@pytest.mark.parametrize("parts", range(3))
def test_a_start_does_not_show_a_part_of_markers_in_parts(parts: int, end: str) -> None:
    b = broker()
    b.parts.transaction_ends.markers_at_once = 1
    older, whole = Producer(b, "older"), Producer(b, "whole")
    older.send("c", 0, b"open")
    for topic in "abc":
        whole.send(topic, 0, b"x")
    whole.start_end(True)
    for _ in range(parts):
        b.tick()
        assert ends(b, "a", "b", "c") == [0, 0, 0]
    getattr(b, end)()
    expected = [0, 0, 0] if end != "lose_power" else [b.end_offset(topic) for topic in "abc"]
    assert ends(b, "a", "b", "c") == expected


def test_above_the_limit_the_cut_is_coarser_and_holds_no_more_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whole_transactions, "MOST_EXTENTS", 6)
    b = broker()
    older, whole = half(b)
    for _ in range(50):
        b.tick(1)
        for topic in "abc":
            whole.send(topic, 0, b"x")
        assert whole.end(True) == 0
        assert ends(b, "a", "b", "c") == [0, 0, 0]
    kept = b.parts.coordinators.get().markers.whole
    assert sum(len(row.extents) for row in kept.held_back) <= 6 + 3
    assert older.end(False) == 0
    assert ends(b, "a", "b", "c") == [b.end_offset(topic) for topic in "abc"]
    assert not kept.held_back and not kept.in_parts


def test_a_deleted_topic_holds_nothing_back() -> None:
    b = broker()
    half(b)
    answer = b.call(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 5)
    assert answer.responses[0].error_code == 0
    assert ends(b, "b") == [2]


@pytest.mark.parametrize("what", ["deleted", "ended"])
def test_an_event_of_many_partitions_computes_the_cut_once(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = broker()
    b.topic("wide", 8, **{WHOLE: "true"})
    older, whole = Producer(b, "older"), Producer(b, "whole")
    for index in range(8):
        older.send("wide", index, b"open")
    for index in range(8):  # each waits for a partition of its own
        whole.send("wide", index, b"x")
        whole.send("a", 0, b"y")
        assert whole.end(True) == 0
    assert ends(b, "a", "wide") == [0, 0]
    computed = []
    held = whole_transactions.held
    monkeypatch.setattr(
        whole_transactions, "held", lambda rows: computed.append(len(rows)) or held(rows)
    )
    if what == "deleted":
        b.call(DeleteTopicsRequest(topic_names=["wide"], timeout_ms=1000), 5)
    else:
        assert older.end(False) == 0
    assert ends(b, "a") == [16]
    assert computed == [8]


def test_each_partition_of_a_transaction_is_looked_at_once_while_others_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = broker()
    count = 60
    b.topic("wide", count, **{WHOLE: "true"})
    older, whole = Producer(b, "older"), Producer(b, "whole")
    for producer in (older, whole):
        for index in range(count):
            producer.send("wide", index, b"x")
    whole.start_end(True)
    while whole.ended() is None:
        b.tick()
    looked_at = []
    own = Log.own_stable_offset
    monkeypatch.setattr(Log, "own_stable_offset", lambda log: looked_at.append(log) or own(log))
    older.start_end(False)
    while older.ended() is None:
        b.tick()
    assert ends(b, "wide") == [4]
    assert len(looked_at) <= 10 * count, "1,800 if each marker looks at all partitions"


def test_the_marker_of_each_partition_has_its_own_stable_offset() -> None:
    b = broker()
    older, whole = Producer(b, "older"), Producer(b, "whole")
    b.produce("b", (b"x", b"y"))
    older.send("b", 0, b"open")
    whole.send("a", 0, b"x")
    whole.send("b", 0, b"y")
    assert whole.end(True) == 0
    notes = []
    for topic in "ab":
        log = b.broker.topics.partition(topic, 0)
        assert log is not None
        notes += [note_of(marker) for _, marker in log.reader.transactional(0) if marker]
        assert all(computed_crc(batch) == header.crc for header, batch in log.read_batches())
    assert [note.last_stable_offset for note in notes if note] == [0, 2]
    assert len({note._replace(last_stable_offset=0) for note in notes if note}) == 1


def test_deleted_records_hold_nothing_back() -> None:
    b = broker()
    half(b)
    log = b.broker.topics.partition("a", 0)
    assert log is not None
    log.delete_records_before(3)
    b.tick()
    assert ends(b, "a", "b") == [3, 2]


def test_a_metric_names_the_transaction_that_holds_back_other_topics() -> None:
    b = broker()
    older, _ = half(b)

    def seen() -> Any:
        return SimpleNamespace(
            partitions=finished(look_at_partitions(b.broker.logs)),
            transactional_ids=finished(look_at_transactional_ids(b.broker.transactions, b.now_ms)),
        )

    labels = ("b", "older", str(older.pid), "a-0")
    assert list(_held_elsewhere(seen())) == [(label_text(_WHOLE_HOLDER, labels), 2)]
    older.end(True)
    assert list(_held_elsewhere(seen())) == []


def finished(look: Any) -> Any:
    """The result of a look at the broker, which is taken in slices."""
    while True:
        try:
            next(look)
        except StopIteration as end:
            return end.value


def test_the_broker_can_have_it_as_a_default_except_for_its_own_topics() -> None:
    b = DiskBroker(barnabas_transactions_whole="true")
    b.topic("a")
    b.topic("b")
    _, whole = half(b)
    assert whole.add_offsets("group") == 0
    assert ends(b, "a", "b") == [0, 0]
    internal = b.broker.topics.logs_of("__transaction_state")
    assert internal and not any(log.is_whole for log in internal)
    b.kill()
    assert ends(b, "a", "b") == [0, 0]
    assert not any(log.is_whole for log in b.broker.topics.logs_of("__transaction_state"))


def test_the_setting_is_described_where_it_is_set() -> None:
    """Elsewhere a client gets the names that Apache Kafka gives."""
    b = DiskBroker()
    b.topic("with", **{WHOLE: "true"})
    b.topic("without")
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
            for name in ("with", "without")
        ],
        include_synonyms=True,
        include_documentation=False,
    )
    found, other = b.call(request, 4, READER).results
    assert {row.name: row.value for row in found.configs}[WHOLE] == "true"
    assert WHOLE not in {row.name for row in other.configs}
