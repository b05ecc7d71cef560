"""A client of a Spark Connect server: batch reads and writes, streams, foreachBatch and lag, as in
the documentation and the README.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status")

from helpers.e2e_clients import create_topic, send_all, values_of
from helpers.spark_queries import spark_environment

from barnabas import LocalBroker
from barnabas.spark_connector.session import MissingRequirementError, prepare

pytestmark = pytest.mark.long

PROGRAM = """
import json, os, sys
from barnabas.spark_connector.session import prepare
prepare()
from pyspark.sql import SparkSession
from barnabas.spark import lag

servers, source, copied, streamed, each, directory = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
BOOTSTRAP = {"kafka.bootstrap.servers": servers}
rows = spark.read.format("barnabas").options(**BOOTSTRAP, subscribe=source).load()
count = rows.count()
rows.select("key", "value").write.format("barnabas").options(**BOOTSTRAP, topic=copied).mode(
    "append"
).save()


def stream():
    reader = spark.readStream.format("barnabas").options(
        **BOOTSTRAP, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="10"
    )
    return reader.load().select("key", "value").writeStream.trigger(availableNow=True)


query = (
    stream()
    .format("barnabas")
    .options(**BOOTSTRAP, topic=streamed, checkpointLocation=directory + "/streamed")
    .start()
)
query.awaitTermination()
behind = lag(query)


def write(batch, batch_id, bootstrap=BOOTSTRAP, topic=each, directory=directory + "/each"):
    (
        batch.write.format("barnabas")
        .options(**bootstrap, topic=topic, writeId="each-of-" + topic, batchId=str(batch_id))
        .option("checkpointLocation", directory)
        .mode("append")
        .save()
    )


def run_each():
    query = stream().foreachBatch(write).option("checkpointLocation", directory + "/each").start()
    query.awaitTermination()


run_each()
for name in ("2", ".2.crc"):  # the last batch runs again
    os.unlink(directory + "/each/commits/" + name)
run_each()
print("RESULT", json.dumps([count, behind]))
"""


def test_reads_writes_streams_and_for_each_batch(broker: LocalBroker, tmp_path: Path) -> None:
    try:
        prepare()
    except MissingRequirementError as error:
        pytest.skip(str(error))
    servers = broker.bootstrap_servers
    source, *sinks = (
        create_topic(servers, name) for name in ("source", "copied", "streamed", "each")
    )
    sent = [b"%02d" % number for number in range(25)]
    send_all(servers, source, sent)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py", servers, source, *sinks, tmp_path],
        env=spark_environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    assert json.loads(line.removeprefix("RESULT ")) == [25, {source: {"0": 0}}]
    for topic in sinks:
        assert sorted(values_of(servers, topic)) == sent, topic
