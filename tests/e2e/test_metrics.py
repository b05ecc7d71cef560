"""Metrics of a running broker: the values in a scrape after clients' requests, and the dashboard's
queries, which must use existing metrics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from helpers.e2e_clients import PATIENCE_S, QUIET, consumer, eventually, producer
from helpers.e2e_wire import Wire
from helpers.scrapes import Scrape, ask, port_of, scrape_at
from sim import wire

from barnabas.local_broker import LocalBroker
from barnabas.metrics.rim.metric import Detail, Kind
from barnabas.metrics.rim.table import METRICS, OF_REPLICATION
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.records import NewRecord, encode_batch

pytestmark = pytest.mark.e2e

GROUP_RESOURCE = 32
HELD_BACK = "barnabas_topic_held_back_by_others_offsets"
DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"


def scrape(broker: LocalBroker) -> Scrape:
    return scrape_at(port_of(broker))


def produce(client: Wire, batch: bytes, partition: int = 0, **transaction: Any) -> Any:
    return client.call(wire.produce(transaction.get("name"), "t", partition, batch))


def begin(client: Wire, name: str) -> tuple[int, int]:
    """Begin a transaction with a record in t-1."""
    request = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    session = client.call(wire.request(request, 4))
    identity = (session.producer_id, session.producer_epoch)
    client.call(
        wire.request(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=identity[0],
                v3_and_below_producer_epoch=identity[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[1])],
            ),
            3,
        )
    )
    batch = encode_batch(
        [NewRecord(None, b"v", 0)],
        producer_id=identity[0],
        producer_epoch=identity[1],
        base_sequence=0,
        transactional=True,
    )
    produce(client, batch, 1, name=name)
    return identity


@pytest.fixture(scope="module")
def used() -> Iterator[LocalBroker]:
    """A broker that has served requests of many kinds."""
    settings = {
        "barnabas.metrics.port": 0,
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    }
    with LocalBroker(settings=settings, topics={"t": 2}) as broker, Wire(broker.port) as client:
        for _ in range(3):
            produce(client, encode_batch([NewRecord(None, b"v", 0)] * 2))
        produce(client, encode_batch([NewRecord(None, b"v", 0)]), 9)  # no such partition
        identity = begin(client, "committed")
        client.call(
            wire.request(
                EndTxnRequest(
                    transactional_id="committed",
                    producer_id=identity[0],
                    producer_epoch=identity[1],
                    committed=True,
                ),
                3,
            )
        )
        begin(client, "open")
        rows = [
            OffsetCommitRequestPartition(
                partition_index=0, committed_offset=2, committed_metadata=""
            )
        ]
        topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
        request = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics
        )
        client.call(wire.request(request, 7))
        earliest = AlterableConfig("share.auto.offset.reset", 0, "earliest")
        resource = AlterConfigsResource(GROUP_RESOURCE, "shared", [earliest])
        client.call(wire.request(IncrementalAlterConfigsRequest(resources=[resource]), 1))
        member = ShareConsumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "shared",
                "share.acknowledgement.mode": "explicit",
                **QUIET,
            }
        )
        try:
            member.subscribe(["t"])
            for record in eventually(lambda: member.poll(timeout=1.0), what="records"):
                member.acknowledge(record, AcknowledgeType.ACCEPT)
            member.commit_sync(30)
            yield broker
        finally:
            member.close()


def test_the_metrics_count_the_requests_of_clients(used: LocalBroker) -> None:
    """The expected numbers follow from the requests that the fixture `used` sends."""
    seen = scrape(used)
    of = seen.of
    assert of("barnabas_request_seconds_count", api="Produce") == 6
    for phase in ("queue", "work", "wait", "disk"):
        count = of("barnabas_request_phase_seconds_count", api="Produce", phase=phase)
        assert count == 6, phase
    assert of("barnabas_request_phase_seconds_sum", api="Produce", phase="work") > 0
    assert of("barnabas_request_phase_seconds_sum", api="Produce", phase="disk") == 0
    assert of("barnabas_request_phase_seconds_sum", api="EndTxn", phase="disk") > 0
    assert of("barnabas_request_phase_seconds_sum", api="EndTxn", phase="wait") == 0
    assert (
        of("barnabas_errors_total", api="Produce", error=Code.UNKNOWN_TOPIC_OR_PARTITION.name) == 1
    )
    assert of("barnabas_connections") >= 1
    assert of("barnabas_received_bytes_total") > 500
    assert of("barnabas_sent_bytes_total") > 300
    assert of("barnabas_fsync_seconds_count") >= of("barnabas_flush_seconds_count") > 0
    assert of("barnabas_transactional_ids", state="Ongoing") == 1
    assert of("barnabas_transactional_ids", state="CompleteCommit") == 1
    assert of("barnabas_oldest_transaction_seconds", state="Ongoing") >= 0
    assert of("barnabas_last_stable_offset_lag_max") == 1
    assert of("barnabas_groups", type="classic", state="Empty") == 1
    assert of("barnabas_group_lag", group="g", topic="t") == 4
    assert of("barnabas_group_partition_lag", group="g", topic="t", partition="0") == 4
    where = {"topic": "t", "partition": "1"}
    assert of("barnabas_partition_log_end_offset", **where) == 3
    assert of("barnabas_partition_last_stable_offset", **where) == 2
    assert of("barnabas_partition_last_stable_offset_lag", **where) == 1
    assert of("barnabas_partition_open_transactions", **where) == 1
    assert of("barnabas_partition_producer_ids", **where) == 2
    assert of("barnabas_topic_log_end_offset", topic="t") == 9
    assert of("process_resident_memory_bytes") > 1_000_000
    accepted = of("barnabas_share_acknowledgements_total", type="accept")
    assert of("barnabas_share_acquired_records_total") >= accepted > 0
    assert of("barnabas_share_sessions") == 1
    assert of("barnabas_share_session_partitions") == 2
    assert of("barnabas_share_partitions") == 2


def test_all_requests_are_counted_though_only_a_sample_is_timed() -> None:
    count = 2000
    settings = {"barnabas.metrics.port": 0}
    with LocalBroker(settings=settings, topics=["t"]) as broker, Wire(broker.port) as client:
        batch = encode_batch([NewRecord(None, b"v", 0)])
        for _ in range(count):
            produce(client, batch)
        seen = scrape(broker)
        assert seen.of("barnabas_request_seconds_count", api="Produce") == count
        for phase in ("queue", "work", "wait", "disk"):
            of_phase = {"api": "Produce", "phase": phase}
            assert seen.of("barnabas_request_phase_seconds_count", **of_phase) == count
        assert seen.of("barnabas_partition_log_end_offset", topic="t", partition="0") == count


def test_the_endpoint_shows_exactly_the_metrics_and_labels_of_the_table(used: LocalBroker) -> None:
    seen = scrape(used)
    shown = {name: kind for name, kind in seen.kinds.items() if name.startswith("barnabas_")}
    metrics = [metric for metric in METRICS if metric not in OF_REPLICATION]
    assert shown == {metric.name: metric.kind.value for metric in metrics}
    for metric in metrics:
        name = metric.name + "_count" * (metric.kind is Kind.HISTOGRAM)
        if name != HELD_BACK:  # nothing is held back in this broker
            assert seen.labels_of(name) == set(metric.labels), name


def test_a_topic_that_a_transaction_in_another_one_holds_back_is_shown() -> None:
    with LocalBroker(settings={"barnabas.metrics.port": 0}) as broker:
        for name in ("first", "second"):
            broker.create_topic(name, barnabas_transactions_whole=True)
        hanging = producer(broker.bootstrap_servers, transactional_id="hanging")
        both = producer(broker.bootstrap_servers, transactional_id="both")
        for one, topics in ((hanging, ["first"]), (both, ["first", "second"])):
            one.init_transactions(PATIENCE_S)
            one.begin_transaction()
            for topic in topics:
                one.produce(topic, b"v")
            one.flush(PATIENCE_S)
        both.commit_transaction(PATIENCE_S)
        seen = scrape(broker)
        (metric,) = (metric for metric in METRICS if metric.name == HELD_BACK)
        assert seen.labels_of(HELD_BACK) == set(metric.labels)
        of = {"topic": "second", "transactional_id": "hanging", "held_at": "first-0"}
        (held,) = (
            value
            for (name, labels), value in seen.samples.items()
            if name == HELD_BACK and of.items() <= dict(labels).items()
        )
        assert held == 2  # the record and its marker
        hanging.abort_transaction(PATIENCE_S)
        assert not scrape(broker).labels_of(HELD_BACK)


def selectors_of(expression: str) -> list[Any]:
    """The metric selectors in a PromQL query."""
    found: list[Any] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, promql_parser.VectorSelector):
            found.append(expr)
        for name in ("expr", "lhs", "rhs", "param", "vector_selector", "vs"):
            if isinstance(getattr(expr, name, None), promql_parser.Expr):
                visit(getattr(expr, name))
        for argument in getattr(expr, "args", None) or ():
            visit(argument)

    visit(promql_parser.parse(expression))
    return found


def test_the_dashboards_queries_use_existing_metrics_and_labels(used: LocalBroker) -> None:
    """Each query of the dashboard is valid, and its metrics and labels appear in a scrape. So do
    the labels in the dashboard's variables and legends.
    """
    seen = scrape(used)
    # A broker without a standby does not show the metrics of replication.
    of_a_leader = {(metric.name, frozenset[tuple[str, str]]()): 0.0 for metric in OF_REPLICATION}
    seen = seen._replace(samples=seen.samples | of_a_leader)
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "1m")
            selectors = selectors_of(query)
            assert selectors, query
            labels: set[str] = set()
            for selector in selectors:
                asked.add(re.sub("_(bucket|sum|count)$", "", selector.name))
                there = seen.labels_of(selector.name)
                assert there or any(name == selector.name for name, _ in seen.samples), query
                matched = {matcher.name for matcher in selector.matchers.matchers}
                assert matched <= there | {"job"}, query
                labels |= there | {"job"}
            grouped = re.findall(r"\bby \(([^)]*)\)", query)
            kept = {label.strip() for group in grouped for label in group.split(",")}
            assert kept <= labels, query
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert legend <= (kept or labels), (query, target["legendFormat"])
    for variable in dashboard["templating"]["list"]:
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", str(variable.get("definition")))
        if match:
            assert match[2] in seen.labels_of(match[1]) | {"job"}, variable["definition"]
    assert len(asked & {metric.name for metric in METRICS}) > 25


def test_the_endpoint_refuses_other_hosts_methods_and_paths(used: LocalBroker) -> None:
    port = port_of(used)
    assert ask(port, Host="example.org")[0] == 403
    assert ask(port, method="POST")[0] == 405
    assert ask(port, "/secrets")[0] == 404
    assert "/metrics" in ask(port, "/")[1]


def test_topics_and_partitions_can_be_left_out() -> None:
    for detail in (Detail.TOPICS, Detail.NONE):
        settings = {"barnabas.metrics.port": 0, "barnabas.metrics.detail": detail.value}
        with LocalBroker(settings=settings, topics={"t": 3}, control=True) as broker:
            seen = scrape(broker)
            names = {name for name in seen.kinds if name.startswith("barnabas_")}
            metrics = [metric for metric in METRICS if metric not in OF_REPLICATION]
            assert names == {m.name for m in metrics if detail.has(m.detail)}
            assert seen.of("barnabas_partitions") == 3


def test_a_group_that_an_open_transaction_holds_back_has_a_lag_before_its_first_commit() -> None:
    """An open transaction causes the lag, and the console says that the group waits for it."""
    settings = {"barnabas.metrics.port": "0", "barnabas.console.port": "0"}
    with LocalBroker(settings=settings, topics=["t"]) as broker:
        servers = broker.bootstrap_servers
        writer = producer(servers, transactional_id="holds")
        writer.init_transactions(PATIENCE_S)
        writer.begin_transaction()
        for number in range(5):
            writer.produce("t", b"%d" % number)
        writer.flush(PATIENCE_S)
        reader = consumer(servers, "kitchen", isolation_level="read_committed")
        reader.subscribe(["t"])
        eventually(lambda: reader.poll(0.2) or reader.assignment(), what="an assignment")
        seen = scrape(broker)
        assert seen.of("barnabas_group_lag", group="kitchen", topic="t") == 5
        assert seen.of("barnabas_group_held_back_offsets", group="kitchen", topic="t") == 5
        holder = {"topic": "t", "partition": "0", "transactional_id": "holds"}
        assert seen.of("barnabas_partition_held_back_offsets", **holder, producer_id="0") == 5
        console = re.search(r"console: +http://127.0.0.1:(\d+)", "".join(broker.output))
        assert console is not None
        status, text = ask(int(console[1]), "/api/group?group=kitchen")
        assert status == 200
        (row,) = json.loads(text)["rows"]
        assert (row["offset"], row["lag"], row["situation"]) == (-1, 5, "waits")
        (stuck,) = json.loads(text)["stuck"]
        assert stuck["transactional_id"] == "holds"
        reader.close()
        writer.abort_transaction(PATIENCE_S)
        assert "barnabas_partition_held_back_offsets{" not in ask(port_of(broker))[1]
