"""A log of Apache Kafka whose batches are torn, missing or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_kafka_log import kafka_log
from helpers.storage_logs import NOW_MS, batch

from barnabas.protocol.records import MAGIC_AT, read_header
from barnabas.storage.cleaning.cleaner import _emptied
from barnabas.storage.disk import OsDisk
from barnabas.storage.opening.torn_tail import (
    fault_of,
    good_batch_after,
    is_hole,
    is_whole,
    lacks_start,
)
from barnabas.storage.segments.index_cache import IndexCache
from barnabas.storage.segments.segment import Segment

# positions in segment 3, and the size of the segment, from Kafka's dump tool
SECOND, THIRD, SIZE = 78, 158, 2002


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return kafka_log(tmp_path).segments[1]


def damaged(segment: Segment, position: int, data: bytes) -> None:
    """Overwrite bytes of the segment's log file."""
    path = Path(segment.batches.path(".log"))
    raw = bytearray(path.read_bytes())
    raw[position : position + len(data)] = data
    path.write_bytes(raw)


def test_a_good_batch_has_no_fault(segment: Segment) -> None:
    header = read_header(segment.batches.file.pread(61, SECOND))
    assert fault_of(header, 4, 3, SIZE - SECOND) == "" and is_whole(header, segment, SECOND)


def test_faults_of_a_header(segment: Segment) -> None:
    header = read_header(segment.batches.file.pread(61, SECOND))
    assert fault_of(header._replace(magic=1), 4, 3, 100) == "no batch begins there"
    assert fault_of(header._replace(batch_length=48), 4, 3, 100) == "no batch begins there"
    assert fault_of(header, 4, 3, header.size_bytes - 1) == "a batch is cut off"
    assert "comes after offset 4" in fault_of(header, 5, 3, 100)
    assert fault_of(header._replace(last_offset_delta=-1), 4, 3, 100) != ""


def test_a_whole_batch_with_a_wrong_offset_is_not_a_torn_write(segment: Segment) -> None:
    damaged(segment, SECOND, (2).to_bytes(8))
    header = read_header(segment.batches.file.pread(61, SECOND))
    assert fault_of(header, 4, 3, SIZE - SECOND) and is_whole(header, segment, SECOND)
    assert not lacks_start(segment, SECOND, 4)


def test_a_sector_of_zeros_is_a_lost_sector(segment: Segment) -> None:
    assert not is_hole(segment, SECOND, 4)
    damaged(segment, SECOND, bytes(512 - SECOND))
    assert lacks_start(segment, SECOND, 4) and is_hole(segment, SECOND, 4)


def test_zeros_in_a_record_are_no_hole(segment: Segment) -> None:
    damaged(segment, THIRD + 65, bytes(10))
    assert not is_hole(segment, THIRD, 5)


def test_good_batch_after_gives_the_next_good_batch(segment: Segment) -> None:
    assert good_batch_after(segment, SECOND) == THIRD
    damaged(segment, THIRD + 70, b"\xff")
    assert good_batch_after(segment, SECOND) == 238
    assert good_batch_after(segment, 1924) == -1, "it is the last"


# --- files of a few bytes -------------------------------------------------------------------------

BATCH = bytes(batch([b"value"]))
# has 61 bytes, like the last batch of a producer after a cleaning
EMPTIED = _emptied(read_header(BATCH))


def longer(batch: bytes, by: int) -> bytes:
    """The batch with a wrong length. The CRC of the batch does not cover this field."""
    return batch[:8] + (int.from_bytes(batch[8:12]) + by).to_bytes(4) + batch[12:]


def segment_of(path: Path, data: bytes) -> Segment:
    """A segment at offset 0 whose log file has these bytes."""
    (path / f"{0:020d}.log").write_bytes(data)
    return Segment(
        OsDisk(),
        str(path),
        0,
        size=len(data),
        created_ms=NOW_MS,
        cache=IndexCache(),
        index_interval_bytes=4096,
    )


@pytest.mark.parametrize(("beyond", "fits"), [(0, True), (1, False)])
def test_a_last_offset_2_31_above_the_segments_base_offset_is_a_fault(
    beyond: int, fits: bool
) -> None:
    """An index entry stores the relative offset in four bytes."""
    header = read_header(BATCH)._replace(base_offset=3 + 2**31 - 1 + beyond)
    assert (fault_of(header, 4, 3, len(BATCH)) == "") is fits


@pytest.mark.parametrize(
    ("data", "is_so"),
    [
        pytest.param(BATCH, True, id="one with a record"),
        pytest.param(EMPTIED, True, id="without one"),
        pytest.param(BATCH[:MAGIC_AT] + b"\1" + BATCH[MAGIC_AT + 1 :], False, id="magic 1"),
        pytest.param(longer(BATCH, 1), False, id="longer than the file"),
        pytest.param(longer(EMPTIED, -1), False, id="shorter than a header"),
    ],
)
def test_a_whole_batch_has_magic_2_a_valid_length_and_the_right_crc(
    tmp_path: Path, data: bytes, is_so: bool
) -> None:
    segment = segment_of(tmp_path, BATCH + data)
    assert is_whole(read_header(data), segment, len(BATCH)) is is_so


def bad_batch(size: int, **zeros: tuple[int, int]) -> bytes:
    """A batch of `size` bytes. Only the ranges in `zeros` contain zeros."""
    data = bytearray(b"\xff" * size)
    data[8:12] = (size - 12).to_bytes(4)
    for first, end in zeros.values():
        data[first:end] = bytes(end - first)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "is_so"),
    [
        pytest.param(bad_batch(1600), False, id="no zeros"),
        pytest.param(bad_batch(1600, sector=(512, 1024)), True, id="its second sector"),
        pytest.param(bad_batch(1600, sector=(1024, 1536)), True, id="its third"),
        pytest.param(bad_batch(1600, rest=(1536, 1600)), True, id="its last, of a few bytes"),
        pytest.param(bad_batch(1600, most=(513, 1024)), False, id="all but one byte"),
        pytest.param(bad_batch(1600, across=(600, 1500)), False, id="most of two sectors"),
        pytest.param(bad_batch(512), False, id="it ends with a sector, and the file"),
        pytest.param(bad_batch(512) + bytes(512), False, id="of the next batch"),
        pytest.param(bad_batch(600) + bytes(1000), False, id="one after it ended"),
        pytest.param(longer(bad_batch(600), 9999), False, id="its length is wrong, too"),
        pytest.param(longer(bad_batch(1024), 9999), False, id="and whole sectors are there"),
    ],
)
def test_a_lost_sector_is_a_whole_sector_of_zeros_within_the_bad_batch(
    tmp_path: Path, data: bytes, is_so: bool
) -> None:
    assert is_hole(segment_of(tmp_path, data), 0, 0) is is_so


@pytest.mark.parametrize(
    ("left_bytes", "next_offset", "is_so"),
    [
        (3, 4, False),  # the first three of the offset's eight bytes are zeros
        (3, 2**40, True),
        (8, 4, True),
        (8, 0, False),
        (17, 0, True),  # the magic byte is missing
    ],
)
def test_zeros_that_a_batch_cannot_begin_with_are_a_lost_start(
    tmp_path: Path, left_bytes: int, next_offset: int, is_so: bool
) -> None:
    """Zeros up to the end of a sector mean that the start of a batch is lost, unless a batch may
    begin with these zeros.
    """
    position = 512 - left_bytes
    segment = segment_of(tmp_path, b"\xff" * position + bytes(left_bytes) + b"\xff" * 100)
    assert lacks_start(segment, position, next_offset) is is_so
    assert not lacks_start(segment, position - 1, next_offset)


@pytest.mark.parametrize(
    ("data", "at"),
    [
        pytest.param(b"x" + BATCH, 1, id="at the next byte"),
        pytest.param(b"x" + EMPTIED, 1, id="one without records, at the end"),
        pytest.param(
            b"x" * 20 + BATCH[:12] + b"\0\0\0\2" + BATCH[16:], 20, id="its epoch looks like a magic"
        ),
        pytest.param(b"x" * 17 + b"\2" + b"x" * 40 + BATCH, 58, id="what is before, too"),
        pytest.param(BATCH, -1, id="not at the first byte"),
        pytest.param(b"x" + longer(BATCH, 1), -1, id="longer than the file"),
        pytest.param(b"x" + BATCH[:-1], -1, id="cut off"),
        pytest.param(b"x" * 40, -1, id="none"),
    ],
)
def test_a_good_batch_is_looked_for_at_each_byte(tmp_path: Path, data: bytes, at: int) -> None:
    segment = segment_of(tmp_path, BATCH + data)
    assert good_batch_after(segment, len(BATCH)) == (at + len(BATCH) if at >= 0 else -1)
