"""The lag of a query, computed from PySpark's progress reports."""

from __future__ import annotations

from typing import Any

import pytest

import barnabas.spark
from barnabas.spark_connector.read.query_lag import lag


class Reported:
    """A fake query with a last progress report."""

    def __init__(self, *sources: dict[str, Any] | None) -> None:
        self.lastProgress = None if sources == (None,) else {"batchId": 3, "sources": list(sources)}


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"description": "", "endOffset": end, "latestOffset": latest}


ID = '"t#Wn6bYRCbTMSDfkHvvvTvJQ": {}'


def test_the_lag_is_the_latest_offset_minus_the_end_of_the_last_batch() -> None:
    assert barnabas.spark.lag is lag
    report = source(
        '{"t": {"0": 5, "1": 7}, ' + ID + "}", '{"t": {"0": 25, "1": 7, "2": 4}, "u": {"0": 1}}'
    )
    assert lag(Reported(report)) == {"t": {0: 20, 1: 0, 2: 4}, "u": {0: 1}}


def test_offsets_that_are_parsed_already() -> None:
    assert lag(Reported(source({"t": {"0": 5}}, {"t": {"0": 6}}))) == {"t": {0: 1}}


def test_a_log_that_became_shorter_is_no_lag() -> None:
    assert lag(Reported(source('{"t": {"0": 5}}', '{"t": {"0": 2}}'))) == {"t": {0: 0}}


def test_two_sources_with_the_same_partition() -> None:
    latest = '{"t": {"0": 9}}'
    assert lag(
        Reported(
            source('{"t": {"0": 9}}', latest),
            source('{"t": {"0": 2}}', latest),
            source('{"t": {"0": 5}}', latest),
        )
    ) == {"t": {0: 7}}


@pytest.mark.parametrize(
    "offset", [None, "None", "null", "7", 7, '{"logOffset": 3}', "[1]", "text", '{"t": {"x": 1}}']
)
def test_sources_of_another_kind_and_reports_without_offsets(offset: Any) -> None:
    assert lag(Reported(source(offset, offset))) == {}


def test_before_the_first_report() -> None:
    assert lag(Reported(None)) == {} == lag(Reported())
