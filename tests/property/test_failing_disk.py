"""One operation of the disk fails. Each operation fails in turn, during each kind of write of a
broker.

After a device error (EIO) the broker may continue with all promised state, or end with that error.
If it ends, everything that is not durable is lost, and the next start must have all promised state.

After a lack of space for one operation (ENOSPC) the broker must continue. Its state equals the
state after a restart, no trace of the refused request is left, and the next request of each kind
succeeds.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from helpers.disk_broker import DiskBroker, Producer
from helpers.disk_course import PARTS, Course, Fact
from helpers.failing_disk import FailingDisk, is_of_the_disk
from helpers.pictures import differences, groups_unknown_to_a_start, known_of
from helpers.strays import strays_of

pytestmark = pytest.mark.deep

SHARE = 200  # the quick test fails one of every SHARE operations
CODES = (errno.EIO, errno.ENOSPC)
# only these are compared at any time, since a start restores other state that has expired
OF_ANY_TIME = "metadata.", "log "
OURS = str(Path(__file__).resolve().parents[1])


def count_of(part: str, code: int) -> int:
    """The number of operations that can fail in this part of the course."""
    return _course(part, code, -1).count


def _course(part: str, code: int, fails_at: int) -> FailingDisk:
    """Run a part of the course while the operation with this number fails."""
    course = Course(FailingDisk)
    disk = course.disk
    assert isinstance(disk, FailingDisk)
    disk.code, disk.fails_at = code, fails_at
    getattr(course, part)()
    return disk


def wrong_after(part: str, code: int, fails_at: int) -> list[str]:
    """The faults of the broker after the operation with the number `fails_at` has failed with
    `code`.
    """
    course = Course(FailingDisk)
    b, disk = course.b, course.disk
    assert isinstance(disk, FailingDisk)
    disk.code, disk.fails_at = code, fails_at
    has_ended = False
    try:
        getattr(course, part)()
    except OSError as error:
        if not is_of_the_disk(error):
            raise
        has_ended = True
    except AssertionError as error:
        if not _is_of_a_test(error):  # the failed request made a check of the course itself fail
            raise
    disk.forget()
    facts = [fact for _, _, fact in course.facts]
    if has_ended:
        if code == errno.EIO:
            b.broker.logs.note_failure()
        elif part != "starts":  # a lack of space may end only a start or a stop
            return ["it ended for want of space"]
        if code == errno.EIO and fails_at % 2:
            b.copy_disk(is_new_mount=False)
        else:
            b.kill()
    else:
        course.full.settle()
        b.tick(61_000)
        course.full.settle()
    return wrong_now(b, facts, ("",) if course.is_whole else OF_ANY_TIME)


def wrong_now(b: DiskBroker, facts: list[Fact], ways: tuple[str, ...]) -> list[str]:
    """The faults of a running broker, its faults after a restart, and its faults after a power
    loss.
    """
    found = [f"off line: {key}: {error}" for key, error in b.broker.logs.offline.items()]
    found += strays_of(b.broker)
    found += [f"lost: {number}" for number, fact in enumerate(facts) if not fact(b)]
    _write_of_each_kind(b)
    unsettled = groups_unknown_to_a_start(b.broker)
    live = known_of(b.broker, unsettled)
    b.kill()
    found += [
        row for row in differences(live, known_of(b.broker, unsettled)) if row.startswith(ways)
    ]
    for way in (b.kill, b.lose_power):
        way()
        found += [f"lost by {way.__name__}: {at}" for at, fact in enumerate(facts) if not fact(b)]
        found += [] if b"goes on" in b.read("u", 1, committed=True) else [f"lost by {way.__name__}"]
    return found


def _write_of_each_kind(b: DiskBroker) -> None:
    """Send a request of each kind, which must succeed."""
    producer = Producer(b, "goes on")
    producer.send("u", 1, b"goes on")
    producer.send_offset("goes on", "u", 1)
    assert producer.end(True) == 0
    b.topic("goes-on", 2)
    assert b.produce("goes-on", (b"1",))[0] == 0
    assert b.commit("old", "u", 2) == 0


def _is_of_a_test(error: BaseException) -> bool:
    """Whether the tests' own code raised the error, and not the product."""
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename.startswith(OURS)


def wrong_in(part: str, code: int, share: int) -> dict[int, list[str]]:
    """Fail one of every `share` operations. Return the faults by the number of the operation."""
    count = count_of(part, code)
    found = {at: wrong_after(part, code, at) for at in range(share // 2 % count, count, share)}
    return {at: wrong for at, wrong in found.items() if wrong}


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("part", PARTS)
def test_what_was_promised_outlives_an_error_of_the_disk(part: str, code: int) -> None:
    assert wrong_in(part, code, SHARE) == {}


@pytest.mark.long
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("part", PARTS)
def test_what_was_promised_outlives_each_error_of_the_disk(part: str, code: int) -> None:
    assert wrong_in(part, code, 1) == {}
