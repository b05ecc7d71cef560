"""A torn end, a hole or damage, at a batch of a log that Apache Kafka wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_kafka_log import kafka_log

from barnabas.protocol.records import read_header
from barnabas.storage.segment import Segment
from barnabas.storage.torn_tail import fault_of, good_batch_after, is_hole, is_whole, lacks_start

SECOND, THIRD, SIZE = 78, 158, 2002  # positions in segment 3, and its size, as Kafka dumps it


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return kafka_log(tmp_path).segments[1]


def damaged(segment: Segment, position: int, data: bytes) -> None:
    path = Path(segment.path(".log"))
    raw = bytearray(path.read_bytes())
    raw[position : position + len(data)] = data
    path.write_bytes(raw)


def test_a_good_batch_has_no_fault(segment: Segment) -> None:
    header = read_header(segment.file.pread(61, SECOND))
    assert fault_of(header, 4, 3, SIZE - SECOND) == "" and is_whole(header, segment, SECOND)


def test_faults_of_a_header(segment: Segment) -> None:
    header = read_header(segment.file.pread(61, SECOND))
    assert fault_of(header._replace(magic=1), 4, 3, 100) == "no batch begins there"
    assert fault_of(header._replace(batch_length=48), 4, 3, 100) == "no batch begins there"
    assert fault_of(header, 4, 3, header.size_bytes - 1) == "a batch is cut off"
    assert "comes after offset 4" in fault_of(header, 5, 3, 100)
    assert fault_of(header._replace(last_offset_delta=-1), 4, 3, 100) != ""


def test_a_wrong_offset_of_a_whole_batch_is_no_torn_write(segment: Segment) -> None:
    damaged(segment, SECOND, (2).to_bytes(8))
    header = read_header(segment.file.pread(61, SECOND))
    assert fault_of(header, 4, 3, SIZE - SECOND) and is_whole(header, segment, SECOND)
    assert not lacks_start(segment, SECOND, 4)


def test_a_sector_of_zeros_is_a_hole(segment: Segment) -> None:
    assert not is_hole(segment, SECOND, 4)
    damaged(segment, SECOND, bytes(512 - SECOND))
    assert lacks_start(segment, SECOND, 4) and is_hole(segment, SECOND, 4)


def test_zeros_in_a_record_are_no_hole(segment: Segment) -> None:
    damaged(segment, THIRD + 65, bytes(10))
    assert not is_hole(segment, THIRD, 5)


def test_a_good_batch_is_found_behind_a_bad_one(segment: Segment) -> None:
    assert good_batch_after(segment, SECOND) == THIRD
    damaged(segment, THIRD + 70, b"\xff")
    assert good_batch_after(segment, SECOND) == 238
    assert good_batch_after(segment, 1924) == -1, "it is the last"
