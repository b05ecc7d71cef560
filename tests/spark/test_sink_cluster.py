"""A streaming query on a Spark standalone cluster with speculative execution, on which an executor
and a whole worker are killed. Each input record is in the output once, whether the driver or the
tasks write.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from helpers.kafka_proxy import (
    INIT_PRODUCER_ID,
    PASS,
    TXN_OFFSET_COMMIT,
    Action,
    Frame,
    broker_behind_proxy,
    once,
)
from helpers.spark_cluster import Cluster
from helpers.spark_driver import Query
from helpers.spark_queries import Driver, Proof, topics_with_input

from barnabas import LocalBroker
from barnabas.admin import Admin
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.spark_connector.session import MissingRequirementError, prepare

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="only Linux answers on all of 127.0.0.0/8 by itself",
)

CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
    # All kills here are deliberate, so no task or executor is excluded for failing too often.
    "spark.task.maxFailures": "20",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


FAULTS = [
    # The delay is longer than the query's timeout, so the query ends only if there is a speculative
    # copy.
    {"batch": 1, "task": 0, "does": "dawdle", "seconds": 3600},
    {"batch": 2, "task": 1, "does": "crash"},
]


@pytest.fixture(autouse=True)
def requirements() -> None:
    try:
        prepare()
    except MissingRequirementError as error:
        pytest.skip(str(error))


@pytest.mark.long
def test_a_cluster_that_loses_its_parts(tmp_path: Path) -> None:
    spool = tmp_path / "checkpoint" / "barnabas-spool"
    with broker_behind_proxy() as (_, proxy), Cluster(tmp_path) as cluster:
        source, sink, written = topics_with_input(proxy.bootstrap_servers, records=1500)
        query = Query(
            proxy.bootstrap_servers,
            source,
            sink,
            str(tmp_path / "checkpoint"),
            records_per_batch=300,
            master=cluster.url,
            faults=FAULTS,
            options={"inlineBytes": "0"},
            settings=CLUSTER,
        )
        is_lost = False

        def lose_a_worker(_: Frame) -> Action:
            """Kill the worker when the tasks of batch 3 are done. The files that they wrote
            remain.
            """
            nonlocal is_lost
            if not is_lost and list(spool.rglob("*/3/*.batches")):
                is_lost = True
                cluster.kill_worker(1)
            return PASS

        proxy.on_request(INIT_PRODUCER_ID, lose_a_worker)
        with Proof(proxy.bootstrap_servers, sink, written) as proof, Driver(query) as driver:
            assert driver.wait() == 0, driver.said() + cluster.said()
            assert is_lost, "there were no spool files of batch 3"
            assert not proof.findings()
    assert not list(spool.rglob("*.batches*"))


@pytest.mark.long
def test_tasks_that_write_by_themselves_on_a_cluster_that_loses_its_parts(tmp_path: Path) -> None:
    """One attempt has lost to its speculative copy: it has written all its rows, and its
    transaction is still open. The transactions of the tasks whose worker is killed before the
    decision are also still open.
    """
    settings = {"transaction.two.phase.commit.enable": "true"}
    with broker_behind_proxy(settings=settings) as (broker, proxy), Cluster(tmp_path) as cluster:
        source, sink, written = topics_with_input(proxy.bootstrap_servers, records=1500)
        query = Query(
            proxy.bootstrap_servers,
            source,
            sink,
            str(tmp_path / "checkpoint"),
            records_per_batch=300,
            master=cluster.url,
            faults=FAULTS,
            options={"sinkMode": "tasks", "inlineBytes": "0"},
            settings=CLUSTER,
        )
        lost = []

        def lose_a_worker(_: Frame) -> Action:
            lost.append(len(transactions(broker)))
            cluster.kill_worker(1)
            return PASS

        # The first TxnOffsetCommit announces the query, so the fifth carries the decision on batch
        # 3.
        proxy.on_request(TXN_OFFSET_COMMIT, once(lose_a_worker, after=4))
        with Proof(proxy.bootstrap_servers, sink, written) as proof, Driver(query) as driver:
            assert driver.wait() == 0, driver.said() + cluster.said()
            assert lost, "no worker was killed"
            assert proof.aborted() > 0, "no attempt was aborted: nothing was proved"
            assert not proof.findings()
        assert "Ongoing" not in transactions(broker).values()
    assert not list(tmp_path.rglob("*.batches*"))


def transactions(broker: LocalBroker) -> dict[str, str]:
    """The state of each transactional id."""
    with Admin("127.0.0.1", broker.port) as admin:
        answer = admin.call(ListTransactionsRequest(), 0, ListTransactionsResponse)
    return {each.transactional_id: each.transaction_state for each in answer.transaction_states}
