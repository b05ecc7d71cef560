"""A crash of the process or the machine before and after each change of the disk, for each kind of
write of a broker.

The actions of `helpers/disk_course.py` are run once, on a disk that records at each change what a
crash at that moment would leave (see `helpers/crash_images.py`). Then a broker is started on each
of these images. Its state must equal the live broker's state before or after the interrupted action
(see `helpers/pictures.py`). After a power loss, this holds only for state that must survive one.
The broker must keep no state of deleted objects (see `helpers/strays.py`), and a second power loss
must not lose anything.
"""

from __future__ import annotations

import errno

import pytest
from helpers.crash_images import POWER_KINDS, Image, started_on
from helpers.disk_course import DELETE_TOPICS, PARTS, Course, changed_amid
from helpers.full_disk import ALL, REQUESTS, FullDisk
from helpers.pictures import differences, groups_unknown_to_a_start, known_of
from helpers.strays import strays_of
from sim.disk import Refusal

pytestmark = pytest.mark.deep

SHARE = 20  # the quick test tries one of every SHARE images


def faults_of(course: Course, image: Image) -> list[str]:
    """The faults of a broker that is started on an image."""
    b = started_on(image, course.b)
    found = [f"off line: {key}: {error}" for key, error in b.broker.logs.offline.items()]
    found += strays_of(b.broker)
    way = "metadata." if image.kind in POWER_KINDS or not course.is_whole else ""
    found += changed_amid(course, image.done, b, way)
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


def wrong_in(part: str, share: int) -> list[str]:
    """The faults on one of every `share` images of this part of the course."""
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
    """Send a request while the disk allows only `after` further changes, then free space. Return
    the faults of the broker.
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
    unsettled = groups_unknown_to_a_start(b.broker)
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
