"""The processes that `torture.spark_pipeline` kills: the input's feeders, and the query's
drivers.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torture.clients import PATIENT, Diary, Worker
from torture.spark_judging import COPIED, COUNTED, DISTINCT, SCATTERED, SHUFFLED, WINDOW_MS

# The watermark's delay is longer than most records wait: the query may read records of new
# partitions before older records of existing partitions, and these must not be dropped as late.
WATERMARK_S = 90
SINK_ID, SOURCE_ID = "torture-sink", "torture-source"
KEYS = 23


# --- the input ----------------------------------------------------------------------------------


class Feeder(Worker):
    """Writes to all partitions that are currently listed in `layout.json`, a file beside the
    feeder's diary.
    """

    def __init__(self, servers: str, topic: str, slot: str, session: str, path: str) -> None:
        super().__init__(servers, topic, slot, session, path)
        self._layout_path = Path(path).with_name("layout.json")
        self._layout: dict[str, int] = {}

    def _places(self, client: Any) -> list[tuple[str, int]]:
        """Return the listed partitions that the client knows. The client would refuse a record for
        an unknown partition.
        """
        from confluent_kafka import KafkaException

        layout = json.loads(self._layout_path.read_text())
        if layout != self._layout:
            try:
                known = client.list_topics(timeout=5).topics
            except KafkaException:
                known = {}
            layout = {
                name: min(count, len(known[name].partitions))
                for name, count in layout.items()
                if name in known
            } or self._layout
            self._layout = layout
        return [(name, index) for name, count in layout.items() for index in range(count)]

    def put(self, client: Any, topic: str, partition: int, transaction: str | None = None) -> None:
        """Send a record. Some records have the identity of an earlier one, so that the query has
        duplicates to drop.
        """
        self.sent += 1
        self.steps += 1
        identity = f"{self.slot}.{self.sent - self.sent % self.random.randint(1, 3)}"
        value = f"{self.session}.{self.sent}={identity}@{time.time_ns() // 1_000_000}"
        self.diary("send", value=value, transaction=transaction)

        def on_delivery(error: Any, message: Any) -> None:
            self.diary("ok" if error is None else "unknown", value=value)

        client.produce(
            topic,
            value.encode(),
            f"k{self.random.randrange(KEYS)}",
            partition=partition,
            on_delivery=on_delivery,
        )
        client.poll(0)

    def _pause(self, client: Any, seconds: float) -> None:
        time.sleep(self.random.uniform(0, 2 * seconds))
        client.poll(0)
        self.steps += 1

    def plain(self) -> None:
        client = self.producer(**PATIENT)
        while not self.ending:
            places = self._places(client)
            for _ in range(self.random.randrange(1, 8)):
                if places:
                    self.put(client, *self.random.choice(places))
            self._pause(client, 0.06)
        self._drain(client, 60)

    def transact(self) -> None:
        from confluent_kafka import KafkaException

        while not self.ending:
            client = self.transactional()
            try:
                while not self.ending and self._transaction(client):
                    self._pause(client, 0.25)
            except KafkaException as failure:
                self.diary("session-end", code=failure.args[0].name())

    def _transaction(self, client: Any) -> bool:
        """Run a transaction. Gives: whether it has ended. If not, it is left open, and the next
        session of the transactional id fences it.
        """
        places = self._places(client)
        if not places:
            return True
        name = self.begin(client)
        for _ in range(self.random.randrange(1, 25)):
            self.put(client, *self.random.choice(places), transaction=name)
        chance = self.random.random()
        if chance < 0.1:
            self._drain(client, 2)
            if self.random.random() < 0.3:
                time.sleep(self.random.uniform(0, 4))
            return False
        self._end_transaction(client, name, abort=chance < 0.3)
        return True


def feed(role: str, *arguments: str) -> None:
    """The main function of a feeder."""
    feeder = Feeder(*arguments)
    (feeder.plain if role == "plain" else feeder.transact)()


# --- the query ----------------------------------------------------------------------------------


@dataclass
class Drive:
    """The parameters of a driver. `finish` tells it to read to the end of the input and then
    exit.
    """

    servers: str
    plan: str
    pattern: str
    sinks: list[str]
    checkpoint: str
    diary: str
    finish: bool = False
    seed: int = 0
    cores: str = "2"
    source: dict[str, str] = field(default_factory=dict)
    sink: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def drawn(chance: random.Random) -> dict[str, Any]:
    """Random options, which may change at each start of a query."""
    source = {"maxOffsetsPerTrigger": str(chance.choice((100, 300, 1000, 5000)))}
    if chance.random() < 0.3:
        source["minPartitions"] = str(chance.choice((4, 7)))
    sink = {
        "sinkMode": chance.choice(("driver", "auto", "tasks")),
        "inlineBytes": chance.choice(("0", "0", "3000", "262144")),
        "kafka.compression.type": chance.choice(("none", "gzip", "snappy", "lz4", "zstd")),
        "kafka.batch.size": chance.choice(("1024", "1024", "16384", "524288")),
        "kafka.max.request.size": chance.choice(("1024", "8192", "1048576")),
        "kafka.max.in.flight.requests.per.connection": chance.choice(("1", "2", "5")),
        "kafka.transaction.timeout.ms": chance.choice(("5000", "10000", "30000")),
        "kafka.request.timeout.ms": chance.choice(("4000", "15000")),
        "kafka.delivery.timeout.ms": chance.choice(("20000", "60000")),
    }
    return {"source": source, "sink": sink, "cores": chance.choice(("2", "2,4"))}


def drive(text: str) -> int:
    """The main function of a driver. Gives: 0 at the end of the input, or 1 if the query has
    finally failed. The diary has the reasons.

    A query that is not the last of its round is stopped with `stop()` after a while, and restarted
    in the same session with other options. Usually it is also restarted after a failure, as users
    do.
    """
    task = Drive(**json.loads(text))
    diary, chance = Diary(task.diary), random.Random(task.seed)
    from pyspark.errors import StreamingQueryException

    from barnabas.spark_connector.session import local_session

    spark = local_session("torture", cores=task.cores, settings=task.settings)
    diary("session")
    try:
        while True:
            try:
                if _run(spark, task, diary, None if task.finish else chance.uniform(0.5, 12)):
                    break
            except StreamingQueryException as error:
                diary("failed", text=str(error))
                print(f"the query failed: {error}", file=sys.stderr, flush=True)
                if task.finish or chance.random() < 0.3:
                    return 1
            task = replace(
                task,
                **{name: value for name, value in drawn(chance).items() if name != "cores"},
            )
        if task.plan == COUNTED:
            # write a record with a timestamp so far in the future that every window closes
            _end_of_time(task)
            _run(spark, task, diary, None)
    except StreamingQueryException as error:
        diary("failed", text=str(error))
        return 1
    finally:
        spark.stop()
    diary("done")
    return 0


def _run(spark: Any, task: Drive, diary: Diary, seconds: float | None) -> bool:
    """Start the query, and stop it after `seconds`. Gives: whether it reached its end.

    Raises: StreamingQueryException.
    """
    reader = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", task.servers)
        .option("subscribePattern", task.pattern)
    )
    reader = (
        reader.option("startingOffsets", "earliest")
        .option("kafka.metadata.max.age.ms", "1500")
        .option("kafka.client.id", SOURCE_ID)
    )
    rows = planned(task, reader.options(**task.source).load())
    writer = (
        rows.writeStream.format("barnabas")
        .queryName("torture")
        .option("checkpointLocation", task.checkpoint)
    )
    writer = (
        writer.option("kafka.bootstrap.servers", task.servers)
        .option("kafka.client.id", SINK_ID)
        .options(**task.sink)
    )
    if task.finish:
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    diary("started")
    last, end = None, None
    while not query.awaitTermination(0.1):
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != last:
            last = progress["batchId"]
            diary("progress", batch=last, rows=progress["numInputRows"])
            end = end or (
                seconds and time.monotonic() + seconds
            )  # the time is counted from the first batch, since a start may take long
        if end and time.monotonic() > end:
            query.stop()
            diary("stopped")
            return False
    return True


def planned(task: Drive, rows: Any) -> Any:
    """Apply the query's plan to the rows. Gives: the columns key, value and topic."""
    from pyspark.sql import functions as f

    chance = (
        f.lit("-")
        if task.plan in (COPIED, DISTINCT)
        else f.hex((f.rand() * 1_000_000_000).cast("long"))
    )
    text = f.col("value").cast("string")
    topic = f.lit(task.sinks[0])
    if task.plan == COUNTED:
        at = f.timestamp_millis(f.substring_index(text, "@", -1).cast("long"))
        windows = rows.select("key", at.alias("at")).withWatermark("at", f"{WATERMARK_S} seconds")
        counts = windows.groupBy(f.window("at", f"{WINDOW_MS} milliseconds"), "key").count()
        value = f.concat_ws(
            "|", f.unix_millis("window.start"), f.col("key").cast("string"), "count"
        )
        return counts.select("key", value.alias("value"), topic.alias("topic"))
    if task.plan == SHUFFLED:
        rows = rows.repartition(3, f.rand())
    if task.plan == SCATTERED:
        topic = f.when(f.rand() < 0.5, task.sinks[0]).otherwise(task.sinks[1])
    if task.plan == DISTINCT:
        identity = f.substring_index(f.substring_index(text, "=", -1), "@", 1)
        rows = rows.withColumn("identity", identity).dropDuplicates(["identity"])
    return rows.select(
        "key",
        f.concat_ws("|", text, "topic", "partition", "offset", chance).alias("value"),
        topic.alias("topic"),
    )


def _end_of_time(task: Drive) -> None:
    from confluent_kafka import Producer

    client = Producer({"bootstrap.servers": task.servers})
    topic = task.pattern.replace(".*", "a")
    client.produce(topic, f"end=end@{time.time_ns() // 1_000_000 + 86_400_000}", "end", partition=0)
    assert client.flush(60) == 0, "the broker is whole, and does not take a record"
