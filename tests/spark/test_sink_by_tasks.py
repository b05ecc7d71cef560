"""The sink in the mode in which each task writes its own rows. The tests check the output, what
failed tasks leave behind, and drivers that are killed at each step of the end of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from helpers.e2e_clients import create_topic, send_all, values_of
from helpers.kafka_proxy import (
    CUT,
    END_TXN,
    OFFSET_FETCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Action,
    Frame,
    KafkaProxy,
    broker_behind_proxy,
)
from helpers.kafka_proxy import once as at_one
from helpers.spark_driver import Query, through_slow_starts
from helpers.spark_queries import Driver, Proof, topics_with_input

from barnabas import LocalBroker
from barnabas.admin import Admin
from barnabas.client.options import ClientOptions
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.spark_connector.write.task_producer import TaskProducer
from barnabas.spark_connector.write.task_transactions import TASKS_IN_A_NOTE
from barnabas.spark_connector.write.transaction_coordinators import PROBE
from barnabas.spark_connector.write.transactional_producer import PublishSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}
BY_TASKS = {"sinkMode": "tasks", "inlineBytes": "0"}
RECORDS, RECORDS_PER_BATCH = 1800, 300
# The requests are small, so that a batch takes several. The timeouts are long because the machine
# may be busy.
SMALL = {
    "kafka.batch.size": "1024",
    "kafka.max.request.size": "1024",
    "kafka.request.timeout.ms": "600000",
    "kafka.delivery.timeout.ms": "900000",
    "kafka.transaction.timeout.ms": "900000",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(settings={"num.partitions": "2", **TWO_PHASE}) as running:
        yield running


def transactional_ids(broker: LocalBroker) -> dict[str, str]:
    """Return the state of each transactional id that a task has used."""
    with Admin("127.0.0.1", broker.port) as admin:
        answer = admin.call(ListTransactionsRequest(), 0, ListTransactionsResponse)
    return {
        each.transactional_id: each.transaction_state
        for each in answer.transaction_states
        if "/" in each.transactional_id and not each.transactional_id.endswith(PROBE)
    }


def test_a_stream_uses_few_ids_and_leaves_nothing_open(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    """The query uses sinkMode=auto, and the broker supports two-phase commit."""
    servers = broker.bootstrap_servers
    source, topic = create_topic(servers, "source", 2), create_topic(servers, "by-tasks", 2)
    for partition in range(2):
        values = [b"%d" % number for number in range(50 * partition, 50 * partition + 50)]
        send_all(servers, source, values, partition=partition)
    stream = spark.readStream.format("barnabas").options(
        **{"kafka.bootstrap.servers": servers}, subscribe=source, startingOffsets="earliest"
    )
    rows = stream.option("maxOffsetsPerTrigger", "20").option("joinRangesUpTo", "0").load()
    writer = rows.select("value").writeStream.format("barnabas").trigger(availableNow=True)
    writer = writer.options(
        **{"kafka.bootstrap.servers": servers},
        topic=topic,
        inlineBytes="0",
        checkpointLocation=str(tmp_path / "checkpoint"),
    )
    through_slow_starts(lambda: writer.start().awaitTermination(600))
    assert sorted(values_of(servers, topic)) == sorted(b"%d" % number for number in range(100))
    states = transactional_ids(broker)
    assert set(states.values()) == {"CompleteCommit"}
    assert 2 <= len(states) <= 4, "five batches of two tasks"
    assert not list((tmp_path / "checkpoint").rglob("*.batches*"))


def test_a_write_with_an_id_is_done_once(spark: SparkSession, broker: LocalBroker) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, "written", 2)
    before = transactional_ids(broker)

    def write(count: int, **options: str) -> None:
        frame = spark.range(0, count, 1, 2).selectExpr("CAST(id AS STRING) AS value")
        (
            frame.write.format("barnabas")
            .options(**{"kafka.bootstrap.servers": servers, **options}, topic=topic)
            .mode("append")
            .save()
        )

    for _ in range(2):
        write(100, **BY_TASKS, writeId="once")
    assert sorted(values_of(servers, topic)) == sorted(b"%d" % number for number in range(100))
    fresh = {name: state for name, state in transactional_ids(broker).items() if name not in before}
    assert sorted(fresh.values()) == ["CompleteAbort"] * 2 + ["CompleteCommit"] * 2
    write(100, inlineBytes="0")
    assert len(transactional_ids(broker)) == len(before) + 4, (
        "without writeId the driver writes, and not the tasks"
    )
    assert len(values_of(servers, topic)) == 200


@pytest.mark.long
def test_more_tasks_than_a_note_surely_lists_pass_their_rows_by_the_driver(
    spark: SparkSession, broker: LocalBroker
) -> None:
    servers = broker.bootstrap_servers
    topic, before = create_topic(servers, "many", 1), transactional_ids(broker)
    count = TASKS_IN_A_NOTE + 4
    frame = spark.range(0, count, 1, count).selectExpr("CAST(id AS STRING) AS value")
    writer = frame.write.format("barnabas").mode("append").option("inlineBytes", "0")
    writer.options(**{"kafka.bootstrap.servers": servers}, topic=topic, writeId="many").save()
    assert sorted(values_of(servers, topic)) == sorted(b"%d" % number for number in range(count))
    assert len(transactional_ids(broker)) - len(before) == TASKS_IN_A_NOTE


def test_a_write_whose_task_failed_is_written_again_and_leaves_nothing_open(
    spark: SparkSession, broker: LocalBroker
) -> None:
    """The failed task's process may be killed after the driver has looked for open transactions."""
    from pyspark.errors import PySparkException

    servers = broker.bootstrap_servers
    topic = create_topic(servers, "failing", 2)

    def write(text: str) -> None:
        (
            spark.range(0, 20_000, 1, 1)
            .selectExpr(f"{text} AS value")
            .write.format("barnabas")
            .options(**{"kafka.bootstrap.servers": servers, "kafka.batch.size": "1024"})
            .options(**BY_TASKS, topic=topic, writeId="failing")
            .mode("append")
            .save()
        )

    with pytest.raises(PySparkException, match="failed on purpose"):
        write("IF(id = 19999, raise_error('failed on purpose'), CAST(id AS STRING))")
    assert values_of(servers, topic) == []
    write("CAST(id AS STRING)")
    assert len(values_of(servers, topic)) == 20_000
    assert "Ongoing" not in transactional_ids(broker).values()


# --- drivers that are killed


@pytest.fixture(params=[True, False], ids=["two-phase", "plain"])
def behind(request: pytest.FixtureRequest) -> Iterator[tuple[LocalBroker, KafkaProxy]]:
    with broker_behind_proxy(settings=TWO_PHASE if request.param else {}) as pair:
        yield pair


def killed_at(
    proxy: KafkaProxy, query: Query, api_key: int, nth: int = 0, *, response: bool = False
) -> None:
    """Run a driver that is killed with all its processes at a certain frame; the frame is not
    forwarded.
    """
    with Driver(query) as driver:

        def kill(_: Frame) -> Action:
            driver.kill()
            return CUT

        on = proxy.on_response if response else proxy.on_request
        on(api_key, at_one(kill, after=nth))
        assert driver.wait() == -9, driver.said()
    proxy.clear()


@pytest.mark.long
def test_each_input_once_through_crashes_at_every_step(
    behind: tuple[LocalBroker, KafkaProxy], tmp_path: Path
) -> None:
    """Each batch has three tasks. Readers wait at open transactions until the next driver ends them
    or, without two-phase commit, until they time out.
    """
    broker, proxy = behind
    source, sink, written = topics_with_input(proxy.bootstrap_servers, records=RECORDS)
    query = Query(
        proxy.bootstrap_servers,
        source,
        sink,
        str(tmp_path / "checkpoint"),
        records_per_batch=RECORDS_PER_BATCH,
        options={**SMALL, **BY_TASKS},
    )
    with Proof(proxy.bootstrap_servers, sink, written) as proof:
        # Batch 0: the driver is killed while the tasks are writing.
        killed_at(proxy, query, PRODUCE, 8)
        # The tasks are done, but the batch is not yet decided.
        killed_at(proxy, query, OFFSET_FETCH)
        # The tasks' transactions are prepared, and the driver is sending the decision. (The first
        # offset commit announces the query.)
        killed_at(proxy, query, TXN_OFFSET_COMMIT, 1)
        # The batch is decided, but the driver does not get the response.
        killed_at(proxy, query, END_TXN, 0, response=True)
        # Batch 1: half of its transactions have ended. (The new driver first ends the three
        # transactions of batch 0.)
        killed_at(proxy, query, END_TXN, 3 + 2)
        # Then a single driver survives a failing task, a killed worker, and a killed broker.
        faults = [{"batch": 2, "task": 0, "does": "raise"}, {"batch": 3, "task": 1, "does": "die"}]
        last_query = replace(query, faults=faults, master="local[2,4]")
        proxy.on_request(PRODUCE, at_one(lambda _: restarted(broker), after=40))
        with Driver(last_query) as last:
            assert last.wait() == 0, last.said()
            assert "failed on purpose" in last.said(), last.said()
        left_open = [
            name for name, state in transactional_ids(broker).items() if state == "Ongoing"
        ]
        if TWO_PHASE.items() <= broker.settings.items():
            assert not left_open
        for name in left_open:  # end them here, so that readers do not have to wait for the timeout
            options = ClientOptions((("127.0.0.1", broker.port),))
            TaskProducer(options, PublishSettings(), name).discard()
        assert proof.aborted() > 0, "no attempt was aborted: nothing was proved"
        assert not proof.findings()


@pytest.mark.long
def test_a_start_in_another_mode_ends_what_its_tasks_left_prepared(tmp_path: Path) -> None:
    """The driver is killed when the tasks' transactions have no timeout any more, and before its
    decision.
    """
    with broker_behind_proxy(settings=TWO_PHASE) as (broker, proxy):
        servers = proxy.bootstrap_servers
        source, sink, written = topics_with_input(servers, records=RECORDS_PER_BATCH)
        query = Query(
            servers,
            source,
            sink,
            str(tmp_path / "checkpoint"),
            records_per_batch=RECORDS_PER_BATCH,
            options={**SMALL, **BY_TASKS},
        )
        killed_at(proxy, query, TXN_OFFSET_COMMIT, 1)
        assert "Ongoing" in transactional_ids(broker).values()
        with Driver(replace(query, options={**SMALL, "sinkMode": "driver"})) as driver:
            assert driver.wait() == 0, driver.said()
        assert "Ongoing" not in transactional_ids(broker).values()
        with Proof(servers, sink, written) as proof:
            assert not proof.findings()


def restarted(broker: LocalBroker) -> Action:
    """Kill and restart the broker, and cut the connection."""
    broker.kill()
    broker.restart()
    return CUT
