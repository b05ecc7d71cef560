"""De-duplication on Spark. Each form of the query is killed after the write to the store and before
Spark's checkpoint, is restarted, and must then have stored each reading once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deduplicate_on_spark as example
import psycopg
import pytest
from deduplicate_on_spark import FORMS, FencedError, Store, rows_in
from guarantee_tools import HERE, make_topic, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

READINGS = example.readings(devices=4, each=50)
SENT = list(example.sent_at_least_once(READINGS, seed=3))
PER_BATCH = 110
# For queries of a few seconds, generating optimized code costs more time than it saves.
SETTINGS = {
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session whose workers find the example's module through PYTHONPATH."""
    from barnabas.spark_connector.session import MissingRequirementError, local_session, prepare

    try:
        prepare()
    except MissingRequirementError as error:
        pytest.skip(str(error))
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), inherited]))
    session = local_session("examples", cores=2, settings=SETTINGS)
    yield session
    session.stop()


@pytest.fixture
def tables(dsn: str) -> str:
    example.make_tables(dsn)
    return dsn


def test_the_producer_repeats_but_keeps_the_order() -> None:
    counts = Counter((reading.device, reading.sequence) for reading in SENT)
    assert set(counts) == {(reading.device, reading.sequence) for reading in READINGS}
    assert max(counts.values()) > 1
    first_seen: dict[str, int] = {}
    for reading in SENT:
        assert reading.sequence <= first_seen.get(reading.device, -1) + 1
        first_seen[reading.device] = max(first_seen.get(reading.device, -1), reading.sequence)


# "watermark" is marked as long, because the test below runs this form too
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name == "watermark" else ()) for name in FORMS],
)
def test_each_reading_is_stored_once_in_spite_of_a_crash(
    spark: SparkSession, servers: str, tables: str, name: str, tmp_path: Path
) -> None:
    # contract: article/deduplication
    topic = f"readings-{name}"
    make_topic(servers, topic, 2)
    publish(servers, topic, map(example.record, SENT))
    at_crash = example.deduplicate_with_crash(
        spark, servers, topic, FORMS[name], tables, tmp_path, PER_BATCH
    )
    assert 0 < at_crash < len(READINGS), "the crash came too early or too late to show anything"
    assert rows_in(tables) == Counter((reading.device, reading.sequence) for reading in READINGS)


def test_readings_later_than_the_watermark_are_dropped_even_if_they_are_new(
    spark: SparkSession, servers: str, tables: str, tmp_path: Path
) -> None:
    """Late readings are the price of a bounded state. The other two forms do not drop them, because
    they query the store, which keeps every reading.
    """
    topic = "late-readings"
    make_topic(servers, topic, 1)
    early, late, *_ = READINGS
    ahead = early._replace(sequence=1000, measured=early.measured + timedelta(hours=2))
    publish(servers, topic, map(example.record, [early, early, ahead]))
    example.deduplicate(spark, servers, topic, FORMS["watermark"], Store(tables), tmp_path)
    publish(servers, topic, map(example.record, [early, late, ahead]))
    example.deduplicate(spark, servers, topic, FORMS["watermark"], Store(tables), tmp_path)
    assert rows_in(tables) == Counter(
        {(early.device, early.sequence): 1, (ahead.device, ahead.sequence): 1}
    )
    frame = spark.createDataFrame([late, early, late], example.FIELDS)
    example.store_by_anti_join(Store(tables), frame, 0)
    assert rows_in(tables)[late.device, late.sequence] == 1
    assert rows_in(tables).total() == 3


class Overtaken:
    """A micro-batch. While it is processed, another driver stores readings."""

    def __init__(self, batch: Any, dsn: str) -> None:
        self._batch = batch
        self._dsn = dsn

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the batch. Before the batch is joined with the stored sequence
        numbers, store its first reading, as another driver would.
        """
        if name == "join":
            with psycopg.connect(self._dsn) as connection:
                connection.execute("INSERT INTO last_sequences VALUES ('device-0', 0)")
                connection.execute("INSERT INTO readings VALUES ('device-0', 0, 20)")
        return getattr(self._batch, name)


def test_two_drivers_cannot_store_the_same_sequence_numbers(
    spark: SparkSession, tables: str
) -> None:
    frame = spark.createDataFrame(READINGS[:1], example.FIELDS)
    with pytest.raises(FencedError, match="device-0"):
        example.store_by_sequence(Store(tables), Overtaken(frame, tables), 0)  # type: ignore[arg-type]
    assert rows_in(tables) == Counter({("device-0", 0): 1})
    example.store_by_sequence(Store(tables), frame, 0)
    assert rows_in(tables) == Counter({("device-0", 0): 1})
