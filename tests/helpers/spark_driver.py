"""A streaming query as a separate program, so that a test can kill it: `python -m
helpers.spark_driver '{"servers": ...}'`.

The query reads a topic up to the end that the topic has when the program starts. It changes each
value (`v7` -> `v7!`) and writes it with its key to another topic. The exit code is 0, or 1 with the
error on stderr.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK = b"!"
STARTS, SLOW_START = 6, "Python worker failed to connect back"
T = TypeVar("T")


@dataclass
class Query:
    """The options of the program. With `shuffled`, the rows go to other tasks each time a batch is
    computed. `faults` is described in `spark_faults`.
    """

    servers: str
    source: str
    sink: str
    checkpoint: str
    name: str = "proof"
    records_per_batch: int = 100
    master: str = "local[2]"
    shuffled: bool = False
    faults: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def through_slow_starts(run: Callable[[], T]) -> T:
    """Run the query. Repeat it if a Python process of Spark did not start within the ten seconds
    that Spark allows, which may happen on a busy machine.
    """
    from pyspark.errors import StreamingQueryException

    for _ in range(STARTS - 1):
        try:
            return run()
        except StreamingQueryException as error:
            if SLOW_START not in str(error):
                raise
    return run()


def main(text: str) -> int:
    """Run the query until it has read all available records. Return the exit code, which is 1 if
    the query failed.
    """
    query = Query(**json.loads(text))
    from pyspark.errors import StreamingQueryException

    spark = session_of(query)
    reader = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", query.servers)
        .option("subscribe", query.source)
        # Joined ranges would change the task numbers, by which faults are addressed.
        .option("joinRangesUpTo", "0")
    )
    reader = reader.option("startingOffsets", "earliest").option(
        "maxOffsetsPerTrigger", str(query.records_per_batch)
    )
    rows = planned(query, reader.load())
    writer = (
        rows.writeStream.format("faulty" if query.faults else "barnabas")
        .queryName(query.name)
        .trigger(availableNow=True)
    )
    writer = writer.option("checkpointLocation", query.checkpoint).option(
        "kafka.bootstrap.servers", query.servers
    )
    if query.faults:
        writer = writer.option("faults", json.dumps(query.faults))
    writer = writer.option("topic", query.sink).options(**query.options)
    try:
        through_slow_starts(lambda: writer.start().awaitTermination())
    except StreamingQueryException as error:
        print(f"the query failed: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        spark.stop()
    return 0


def session_of(query: Query) -> Any:
    """The Spark session of the query. The sink whose tasks can fail is registered in it."""
    from barnabas.spark_connector.session import local_session, prepare
    from helpers.spark_faults import FaultySource

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        **query.settings,
    }
    local = re.fullmatch(r"local\[(.+)\]", query.master)
    if local:
        spark = local_session(query.name, cores=local[1], settings=settings)
    else:
        prepare()
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(query.master).appName(query.name)
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    spark.dataSource.register(FaultySource)
    return spark


def planned(query: Query, rows: DataFrame) -> DataFrame:
    """The rows that the query writes, with changed values, and shuffled if the query says so."""
    from pyspark.sql import functions

    if query.shuffled:
        rows = rows.repartition(2, functions.rand())
    return rows.select("key", functions.concat("value", functions.lit(MARK)).alias("value"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
