"""A crash before and after each change of the disk, one after the other, for each kind of thing
that a broker writes; of a process and of a machine.

The course below is run once, on a disk that keeps what a crash would leave at each of its changes
(`helpers/crash_images.py`). Then a broker is started on each of these. It knows what the live one
knew before the action that was cut off, or after it (`helpers/pictures.py`); after a loss of power,
that holds of what is promised then. It keeps nothing of what is gone (`helpers/strays.py`), and the
next loss of power takes nothing either.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from typing import Any

import pytest
from helpers.crash_images import POWER_KINDS, Image, ImagedDisk, started_on
from helpers.disk_broker import DiskBroker, Producer
from helpers.full_disk import ALL, REQUESTS, FullDisk, codes
from helpers.pictures import differences, groups_under_way, known_of
from helpers.strays import strays_of
from sim.disk import Refusal

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

# What a start may leave otherwise than either state, by the row.
AMID = re.compile(
    # markers that a kill found written are written again, and their transaction ends now
    r"log .*\.(high_watermark|last_stable_offset|log_end_offset|end_offset|size|coordinator_epoch):"
    r"|transactions\..*\.last_update_ms:"
    # a deletion, and the initialisation of states, go on
    r"|metadata\.deletions|share states\.|groups\..*\.initializing_since_ms"
    # ids that were lost are skipped
    r"|metadata\.next_producer_id"
)
SHARE = 20  # of the images, which the quick test tries
Fact = Callable[[DiskBroker], bool]


class Course:
    """A broker with something of everything, and what is done with it.

    states: what it knew, whenever that had changed; names: by which action. facts: what was
    promised for ever, and how many states there were then. is_whole: whether all that is known is
    compared, since no time passes and no start comes.
    """

    def __init__(self) -> None:
        self.full = FullDisk(new_disk=ImagedDisk)
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
        self.disk.is_taking = True
        self._note()
        for name in ("send", "tick", "flush_one"):
            setattr(self.b, name, self._noting(getattr(self.b, name)))

    def _noting(self, event: Callable[..., Any]) -> Callable[..., Any]:
        """An event of the broker, after which what it knows is noted."""

        def noting(*arguments: Any, **named: Any) -> Any:
            done = event(*arguments, **named)
            if self.disk.is_taking:
                self._note()
            return done

        return noting

    def do(self, name: str, action: Callable[[], object], fact: Fact | None = None) -> None:
        """Carry out an action; from its answer on the fact holds, whatever befalls the machine."""
        self.name = name
        action()
        self._note()
        self.disk.take()
        if fact is not None:
            assert fact(self.b), name
            self.facts.append((self.disk.done, name, fact))

    def _note(self) -> None:
        self.unsettled.update(groups_under_way(self.b.broker))
        known = known_of(self.b.broker)
        if not self.states or known != self.states[-1]:
            self.states.append(known)
            self.names.append(self.name)
        self.disk.done = len(self.states) - 1

    # --- what is done ----------------------------------------------------------------------------

    def requests(self) -> None:
        """Each request that writes something."""
        for key, request in REQUESTS.items():
            self.do(f"request {key}", lambda made=request: self.full.call(*made(self.full)))

    def transactions(self) -> None:
        b = self.b
        for number in range(3):
            self.name = "writes"
            producer = Producer(b, f"txn-{number}")
            producer.send("kept", 0, b"kept %d" % number)
            producer.send("t", 1, b"kept %d" % number)
            producer.send_offset("offsets", "kept", number + 1)
            self.do("commit", lambda producer=producer: producer.end(True), _kept(number))

    def remake(self) -> None:
        """A topic is deleted, and one of its name is made."""
        self.name = "writes"
        assert self.b.produce("kept", (b"first",))[0] == self.b.commit("offsets", "kept", 1) == 0
        self.do("delete", lambda: self.full.call(_deletion("kept"), 4), _is_not_first)
        self.do("make", lambda: self.b.topic("kept"), _is_not_first)

    def retention(self) -> None:
        b, self.is_whole = self.b, False
        self.do("retention", lambda: self.full.call(_config("small", "retention.bytes", "200"), 1))
        for _ in range(4):
            self.do("time", lambda: b.tick(700_000))
            start = b.broker.logs.logs["small", 0].log_start_offset
            self.facts.append((self.disk.done, "log start", _begins_at(start)))

    def compaction(self) -> None:
        b, self.is_whole = self.b, False
        for number in range(12):
            data = encode_batch([NewRecord(b"%d" % (number % 2), b"%d" % number * 60, b.now_ms)])
            assert codes(b.call(_produce("keys", bytes(data)), 9)) == {0}
        self.do("time", lambda: b.tick(60_000))
        self.do("cleaning", self._clean)

    def _clean(self) -> None:
        for job in self.b.cleanings:
            self.b.broker.on_cleaned(job, clean(self.disk, job), "", self.b.now_ms)
        self.b.tick()

    def starts(self) -> None:
        """It is stopped, killed, and loses its power; the images are of the starts, too."""
        self.is_whole = False
        for name in ("stop", "kill", "lose_power"):
            self.full.b.produce("t", (name.encode(),))
            self.do(name, getattr(self.b, name))


SMALL = {
    "small": {"segment_bytes": "200", "file_delete_delay_ms": "1000"},
    "keys": {"cleanup_policy": "compact", "segment_bytes": "200"},
}
DELETE_TOPICS = 20
PARTS = ("transactions", "requests", "remake", "retention", "compaction", "starts")


def _kept(number: int) -> Fact:
    value = b"kept %d" % number

    def fact(b: DiskBroker) -> bool:
        committed = b.group_offset("offsets", "kept")
        is_open = committed[0] == Code.UNSTABLE_OFFSET_COMMIT  # in the next transaction
        return value in b.read("t", 1, committed=True) and (is_open or committed[1] > number)

    return fact


def _begins_at(start: int) -> Fact:
    return lambda b: b.broker.logs.logs["small", 0].log_start_offset >= start


def _produce(topic: str, records: bytes) -> ProduceRequest:
    rows = [PartitionProduceData(index=0, records=records)]
    return ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=rows)],
    )  # fmt: skip


def _is_not_first(b: DiskBroker) -> bool:
    topic = b.broker.metadata.topic("kept")
    return topic is None or (b.end_offset("kept") == 0 and b.group_offset("offsets", "kept")[1] < 0)


def _deletion(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)


def _config(topic: str, name: str, value: str) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        [AlterConfigsResource(2, topic, [AlterableConfig(name, 0, value)])]
    )


def faults_of(course: Course, image: Image) -> list[str]:
    """What is wrong with a broker that is started on an image."""
    b = started_on(image, course.b)
    found = [f"off line: {key}: {error}" for key, error in b.broker.logs.offline.items()]
    found += strays_of(b.broker)
    known = known_of(b.broker, course.unsettled)
    way = "metadata." if image.kind in POWER_KINDS or not course.is_whole else ""
    known = {row: value for row, value in known.items() if row.startswith(way)}
    found += min(
        (
            [row for row in differences(_of_settled(state, course.unsettled, way), known)
             if not AMID.match(row)]
            for state in course.states[max(image.done - 1, 0) : image.done + 2]
        ),
        key=len,
    )  # fmt: skip
    for when in ("", " with the next loss of power"):
        found += [
            f"lost{when}: {name}"
            for done, name, fact in course.facts
            if done <= image.done and not fact(b)
        ]
        if not when:
            assert b.produce("u", (b"after",))[0] == 0
            b.lose_power()
    return found


def _of_settled(state: dict[str, str], unsettled: set[str], way: str) -> dict[str, str]:
    names = [repr(name) for name in unsettled]
    return {
        row: value
        for row, value in state.items()
        if row.startswith(way)
        and not (row.startswith("groups.") and any(name in row for name in names))
    }


def wrong_in(part: str, share: int) -> list[str]:
    """What is wrong after one image in so many."""
    course = Course()
    getattr(course, part)()
    course.disk.is_taking = False
    wrong = []
    for image in course.disk.images()[share // 2 :: share]:
        try:
            faults = faults_of(course, image)
        except Exception as error:
            faults = [f"it does not start, or not serve: {error!r}"]
        if faults:
            name = course.names[min(image.done + 1, len(course.names) - 1)]
            wrong.append(f"{image.kind} amid {name}: {faults[0]} (and {len(faults) - 1})")
    return wrong


@pytest.mark.parametrize("part", PARTS)
def test_a_crash_leaves_what_there_was_or_what_there_is(part: str) -> None:
    assert wrong_in(part, SHARE) == []


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS)
def test_each_crash_leaves_what_there_was_or_what_there_is(part: str) -> None:
    assert wrong_in(part, 1) == []


# --- the disk is full from some change on --------------------------------------------------------


def left_after(key: int, after: int) -> list[str]:
    """A request is answered while the disk takes so many changes and no more. Then there is
    space.
    """
    full = FullDisk()
    b = full.b
    request, version = REQUESTS[key](full)
    connection = b.connect()
    b.disk.refuse(Refusal(ALL, errno.ENOSPC, after))
    b.send(connection, request, version)
    for _ in range(20):
        b.tick(1)
    b.disk.refuse(None)
    full.settle()
    found = [] if b.answer(connection) is not None else ["there is no answer"]
    b.tick(61_000)
    full.settle()
    found += strays_of(b.broker)
    unsettled = groups_under_way(b.broker)
    live = known_of(b.broker, unsettled)
    if key == DELETE_TOPICS and "gone" not in b.broker.topics:
        b.topic("gone")
        live = known_of(b.broker, unsettled)
    b.kill()
    return found + differences(live, known_of(b.broker, unsettled))


QUICK = [(20, 3), (20, 9), (26, 2)]


@pytest.mark.parametrize(("key", "after"), QUICK)
def test_nothing_is_left_of_what_found_no_space(key: int, after: int) -> None:
    assert left_after(key, after) == []


@pytest.mark.long
@pytest.mark.parametrize("key", REQUESTS)
def test_nothing_is_left_of_what_found_no_space_at_any_change(key: int) -> None:
    found = {after: left_after(key, after) for after in range(24 if key == DELETE_TOPICS else 8)}
    assert {after: left for after, left in found.items() if left} == {}
