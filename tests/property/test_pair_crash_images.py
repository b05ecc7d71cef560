"""A crash of the leader or of its standby at each change of its disk.

The course of `test_crash_images.py` is run once by a leader whose standby receives every change.
Then, for each change of a disk:

what crashes    what is tried
the leader      it starts again, and its standby follows it again
                the standby takes over, if its standby note allows that: it has the leader's state
                before or after the interrupted action, and everything promised until then
the standby     it follows the current leader, and becomes equal to it, also after a power loss
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from helpers.crash_images import Files, Image, ImagedDisk, disk_of, files_on, started_on
from helpers.disk_broker import DATA_DIR, DiskBroker
from helpers.disk_course import Course, changed_amid, deletion
from helpers.pictures import differences, known_of
from helpers.standby_pair import LeaderBroker, Pair, replicated_files
from helpers.strays import strays_of
from sim.disk import SimDisk

from barnabas.replication.following import FOLLOWING, StandbyNote, holding_of
from barnabas.replication.leadership import Holding

pytestmark = pytest.mark.deep

SHARE = 200  # the quick test tries one of every SHARE images
PARTS = ("transactions", "requests", "remake", "retention", "compaction", "returns")


class AwaitedLeader(LeaderBroker):
    """A leader whose responses always wait for the standby."""

    may_be_alone = False


class LeadersDisk(ImagedDisk):
    """The leader's disk. `copies` has, for each image of a kill, the standby's files at that
    moment.
    """

    standby: ImagedDisk | None = None

    def _note(self, kind: str, files: Files) -> None:
        """Record, with each image of a kill of the leader, the standby's files at that moment."""
        if kind == "kill" and (kind, files) not in self._images and self.standby is not None:
            self.copies[files] = files_on(self.standby, "kill")
        super()._note(kind, files)

    def begin(self) -> None:
        self.copies: dict[Files, Files] = {}
        super().begin()


class PairCourse(Course):
    """A course whose standby receives every change after each event of the leader.

    Takes: is_from_start, whether to take images during the standby's first comparison as well.
    """

    def __init__(self, is_from_start: bool) -> None:
        self.pair: Pair | None = None
        super().__init__(LeadersDisk, AwaitedLeader)
        b = self.b
        assert isinstance(b, AwaitedLeader) and isinstance(self.disk, LeadersDisk)
        self.standby = ImagedDisk(self.disk.now_ms)
        self.standby.mkdir(DATA_DIR)
        self.standby.fsync_dir("/")
        if is_from_start:
            self.standby.begin()
        self.disk.standby = self.standby
        self.piece = 1 << 20
        self.pair = Pair(b, self.standby)
        self.pair.connect()
        self._note()
        self.standby.begin()

    def _note(self) -> None:
        """Deliver all bytes to the standby, and take an image of its disk if it follows."""
        super()._note()
        if self.pair is not None and self.disk.is_taking:
            while self.pair.deliver(self.piece):
                pass
            if self.pair.leader.leading.follows:
                self.standby.done = self.disk.done
                self.standby.take()

    def returns(self) -> None:
        """Disconnect the standby for many changes. After that it compares its files piece by
        piece.
        """
        assert self.pair is not None
        self.pair.cut()
        self.do("delete", lambda: self.full.call(deletion("gone"), 4))
        self.transactions()
        self.pair.connect()
        self.piece = 700
        for _ in range(60):
            self.pair.deliver(self.piece)
        self.do("amid the comparison", lambda: self.b.produce("u", (b"amid",)))
        self.compaction()


def faults_of_successor(course: PairCourse, image: Image) -> list[str]:
    """The faults of a standby that takes over on the image."""
    note = StandbyNote(disk_of(image, course.standby), DATA_DIR).read()
    if note != FOLLOWING or not image.is_same_run:
        return []
    b = started_on(image, course.b, DiskBroker.open)
    found = [f"off line: {key}: {error}" for key, error in b.broker.logs.offline.items()]
    found += strays_of(b.broker)
    way = "" if course.is_whole else "metadata."
    # The start finishes a deletion that the standby has begun, so the state may be two actions
    # ahead.
    found += changed_amid(course, image.done, b, way, ahead=2)
    return found + lost_by(course, image.done, b)


def lost_by(course: Course, done: int, b: DiskBroker) -> list[str]:
    """The facts that were promised up to action `done`, but do not hold on the broker."""
    return [f"lost: {name}" for at, name, fact in course.facts if at <= done and not fact(b)]


def faults_of_return(leader: LeaderBroker, standby: SimDisk) -> list[str]:
    """The faults of a standby that follows the leader again after an interruption."""
    pair = Pair(leader, standby)
    pair.connect()
    pair.deliver_all()
    pair.cut()
    found = [] if holding_of(standby, DATA_DIR) is Holding.WHOLE else ["it is not noted as whole"]
    if replicated_files(standby) != replicated_files(leader.disk):
        found.append("it is not equal to its leader")
    if files_on(standby, "power") != files_on(standby, "kill"):
        found.append("it counts as whole, and is not on the disk")
    return found


def faults_of_leader(course: PairCourse, image: Image) -> list[str]:
    """The faults of the leader when it starts on the image, with a standby."""
    assert isinstance(course.disk, LeadersDisk)
    b = started_on(image, course.b, AwaitedLeader.open)
    assert isinstance(b, AwaitedLeader)
    had = Image("kill", image.done, course.disk.copies[image.files])
    standby = disk_of(had, course.standby)
    found = faults_of_return(b, standby)
    successor = started_on(
        Image("kill", image.done, files_on(standby, "kill")), course.b, DiskBroker.open
    )
    found += differences(known_of(b.broker), known_of(successor.broker))
    return found + lost_by(course, image.done, successor)


def wrong_in(part: str, share: int) -> list[str]:
    """The faults on one of every `share` images of the leader and of the standby."""
    course = PairCourse(part == "transactions")
    getattr(course, part)()
    course.disk.is_taking = course.standby.is_taking = False
    assert course.pair is not None and isinstance(course.b, LeaderBroker)
    course.pair.cut()
    wrong = []
    for image in course.standby.images()[share // 2 :: share]:
        wrong += _named(course, image, "successor", partial(faults_of_successor, course, image))
        returned = partial(faults_of_return, course.b, disk_of(image, course.standby))
        wrong += _named(course, image, "return", returned)
    kills = [image for image in course.disk.images() if image.kind == "kill"]
    for image in kills[share // 2 :: share]:
        wrong += _named(course, image, "leader", partial(faults_of_leader, course, image))
    return wrong


def _named(
    course: PairCourse, image: Image, who: str, faults: Callable[[], list[str]]
) -> list[str]:
    """The first of the faults, with the crash and the action at which it was found."""
    try:
        found = faults()
    except Exception as error:
        found = [f"it does not start, or not serve: {error!r}"]
    name = course.names[min(image.done + 1, len(course.names) - 1)]
    return [f"{who} {image.kind} amid {name}: {found[0]} (and {len(found) - 1})"] if found else []


@pytest.mark.parametrize("part", PARTS)
def test_of_a_pair_one_crash_takes_nothing(part: str) -> None:
    assert wrong_in(part, SHARE) == []


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS)
def test_of_a_pair_no_crash_takes_anything(part: str) -> None:
    assert wrong_in(part, 1) == []
