"""A sequence of actions with every kind of write that a broker makes, on a disk that records all
changes. `property/test_crash_images.py` and `property/test_failing_disk.py` use it as their
history.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.cleaning.cleaner import clean
from helpers.crash_images import ImagedDisk
from helpers.disk_broker import DiskBroker, Producer
from helpers.full_disk import REQUESTS, FullDisk, codes
from helpers.pictures import differences, groups_unknown_to_a_start, known_of

# Entries of the state that may differ, after a start, both from the state before an action and from
# the state after it.
AMID = re.compile(
    # Markers that were missing after a kill are written again, so transactions end during the
    # restart.
    r"log .*\.(high_watermark|last_stable_offset|log_end_offset|end_offset|size|coordinator_epoch):"
    r"|transactions\..*\.last_update_ms:"
    # Deletions and the initialisation of share states continue after the start.
    r"|metadata\.deletions|share states\.|groups\..*\.initializing_since_ms"
    # Producer ids that a crash lost are not assigned again.
    r"|metadata\.next_producer_id"
)
Fact = Callable[[DiskBroker], bool]
DELETE_TOPICS = 20


class Course:
    """A broker with every kind of state, and the actions on it.

    `states` has the broker's state after each change, and `names` has the action that made each
    change. `facts` has the conditions that must stay true once they hold, each with the number of
    changes that preceded it. `is_whole` says whether the whole state is compared, which is possible
    only as long as no time passes and no restart happens.
    """

    def __init__(
        self,
        new_disk: Callable[[Any], ImagedDisk] = ImagedDisk,
        new_broker: type[DiskBroker] = DiskBroker,
    ) -> None:
        self.full = FullDisk(new_broker, new_disk=new_disk)
        self.b = self.full.b
        disk = self.b.disk
        assert isinstance(disk, ImagedDisk)
        self.disk = disk
        self.names: list[str] = []
        self.name = ""
        self.is_whole = True
        self.states: list[dict[str, str]] = []
        self.facts: list[tuple[int, str, Fact]] = []
        self.unsettled: set[str] = set()
        for name in ("kept", "small", "keys"):
            self.b.topic(name, 1, **SMALL.get(name, {}))
        for number in range(12):
            self.b.produce("small", (b"%d" % number * 60,))
        self.full.settle()
        self.disk.sync_all()
        self.disk.begin()
        self._note()
        for name in ("send", "tick", "flush_one"):
            setattr(self.b, name, self._noting(getattr(self.b, name)))

    def _noting(self, event: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap an event of the broker so that the state after each event is recorded."""

        def noting(*arguments: Any, **named: Any) -> Any:
            done = event(*arguments, **named)
            if self.disk.is_taking:
                self._note()
            return done

        return noting

    def do(self, name: str, action: Callable[[], object], fact: Fact | None = None) -> None:
        """Run an action. From its completion on, the fact must hold, whatever crash follows."""
        self.name = name
        action()
        self._note()
        self.disk.take()
        if fact is not None:
            assert fact(self.b), name
            self.facts.append((self.disk.done, name, fact))

    def _note(self) -> None:
        """Record the broker's state if it has changed since the last record."""
        if not self.disk.is_taking:
            return
        self.unsettled.update(groups_unknown_to_a_start(self.b.broker))
        known = known_of(self.b.broker)
        if not self.states or known != self.states[-1]:
            self.states.append(known)
            self.names.append(self.name)
        self.disk.done = len(self.states) - 1

    # --- what is done ----------------------------------------------------------------------------

    def requests(self) -> None:
        """Send one request of each API that writes."""
        for key, request in REQUESTS.items():
            self.do(f"request {key}", lambda made=request: self.full.call(*made(self.full)))

    def transactions(self) -> None:
        """Commit three transactions, each with two records and an offset."""
        b = self.b
        for number in range(3):
            self.name = "writes"
            producer = Producer(b, f"txn-{number}")
            producer.send("kept", 0, b"kept %d" % number)
            producer.send("t", 1, b"kept %d" % number)
            producer.send_offset("offsets", "kept", number + 1)
            self.do("commit", lambda producer=producer: producer.end(True), _kept(number))

    def remake(self) -> None:
        """Delete a topic, and create another one with the same name."""
        self.name = "writes"
        assert self.b.produce("kept", (b"first",))[0] == self.b.commit("offsets", "kept", 1) == 0
        self.do("delete", lambda: self.full.call(deletion("kept"), 4), _is_not_first)
        self.do("make", lambda: self.b.topic("kept"), _is_not_first)

    def retention(self) -> None:
        """Let retention delete segments. From then on, the log start offset must not decrease."""
        b, self.is_whole = self.b, False
        self.do("retention", lambda: self.full.call(_config("small", "retention.bytes", "200"), 1))
        for _ in range(4):
            self.do("time", lambda: b.tick(700_000))
            start = b.broker.logs.logs["small", 0].log_start_offset
            self.facts.append((self.disk.done, "log start", _begins_at(start)))

    def compaction(self) -> None:
        """Write two keys again and again, and let the cleaner run."""
        b, self.is_whole = self.b, False
        for number in range(12):
            data = encode_batch([NewRecord(b"%d" % (number % 2), b"%d" % number * 60, b.now_ms)])
            assert codes(b.call(_produce("keys", bytes(data)), 9)) == {0}
        self.do("time", lambda: b.tick(60_000))
        self.do("cleaning", self._clean)

    def _clean(self) -> None:
        """Run the cleaner's jobs, and report their results."""
        for job in self.b.cleanings:
            result, failed = None, ""
            try:
                result = clean(self.disk, job)
            except OSError as error:
                failed = str(error)
            self.b.broker.on_cleaned(job, result, failed, self.b.now_ms)
        self.b.tick()

    def starts(self) -> None:
        """Restart three times: after a clean stop, a kill and a power loss. Images are also taken
        during the starts, since a start writes.
        """
        self.is_whole = False
        for name in ("stop", "kill", "lose_power"):
            self.full.b.produce("t", (name.encode(),))
            self.do(name, getattr(self.b, name))


SMALL = {
    "small": {"segment_bytes": "200", "file_delete_delay_ms": "1000"},
    "keys": {"cleanup_policy": "compact", "segment_bytes": "200"},
}
PARTS = ("transactions", "requests", "remake", "retention", "compaction", "starts")


def _kept(number: int) -> Fact:
    """The fact that the transaction's record is committed, and also its offset or a later one."""
    value = b"kept %d" % number

    def fact(b: DiskBroker) -> bool:
        committed = b.group_offset("offsets", "kept")
        # The next transaction may have advanced the offset.
        is_open = committed[0] == Code.UNSTABLE_OFFSET_COMMIT
        return value in b.read("t", 1, committed=True) and (is_open or committed[1] > number)

    return fact


def _begins_at(start: int) -> Fact:
    return lambda b: b.broker.logs.logs["small", 0].log_start_offset >= start


def _produce(topic: str, records: bytes) -> ProduceRequest:
    """A Produce request with one batch for partition 0."""
    rows = [PartitionProduceData(index=0, records=records)]
    return ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=rows)],
    )  # fmt: skip


def _is_not_first(b: DiskBroker) -> bool:
    topic = b.broker.metadata.topic("kept")
    return topic is None or (b.end_offset("kept") == 0 and b.group_offset("offsets", "kept")[1] < 0)


def deletion(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)


def _config(topic: str, name: str, value: str) -> IncrementalAlterConfigsRequest:
    """A request that changes one setting of a topic."""
    return IncrementalAlterConfigsRequest(
        [AlterConfigsResource(2, topic, [AlterableConfig(name, 0, value)])]
    )


def changed_amid(
    course: Course, done: int, b: DiskBroker, prefix: str, ahead: int = 1
) -> list[str]:
    """Compare a broker that was started on an image with the states that the interrupted action may
    have left: the one before the action, and the next `ahead` ones after it.

    Takes:  done, the number of actions that were done; prefix, of the entries to compare.
    Gives:  the entries that differ from the closest of these states, without those that may change
            during a start (AMID). Empty: the action was atomic.
    """
    known = known_of(b.broker, course.unsettled)
    known = {row: value for row, value in known.items() if row.startswith(prefix)}
    return min(
        (
            [row for row in differences(_of_settled(state, course.unsettled, prefix), known)
             if not AMID.match(row)]
            for state in course.states[max(done - 1, 0) : done + 1 + ahead]
        ),
        key=len,
    )  # fmt: skip


def _of_settled(state: dict[str, str], unsettled: set[str], prefix: str) -> dict[str, str]:
    """The entries of a state with this prefix, without those of unsettled groups."""
    names = [repr(name) for name in unsettled]
    return {
        row: value
        for row, value in state.items()
        if row.startswith(prefix)
        and not (row.startswith("groups.") and any(name in row for name in names))
    }
