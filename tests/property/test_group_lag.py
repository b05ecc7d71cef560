"""What a group waits for in a log, compared with what a reader gets from the broker there.

Logs have plain records, transactions that were committed and aborted and others that are open, and
a start that was moved by DeleteRecords. For each offset that a group may have committed, and for a
group without one, the situation has to follow from the records that a Fetch returns.
"""

from __future__ import annotations

from helpers.disk_broker import DiskBroker, Producer
from helpers.examples import drawn
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.broker.observe import Tails, _place
from barnabas.group_lag import Situation, partition_lag
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

PRODUCERS = ("one", "two")
STEP = st.one_of(
    st.just(("plain", "", 1)),
    st.tuples(st.just("send"), st.sampled_from(PRODUCERS), st.integers(1, 3)),
    st.tuples(st.sampled_from(["commit", "abort"]), st.sampled_from(PRODUCERS), st.just(0)),
    st.tuples(st.just("delete"), st.just(""), st.integers(1, 4)),
)


class World:
    """A broker with one partition, and the open transactions on it."""

    def __init__(self) -> None:
        self.b = DiskBroker()
        self.b.topic("t")
        self.producers: dict[str, Producer] = {}
        self.is_open: set[str] = set()

    def step(self, what: str, name: str, count: int) -> None:
        if what == "plain":
            self.b.produce("t", (b"v",))
        elif what == "delete":
            start = self.b.fetch("t", self.start).log_start_offset
            end = self.b.end_offset("t")
            partition = DeleteRecordsPartition(0, min(start + count, end))
            request = DeleteRecordsRequest([DeleteRecordsTopic("t", [partition])], 1000)
            self.b.call(request, 2)
        elif what == "send":
            if name not in self.producers:
                self.producers[name] = Producer(self.b, name)
            self.is_open.add(name)
            self.producers[name].send("t", 0, *[b"v"] * count)
        elif name in self.is_open:
            assert self.producers[name].end(what == "commit") == 0
            self.is_open.discard(name)

    @property
    def start(self) -> int:
        log = self.b.broker.topics.partition("t", 0)
        assert log is not None
        return log.log_start_offset

    def check(self, committed: int | None) -> None:
        """Compare what is said of a group with what its members would read."""
        log = self.b.broker.topics.partition("t", 0)
        assert log is not None
        start, stable, end = log.log_start_offset, log.last_stable_offset, log.high_watermark
        found = partition_lag(_place(log, committed, False, Tails()), is_assigned=True)
        at = max(start, -1 if committed is None else committed)
        if committed is not None and committed > end:
            assert (found.situation, found.lag) == (Situation.BEYOND_END, 0)
            return
        readable = self.b.rows("t", at, committed=True) if at < stable else []
        waits = at <= stable < end
        assert found.held == (end - stable if waits else 0)
        if readable or stable < at < end:
            expected, lag = Situation.BEHIND, end - at
        elif waits:
            expected, lag = Situation.WAITS, end - stable
        else:
            expected, lag = Situation.UP_TO_DATE, 0
        if expected is not Situation.WAITS:
            if committed is None:
                expected = Situation.NEVER_COMMITTED
            elif committed < start:
                expected = Situation.BEFORE_START
        assert (found.situation, found.lag) == (expected, lag), (committed, start, stable, end)


@settings(max_examples=drawn(150), deadline=None)
@example([("send", "one", 1), ("abort", "one", 0)])
@example([("send", "one", 2), ("commit", "one", 0), ("send", "two", 1)])
@given(st.lists(STEP, max_size=14))
def test_the_situation_follows_from_what_a_reader_gets(steps: list[tuple[str, str, int]]) -> None:
    world = World()
    for step in steps:
        world.step(*step)
    world.check(None)
    for committed in range(world.b.end_offset("t") + 2):
        world.check(committed)
