"""An archive of Spark's classes, which each Java process of the tests maps into its memory.

    PYTHONPATH=tests/tools:tests:. python -m helpers.java_classes

Without the archive, more than half of the CPU time of a Spark start is spent on reading and
verifying classes, and the tests start Spark dozens of times. The file is a normal archive of Java
for class data sharing (JDK 17, `-XX:ArchiveClassesAtExit`). A Java of another version, or with
other jars, ignores it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = Path(__file__).resolve().parents[2] / "build" / "spark-classes.jsa"
# Each Java process of the tests runs for at most a minute. In that time the optimising compiler and
# the parallel collector cost more than they save.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Hide warnings about classes and jars that do not match the archive.
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
LONGEST_EXIT_S = 300.0  # long, since Java writes the archive at its exit


def java_options() -> str:
    """The value of JDK_JAVA_OPTIONS for each Java process of the tests."""
    if not ARCHIVE.exists():
        return SHORT_LIVED
    return f'{SHORT_LIVED} "-XX:SharedArchiveFile={ARCHIVE}" {QUIET}'


def make() -> None:
    """Make the archive: run queries in a Spark whose Java archives its loaded classes when it
    exits.

    Raises: MissingRequirementError if Java or PySpark is missing; TimeoutExpired if Java does not
    exit; FileNotFoundError if it writes no archive.
    """
    from barnabas.spark import local_session

    os.environ["JDK_JAVA_OPTIONS"] = SHORT_LIVED
    ARCHIVE.parent.mkdir(exist_ok=True)
    unfinished = ARCHIVE.with_suffix(f".{os.getpid()}")
    settings = {
        "spark.log.level": "OFF",
        "spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={unfinished}" {QUIET}',
    }
    spark = local_session("classes", cores=2, settings=settings)
    java = spark.sparkContext._gateway.proc
    try:
        _run_queries(spark)
        spark.stop()
        java.stdin.close()  # Java exits when its stdin is closed
        java.wait(LONGEST_EXIT_S)
        unfinished.replace(ARCHIVE)
    finally:
        java.kill()
        java.wait()
        unfinished.unlink(missing_ok=True)


def _run_queries(spark: SparkSession) -> None:
    """Run queries that read, write and stream, as most tests do."""
    from barnabas import LocalBroker

    with LocalBroker() as broker, tempfile.TemporaryDirectory() as folder:
        broker.create_topic("rows", 2)
        where = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        rows = spark.range(20).selectExpr("CAST(id AS STRING) AS value")
        rows.write.format("barnabas").options(**where, topic="rows").mode("append").save()
        read = spark.read.format("barnabas").options(**where, subscribe="rows").load()
        read.groupBy("partition").count().orderBy("partition").collect()
        stream = spark.readStream.format("barnabas").options(**where, subscribe="rows")
        query = (
            stream.option("startingOffsets", "earliest")
            .load()
            .select("key", "value")
            .writeStream.format("barnabas")
            .options(**where, topic="copied", checkpointLocation=folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    from barnabas.spark_connector.session import MissingRequirementError

    try:
        make()
    except MissingRequirementError as error:
        print(f"no archive of Spark's classes: {error}", file=sys.stderr)
