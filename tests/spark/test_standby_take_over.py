"""A standby takes over during a query. Two brokers have a lease in etcd, the leader is killed
twice, and the query continues without a restart.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers.e2e_clients import create_topic, eventually, send_all, values_of
from helpers.pair import etcd, pair, take_over

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("etcd") is None, reason="there is no etcd"),
]


def committed_batches(checkpoint: Path) -> int:
    return sum(path.name.isdigit() for path in checkpoint.glob("commits/*"))


def test_a_query_goes_on_with_the_standby_and_writes_each_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """While no broker responds, records are still being sent, and the query tries to read and
    publish batches.
    """
    checkpoint = tmp_path / "checkpoint"
    with etcd(tmp_path / "etcd") as (engine, _), pair(tmp_path, engine) as (leader, standby):
        servers = f"{leader.servers},{standby.servers}"
        source, sink = create_topic(servers, "in", 2), create_topic(servers, "out", 2)
        sent: list[bytes] = []
        is_over = threading.Event()

        def keep_sending() -> None:
            while not is_over.is_set():
                values = [b"%06d" % number for number in range(len(sent), len(sent) + 20)]
                for partition in range(2):
                    send_all(
                        servers,
                        source,
                        values[partition::2],
                        partition=partition,
                        enable_idempotence=True,
                        message_timeout_ms=300_000,
                    )
                sent.extend(values)

        query = begin(spark, servers, source, sink, checkpoint)
        sender = threading.Thread(target=keep_sending)
        sender.start()
        try:
            for _ in range(2):
                batches = committed_batches(checkpoint)
                eventually(
                    lambda batches=batches: committed_batches(checkpoint) >= batches + 3,
                    what="three more batches",
                )
                take_over(leader, standby)
                leader, standby = standby, leader
            batches = committed_batches(checkpoint)
            eventually(
                lambda: committed_batches(checkpoint) >= batches + 3 or not query.isActive,
                what="batches after the second take-over",
            )
            assert query.isActive, query.exception()
        finally:
            is_over.set()
            sender.join()
        query.processAllAvailable()
        query.stop()
        assert sorted(values_of(servers, sink)) == sent


def begin(
    spark: SparkSession, servers: str, source: str, sink: str, checkpoint: Path
) -> StreamingQuery:
    bootstrap = {"kafka.bootstrap.servers": servers}
    rows = (
        spark.readStream.format("barnabas")
        .options(**bootstrap, subscribe=source, startingOffsets="earliest")
        .load()
        .select("value")
    )
    return (
        rows.writeStream.format("barnabas")
        .options(**bootstrap, topic=sink, checkpointLocation=str(checkpoint))
        .start()
    )
