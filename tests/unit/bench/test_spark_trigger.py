"""The calculations of bench/spark_trigger.py, and the batches of the sink that it compares with."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from barnabas.client.options import ClientOptions
from barnabas.protocol.records import (
    HEADER_SIZE,
    NewRecord,
    encode_batch,
    has_right_crc,
    read_header,
)
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from bench.eos import AT_LEAST_ONCE, END_TABLE, EXACTLY_ONCE
from bench.spark_at_least_once import PlainProducer
from bench.spark_trigger import BEGIN_TABLE, Result, medians, publish, read_json, table


def result(mode: str, records_a_second: float, interval_ms: int = 100) -> Result:
    return Result(interval_ms, mode, records_a_second, 50.0, 5000.0, 1.5, 80.0, 160.0)


RESULTS = [
    result(mode, speed, interval_ms)
    for interval_ms in (1000, 100)
    for mode, speeds in ((AT_LEAST_ONCE, (90, 110, 400)), (EXACTLY_ONCE, (60, 70, 80)))
    for speed in speeds
]


def test_the_table_has_the_medians_of_the_turns() -> None:
    assert list(medians(RESULTS)) == [100, 1000]
    assert table(RESULTS).splitlines()[2] == (
        "| 100 ms | 5,000 | 110/s | 70/s | 50, 50 | 1.5, 1.5 | 80 / 160 | 80 / 160 |"
    )


def test_publishing_replaces_the_table_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "EXACTLY_ONCE_COST.md"
    page.write_text(f"before {END_TABLE}\n{BEGIN_TABLE}\nformer\n{END_TABLE} after")
    publish(RESULTS, "Measured today.", tmp_path)
    text = page.read_text()
    assert text.startswith(f"before {END_TABLE}") and text.endswith(f"{END_TABLE} after")
    assert "Measured today." in text and "former" not in text
    assert read_json(tmp_path / "eos_trigger.json") == (RESULTS, "Measured today.")
    assert (tmp_path / "eos_trigger.svg").stat().st_size > 1000


def test_a_batch_that_is_written_at_least_once_has_no_transaction() -> None:
    encoded = bytes(encode_batch([NewRecord(b"k", b"v", 1)], producer_id=-1, transactional=True))
    producer = PlainProducer(ClientOptions((("nowhere", 1),)))
    stamped = producer._stamped(EncodedRecordBatch("t", 0, 1, encoded))
    batch = stamped.header + bytes(stamped.records)
    header = read_header(batch)
    assert not header.is_transactional and header.producer_id == -1
    assert has_right_crc(batch, header) and batch[HEADER_SIZE:] == encoded[HEADER_SIZE:]
