"""One segment that Apache Kafka wrote: batches by offset, and what is believed of its indexes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_kafka_log import KAFKA, kafka_log

from barnabas.storage.disk import OsDisk
from barnabas.storage.segment import CorruptLog, IndexCache, Place, Segment, offset_name

NAME = offset_name(3)


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return kafka_log(tmp_path, index_interval_bytes=300).segments[1]


def test_files_are_named_as_kafka_names_them() -> None:
    assert offset_name(31) == "00000000000000000031"


@pytest.mark.parametrize(
    ("offset", "place"),
    [(3, Place(0, 3, 3, 78)), (7, Place(319, 7, 7, 78)), (27, Place(1924, 27, 27, 78))],
)
def test_a_batch_is_found_by_its_offset(segment: Segment, offset: int, place: Place) -> None:
    assert segment.find(offset) == place


def test_beyond_its_last_batch_there_is_none(segment: Segment) -> None:
    assert segment.find(28) is None


def test_headers_are_what_kafkas_tool_prints(segment: Segment) -> None:
    rows = [(at, header.base_offset, header.producer_id) for at, header in segment.headers()]
    assert rows[:3] == [(0, 3, 5), (78, 4, 7), (158, 5, 7)] and len(rows) == 25


def test_an_index_that_leads_to_a_wrong_place_is_built_anew(segment: Segment) -> None:
    Path(segment.path(".index")).write_bytes((10).to_bytes(4) + (100).to_bytes(4))
    segment._offset_index = None
    assert segment.find(26) == Place(1843, 26, 26, 81)
    assert len(Path(segment.path(".index")).read_bytes()) > 8, "one entry for each 300 bytes"


def test_the_times_are_read_from_the_log_where_no_manifest_vouches(segment: Segment) -> None:
    segment.load_times()
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (1795222689507, 27)
    assert segment.first_batch_timestamp() == 1795222689083


def test_offsets_that_fall_are_damage(segment: Segment) -> None:
    path = Path(segment.path(".log"))
    data = bytearray(path.read_bytes())
    data[158:166] = (4).to_bytes(8)
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match="byte 158"):
        list(segment.headers())


def test_appends_leave_kafkas_files(tmp_path: Path) -> None:
    """The batches of Kafka's segment, appended to a new one with its interval of 4096 bytes."""
    source = KAFKA / "txn-0"
    raw = (source / f"{NAME}.log").read_bytes()
    segment = Segment.create(
        OsDisk(), str(tmp_path), 3, now_ms=0, cache=IndexCache(), index_interval_bytes=4096
    )
    original = Segment(
        OsDisk(), str(source), 3, size=len(raw), created_ms=0, cache=IndexCache(),
        index_interval_bytes=4096,
    )  # fmt: skip
    for at, header in original.headers():
        data = raw[at : at + header.size_bytes]
        segment.append(
            data, len(data), header.base_offset, header.last_offset, header.max_timestamp
        )
    segment.close_for_appends()
    for suffix in (".log", ".index", ".timeindex"):
        assert (tmp_path / f"{NAME}{suffix}").read_bytes() == (
            source / f"{NAME}{suffix}"
        ).read_bytes()


def test_the_least_used_indexes_leave_the_memory(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    cache = log.log_dir.cache
    cache.max_bytes = 1100
    for segment in log.segments[:-1]:
        segment.offset_index()
    assert cache.bytes <= 1100
    assert [segment._offset_index is None for segment in log.segments[:-1]] == [True, True, False]
