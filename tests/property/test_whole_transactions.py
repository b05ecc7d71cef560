"""The last stable offsets of topics with `barnabas.transactions.whole`, compared after each event
with those that a model computes from the whole history of transactions.

The model knows no witness, order of evaluation or header of a marker. It repeats one rule until
nothing changes: a committed transaction is held back if its end is above a log's own stable offset,
if its end is above the first offset of one that is held back, or if its last record arrived after
the commit of one that is held back.

Recorded cuts are compared, after each event, with the last stable offsets at the time of the cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from helpers.disk_broker import READER, DiskBroker, Producer
from helpers.examples import drawn
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.broker.transactions.whole_transactions import Committed, held
from barnabas.protocol.cut_times import AT_OR_BEFORE
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
PARTITIONS = {"a": 2, "b": 1, "c": 1, "plain": 1}
LOGS = [(topic, index) for topic, count in PARTITIONS.items() for index in range(count)]
CUT_INTERVAL_MS = 1
NOT_INCLUDED, EMPTY = -1, -2
Order = tuple[int, int]
"""The number of the start, and the time."""


@dataclass
class Transaction:
    """A transaction: its first offset and its end in each log, and the order of its last record and
    of its commit.
    """

    extents: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    last: Order = (0, 0)
    committed: Order = (0, 0)
    number: int = 0

    def is_cause_of(self, other: Transaction) -> bool:
        """Whether this commit may be known to what the other transaction has written."""
        return self.committed <= other.last and self.number < other.number


class Model:
    """The history of all transactions, and the cut by the rule."""

    def __init__(self) -> None:
        self.open: dict[str, Transaction] = {}
        self.committed: list[Transaction] = []
        self.whole = {"a", "b"}

    def cut(self, ends: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """The last stable offset of each log. Takes: ends, their log end offsets."""
        stable = dict(ends)
        for one in self.open.values():
            for log, (first, _) in one.extents.items():
                stable[log] = min(stable[log], first)
        held: list[Transaction] = []
        while True:
            more = [
                one
                for one in self.committed
                if one not in held
                and (
                    any(end > stable[log] for log, (_, end) in one.extents.items())
                    or any(other.is_cause_of(one) for other in held)
                    or any(
                        end > other.extents[log][0]
                        for other in held
                        for log, (_, end) in one.extents.items()
                        if log in other.extents
                    )
                )
            ]
            if not more:
                break
            held += more
        for one in held:
            for log, (first, _) in one.extents.items():
                stable[log] = min(stable[log], first)
        return stable

    def forget(self, topic: str) -> None:
        """Drop the records of a topic, or the setting's effect on those that are committed."""
        for one in self.committed:
            for log in [log for log in one.extents if log[0] == topic]:
                del one.extents[log]


class World:
    """A broker, its producers, and the model."""

    def __init__(self, version: int, **broker_settings: str) -> None:
        features = {"barnabas_features": "transaction.version=2"} if version == 2 else {}
        self.b = DiskBroker(
            **features,
            **broker_settings,
            barnabas_transactions_whole_cut_interval_ms=str(CUT_INTERVAL_MS),
        )
        self.version, self.start = version, 0
        self.has_lost_power = False
        self.model = Model()
        # by the time of each cut, the last stable offsets at that time
        self.recorded: dict[int, dict[tuple[str, int], int]] = {}
        self.note_cuts()
        self.before: dict[tuple[str, int], int] = {}
        self.producers: dict[str, Producer] = {}
        for topic, count in PARTITIONS.items():
            self.create(topic, count)
        for index in range(4):
            self.producers[f"p{index}"] = Producer(self.b, f"p{index}")

    def create(self, topic: str, count: int) -> None:
        self.b.topic(topic, count, **{WHOLE: "true"} if topic in self.model.whole else {})

    @property
    def order(self) -> Order:
        return self.start, self.b.now_ms

    def note_cuts(self) -> None:
        """Note the last stable offsets whenever the running broker records a cut."""
        cuts = self.b.parts.coordinators.get().cuts
        record = cuts._record

        def noted(now_ms: int) -> Iterator[None]:
            before = cuts.newest()
            yield from record(now_ms)
            newest = cuts.newest()
            if newest is not None and newest != before:
                assert newest.time_ms == now_ms
                self.recorded[now_ms] = {
                    log: self.b.broker.topics.partition(*log).last_stable_offset  # type: ignore[union-attr]
                    for log in LOGS
                    if log[0] in self.model.whole
                }

        cuts._record = noted  # type: ignore[method-assign]

    # --- events ----------------------------------------------------------------------------------

    def write(self, name: str, log: tuple[str, int]) -> None:
        p = self.producers[name]
        if self.version == 2:
            at = p.sequences.get(log, 0)
            code, _ = self.b.produce(
                log[0], (b"x",), partition=log[1], pid=p.pid, epoch=p.epoch, sequence=at,
                txn=name, connection=p.connection, version=12,
            )  # fmt: skip
            assert code == 0, code
            p.sequences[log] = at + 1
        else:
            p.send(*log, b"x")
        end = self.b.broker.topics.partition(*log).log_end_offset  # type: ignore[union-attr]
        one = self.model.open.setdefault(name, Transaction())
        one.extents[log] = one.extents.get(log, (end - 1, end))[0], end
        if log[0] in self.model.whole:
            one.last = self.order

    def end(self, name: str, commit: bool) -> None:
        p = self.producers[name]
        if name not in self.model.open:
            return
        committed_at = self.order
        if self.version == 2:
            answer = self.b.call(p.end_request(commit), 5, p.connection)
            assert answer.error_code == 0
            p.pid, p.epoch = answer.producer_id, answer.producer_epoch
            p.sequences.clear()
        else:
            p.start_end(commit)
            while p.ended() is None:  # its markers are written in parts
                if commit:
                    self.check(is_marking=True)
                self.b.tick()
            assert p.ended() == 0
        one = self.model.open.pop(name)
        if commit:
            one.committed, one.number = committed_at, len(self.model.committed)
            one.extents = {
                log: row for log, row in one.extents.items() if log[0] in self.model.whole
            }
            self.model.committed.append(one)

    def cut_short(self, name: str, how: str) -> None:
        """Restart the broker when a transaction has its first marker; the start writes the rest."""
        if name not in self.model.open:
            return
        p, one, committed_at = self.producers[name], self.model.open[name], self.order
        p.start_end(True)
        if p.ended() is None:
            self.b.tick()
        is_marked = any(
            not self.b.broker.topics.partition(*log).producer_state.has_ongoing_transaction_of(
                p.pid
            )  # type: ignore[union-attr]
            for log in one.extents
            if log[0] in self.model.whole
        )
        self.restart(how)
        del self.model.open[name]
        one.extents = {log: row for log, row in one.extents.items() if log[0] in self.model.whole}
        one.committed = committed_at if is_marked else self.order
        one.number = len(self.model.committed)
        self.model.committed.append(one)

    def restart(self, how: str) -> None:
        getattr(self.b, how)()
        self.note_cuts()
        self.start += 1
        for p in self.producers.values():
            p.reconnect()
        if how == "lose_power":  # which aborts what is open
            self.has_lost_power = True
            self.model.open.clear()
            self.before.clear()  # records without a transaction may be gone
            for p in self.producers.values():
                p.begin_session()
            for time in list(self.recorded):
                if self.at_cut(time)["a", 0][1] != time:
                    del self.recorded[time]
        for one in self.model.open.values():
            one.last = self.order  # the broker no longer knows when the last record arrived

    def recreate(self, topic: str) -> None:
        answer = self.b.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
        assert answer.responses[0].error_code == 0
        self.model.forget(topic)
        for one in self.model.open.values():
            for log in [log for log in one.extents if log[0] == topic]:
                del one.extents[log]
        for p in self.producers.values():
            for log in [log for log in p.sequences if log[0] == topic]:
                del p.sequences[log]
        self.before = {log: lso for log, lso in self.before.items() if log[0] != topic}
        for offsets in self.recorded.values():
            for log in [log for log in offsets if log[0] == topic]:
                offsets[log] = EMPTY
        dropped = self.take_cuts_without_partitions()
        self.create(topic, PARTITIONS[topic])
        if not self.has_lost_power:  # after one, the broker may know cuts that the model does not
            for time in dropped:
                assert self.at_cut(time)["a", 0] == (Code.NONE, -1, -1)

    def take_cuts_without_partitions(self) -> list[int]:
        """Remove the noted cuts if no partition that exists is in one of them: the broker drops
        cuts with the last such partition. Gives: their times.
        """
        if any(offset >= 0 for offsets in self.recorded.values() for offset in offsets.values()):
            return []
        dropped = list(self.recorded)
        self.recorded.clear()
        return dropped

    def set_whole(self, topic: str, value: bool) -> None:
        """Give a topic the setting, or take it away for good."""
        row = AlterableConfig(name=WHOLE, config_operation=0, value=str(value).lower())
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[row])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        assert self.b.call(request, 1).responses[0].error_code == 0
        if value:
            if topic not in self.model.whole:
                for log in [log for log in LOGS if log[0] == topic]:
                    here = self.b.broker.topics.partition(*log)
                    assert here is not None
                    for offsets in self.recorded.values():
                        offsets[log] = NOT_INCLUDED if here.log_end_offset else EMPTY
            self.model.whole.add(topic)
        else:
            self.model.whole.discard(topic)
            self.model.forget(topic)

    # --- what is compared ------------------------------------------------------------------------

    def stable(self) -> dict[tuple[str, int], int]:
        """The last stable offsets that one ListOffsets gives."""
        return {log: offset for log, (_, _, offset) in self.offsets(-1).items()}

    def at_cut(self, time_ms: int) -> dict[tuple[str, int], tuple[int, int, int]]:
        """What one ListOffsets gives for the newest cut at or before a time."""
        return self.offsets(AT_OR_BEFORE + time_ms)

    def offsets(self, timestamp: int) -> dict[tuple[str, int], tuple[int, int, int]]:
        """The error code, the time and the offset that one ListOffsets gives."""
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=index, current_leader_epoch=-1, timestamp=timestamp
                        )
                        for index in range(count)
                    ],
                )
                for topic, count in PARTITIONS.items()
            ],
        )
        answer = self.b.call(request, 6, READER)
        return {
            (topic.name, row.partition_index): (row.error_code, row.timestamp, row.offset)
            for topic in answer.topics
            for row in topic.partitions
        }

    def check(self, *, is_marking: bool = False) -> None:
        """Compare the broker with the model.

        Takes: is_marking, whether a transaction has some of its markers; until it has them all, all
               of it is held back in the topics with the setting, as while it was open.
        """
        found = self.stable()
        ends = {}
        for log in LOGS:
            here = self.b.broker.topics.partition(*log)
            assert here is not None
            ends[log] = here.log_end_offset
        cut = self.model.cut(ends)
        assert found == {
            log: found[log] if is_marking and log[0] not in self.model.whole else offset
            for log, offset in cut.items()
        }
        for one in self.model.committed:
            sides = {end <= found[log] for log, (_, end) in one.extents.items()}
            above = {first >= found[log] for log, (first, _) in one.extents.items()}
            assert sides in (set(), {True}) or above == {True}, "a transaction is cut"
        for log, offset in self.before.items():
            assert found[log] >= offset, f"the last stable offset of {log} went back"
        self.before = found
        self.check_cuts(found)

    def check_cuts(self, stable: dict[tuple[str, int], int]) -> None:
        """Ask for each recorded cut. Takes: stable, the last stable offsets."""
        earlier: dict[tuple[str, int], int] = {}
        for time, expected in sorted(self.recorded.items()):
            at_cut: dict[tuple[str, int], int] = {}
            for log, answer in self.at_cut(time).items():
                if log[0] not in self.model.whole:
                    assert answer == (Code.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1, -1)
                    continue
                code, time_of_cut, offset = answer
                assert (code, time_of_cut) == (Code.NONE, time)
                if expected[log] == EMPTY:
                    assert offset in (0, NOT_INCLUDED)
                else:
                    assert offset == expected[log]
                if offset != NOT_INCLUDED:
                    assert earlier.get(log, 0) <= offset <= stable[log]
                    at_cut[log] = offset
            earlier |= at_cut
            for one in self.model.committed:
                sides = {
                    end <= at_cut[log] for log, (_, end) in one.extents.items() if log in at_cut
                }
                assert len(sides) < 2, f"the cut of {time} has a part of a transaction"


NAMES = st.sampled_from(["p0", "p1", "p2", "p3"])
WRITE = st.tuples(st.just("write"), NAMES, st.sampled_from(LOGS))
EVENT = st.one_of(
    WRITE,
    WRITE,
    WRITE,
    st.tuples(st.just("commit"), NAMES),
    st.tuples(st.just("commit"), NAMES),
    st.tuples(st.just("abort"), NAMES),
    st.tuples(st.just("wait")),
    st.tuples(st.just("transfer"), NAMES, st.sampled_from(LOGS), st.sampled_from(LOGS)),
    st.tuples(st.just("transfer"), NAMES, st.sampled_from(LOGS), st.sampled_from(LOGS)),
    st.tuples(st.just("restart"), st.sampled_from(["kill", "kill", "stop", "lose_power"])),
    st.tuples(st.just("cut short"), NAMES, st.sampled_from(["kill", "stop"])),
    st.tuples(st.just("recreate"), st.sampled_from(["a", "b", "plain"])),
    st.tuples(st.just("set"), st.sampled_from([("b", False), ("c", True)])),
)


@settings(max_examples=drawn(150), deadline=None)
@given(
    version=st.sampled_from([1, 1, 2]),
    in_parts=st.booleans(),
    durability=st.sampled_from(
        [{}, {"barnabas_flush_journal_logs": "0"}, {"barnabas_transaction_durability": "os"}]
    ),
    events=st.lists(EVENT, min_size=5, max_size=40),
)
@example(  # the only topics with the setting are deleted, and with them all cuts
    version=1,
    in_parts=False,
    durability={},
    events=[
        ("write", "p0", ("a", 0)),
        ("commit", "p0"),
        ("wait",),
        ("recreate", "a"),
        ("recreate", "b"),
        ("transfer", "p0", ("a", 0), ("b", 0)),
    ],
)
@example(  # a topic without the setting is in cuts of the time when it had the setting
    version=1,
    in_parts=False,
    durability={},
    events=[
        ("transfer", "p0", ("a", 0), ("b", 0)),
        ("set", ("b", False)),
        ("recreate", "a"),
        ("restart", "kill"),
        ("recreate", "b"),
    ],
)
def test_the_cut_is_that_of_the_model(
    version: int, in_parts: bool, durability: dict[str, str], events: list[tuple[object, ...]]
) -> None:
    world = World(version, **durability)
    for kind, *rest in events:
        if in_parts and version == 1:
            world.b.parts.transaction_ends.markers_at_once = 1
        match kind, rest:
            case "write", [str(name), tuple(log)]:
                world.write(name, log)
            case "commit" | "abort", [str(name)]:
                world.end(name, kind == "commit")
            case "cut short", [str(name), str(how)]:
                if in_parts and version == 1:
                    world.cut_short(name, how)
            case "wait", _:
                world.b.tick(1)
            case "transfer", [str(name), tuple(one), tuple(other)]:
                world.write(name, one)
                world.write(name, other)
                world.end(name, True)
                world.b.tick(1)
            case "restart", [str(how)]:
                if how != "lose_power" or not durability.get("barnabas_transaction_durability"):
                    world.restart(how)
            case "recreate", [str(topic)]:
                world.recreate(topic)
            case "set", [(str(topic), bool(value))]:
                world.set_whole(topic, value)
        world.check()


@dataclass(eq=False)
class Stable:
    """A log with its own last stable offset. What readers are given is at or below it."""

    offset: int

    @property
    def last_stable_offset(self) -> int:
        return self.offset // 2

    def own_stable_offset(self) -> int:
        return self.offset


EXTENT = st.tuples(st.integers(0, 9), st.integers(1, 4))
ROW = st.tuples(
    st.dictionaries(st.integers(0, 2), EXTENT, min_size=1, max_size=3),
    st.integers(1, 12),  # how long before its commit its last record arrived
    st.sampled_from([True, True, True, False]),
)


@settings(max_examples=drawn(300), deadline=None)
@given(
    stable=st.lists(st.integers(0, 13), min_size=3, max_size=3),
    drawn_rows=st.lists(ROW, max_size=8),
)
def test_what_is_held_back_is_what_the_rule_says(
    stable: list[int], drawn_rows: list[tuple[dict[int, tuple[int, int]], int, bool]]
) -> None:
    """Histories in which an end is exactly another one's first offset are rare in a broker."""
    logs = [Stable(offset) for offset in stable]
    rows = []
    for place, (extents, before, is_complete) in enumerate(drawn_rows):
        row = Committed(str(place), place, is_complete=is_complete)
        row.extents = {logs[at]: (first, first + size) for at, (first, size) in extents.items()}  # type: ignore[misc]
        row.last_at = place - before
        rows.append(row)
    bounds = held(rows)
    expected = {row for row in rows if not row.is_complete or row.blocked_at() is not None}
    while more := {
        row
        for row in rows
        if row not in expected
        and any(
            other.committed_at <= row.last_at
            or any(
                row.extents[log][1] > other.extents[log][0]
                for log in row.extents.keys() & other.extents
            )
            for other in expected
        )
    }:
        expected |= more
    assert {row for row in rows if row.is_held} == expected
    for row in rows:
        assert row.witness is row.blocked_at()
    firsts: dict[object, list[int]] = {}
    for row in expected:
        for log, (first, _) in row.extents.items():
            firsts.setdefault(log, []).append(first)
    assert bounds == {log: min(offsets) for log, offsets in firsts.items()}
