"""`barnabas topics`, `groups`, `config`, `check`: against the real daemon."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import QUIET, committed_offset, consumer, eventually, send_all, unique
from helpers.e2e_wire import Wire
from helpers.ports import refusing_port
from sim import wire

from barnabas.local_broker import LocalBroker
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)

pytestmark = pytest.mark.e2e


@pytest.fixture
def barnabas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], servers: str
) -> CommandLine:
    """The command line, connected to the shared broker."""
    return CommandLine(monkeypatch, capsys).use(servers)


def test_topics_from_cradle_to_grave(barnabas: CommandLine, servers: str) -> None:
    name = unique("cradle")
    dry = barnabas.ok("topics", "create", name, "-p", "2", "--dry-run", "--json").data
    assert dry == [{"topic": name, "result": "would be created", "error": None, "message": None}]
    assert name not in barnabas.ok("topics", "list").out
    barnabas.ok("topics", "create", name, "-p", "2", "-c", "retention.ms=1000000")
    again = barnabas("topics", "create", name)
    assert (again.code, "--if-not-exists" in again.err) == (1, True)
    barnabas.ok("topics", "create", name, "--if-not-exists")
    (row,) = [row for row in barnabas.ok("topics", "list", "--json").data if row["topic"] == name]
    assert (row["partitions"], row["internal"]) == (2, False)
    send_all(servers, name, [b"a", b"b"], partition=1)
    (answer,) = barnabas.ok("topics", "describe", name, "--json").data
    assert answer["configs"] == {"retention.ms": "1000000"}
    assert [row["high_watermark"] for row in answer["partitions"]] == [0, 2]
    barnabas.ok("topics", "alter", name, "-p", "3", "-c", "segment.bytes=2000000")
    assert "segment.bytes=2000000" in barnabas.ok("topics", "describe", name).out
    fewer = barnabas("topics", "alter", name, "-p", "1")
    assert (fewer.code, "higher number" in fewer.err) == (1, True)
    refused = barnabas("topics", "delete", name)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert barnabas.ok("topics", "delete", name, "--yes", "--json").data[0]["result"] == "deleted"
    gone = barnabas("topics", "describe", name)
    assert (gone.code, "barnabas topics list" in gone.err) == (1, True)
    barnabas.ok("topics", "delete", name, "--yes", "--if-exists")


def test_offsets_of_partitions_and_at_a_time(barnabas: CommandLine, servers: str) -> None:
    name = unique("times")
    barnabas.ok("topics", "create", name, "-p", "2")
    lines = "".join(
        json.dumps({"value": str(number), "partition": 0, "timestamp_ms": 1_000_000 + number})
        + "\n"
        for number in range(5)
    )
    barnabas.ok("produce", name, "--json", stdin=lines)
    rows = barnabas.ok(
        "topics", "offsets", f"{name}-0", "--at", "1970-01-01T00:16:40.003Z", "--json"
    )
    assert rows.data == [
        {
            "topic": name,
            "partition": 0,
            "log_start_offset": 0,
            "last_stable_offset": 5,
            "high_watermark": 5,
            "offset": 3,
        }
    ]
    table = barnabas.ok("topics", "offsets", name).out.splitlines()
    assert [line.split() for line in table[1:]] == [
        [name, "0", "0", "5", "5"],
        [name, "1", "0", "0", "0"],
    ]
    beyond = barnabas("topics", "offsets", f"{name}-7")
    assert (beyond.code, "from 0 to 1" in beyond.err) == (1, True)


def test_a_group_is_described_and_its_offsets_are_reset_once_it_is_empty(
    barnabas: CommandLine, servers: str
) -> None:
    name, group = unique("read"), unique("kitchen")
    barnabas.ok("topics", "create", name)
    send_all(servers, name, [b"%d" % number for number in range(10)])
    reader = consumer(servers, group, client_id="cook")
    reader.subscribe([name])
    for _ in range(4):
        message = eventually(lambda: reader.poll(0.5), what="a record")
    reader.commit(message, asynchronous=False)
    (answer,) = barnabas.ok("groups", "describe", group, "--json").data
    assert (answer["state"], answer["partitions"][0]["lag"]) == ("Stable", 6)
    assert [(row["client_id"], row["partitions"]) for row in answer["members"]] == [
        ("cook", [f"{name}-0"])
    ]
    assert "cook" in barnabas.ok("groups", "describe", group).out
    busy = barnabas("groups", "reset-offsets", group, "--to", "earliest", "--yes")
    assert (busy.code, "stop its consumers" in busy.err) == (1, True)
    reader.close()

    plan = barnabas.ok("groups", "reset-offsets", group, "--to", "earliest", "--dry-run", "--json")
    (row,) = plan.data["partitions"]
    assert (row["committed_offset"], row["new_offset"]) == (4, 0)
    assert committed_offset(servers, group, name) == 4, "a dry run changes nothing"
    barnabas.ok("groups", "reset-offsets", group, "--shift-by", "-1", "--yes")
    assert committed_offset(servers, group, name) == 3
    barnabas.ok("groups", "reset-offsets", group, "-t", f"{name}-0", "--to", "latest", "--yes")
    assert committed_offset(servers, group, name) == 10
    assert barnabas("groups", "reset-offsets", group, "--yes").code == 2, (
        "the new offset is missing"
    )
    assert group in [row["group"] for row in barnabas.ok("groups", "list", "--json").data]
    barnabas.ok("groups", "delete", group, "--yes")
    gone = barnabas("groups", "describe", group)
    assert (gone.code, "barnabas groups list" in gone.err) == (1, True)
    assert barnabas("groups", "delete", group, "--yes", "--json").data[0]["deleted"] is False


def test_settings(barnabas: CommandLine) -> None:
    name = unique("set")
    barnabas.ok("topics", "create", name)
    dry = barnabas.ok("config", "set", "topic", name, "retention.ms=5", "--dry-run", "--json").data
    assert (dry["set"], dry["dry_run"]) == ({"retention.ms": "5"}, True)
    assert barnabas.ok("config", "describe", "topic", name, "--json").data == []
    barnabas.ok("config", "set", "topic", name, "retention.ms=5", "cleanup.policy=compact")
    rows = barnabas.ok("config", "describe", "topic", name, "--json").data
    assert {row["name"]: row["value"] for row in rows} == {
        "retention.ms": "5",
        "cleanup.policy": "compact",
    }
    barnabas.ok("config", "unset", "topic", name, "retention.ms")
    assert "retention.ms" not in barnabas.ok("config", "describe", "topic", name).out
    wrong = barnabas("config", "set", "topic", name, "no.such=1")
    assert (wrong.code, "no.such" in wrong.err) == (1, True)
    all_rows = barnabas.ok("config", "describe", "broker", "1", "--all", "--json").data
    assert any(row["name"] == "num.partitions" for row in all_rows)


def test_check_of_a_broker_that_is_well(barnabas: CommandLine, servers: str) -> None:
    answer = barnabas.ok("check", servers, "--json").data
    assert answer["healthy"] is True
    steps = {row["step"]: row["ok"] for row in answer["steps"]}
    assert steps == dict.fromkeys(
        [
            "connection",
            "protocol",
            "cluster",
            "partitions",
            "disk",
            "stuck",
            "groups",
            "transaction",
            "coordinators",
        ],
        True,
    )
    assert any(row["api"] == "Produce" for row in answer["apis"])
    assert "barnabas-check-" not in barnabas.ok("topics", "list").out
    assert "skipped" in barnabas.ok("check", "--read-only", "--apis").out


def test_check_fails_where_no_broker_listens(barnabas: CommandLine) -> None:
    with refusing_port() as port:
        nowhere = f"127.0.0.1:{port}"
        answer = barnabas("check", nowhere, "--json")
        assert (answer.code, answer.data["healthy"]) == (3, False)
        lost = barnabas("topics", "list", "-b", nowhere)
    assert (lost.code, "barnabas start" in lost.err) == (1, True)


def test_a_command_retries_while_the_coordinator_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Apache Kafka returns COORDINATOR_NOT_AVAILABLE to the first client of a group while it
    creates __consumer_offsets.
    """
    with LocalBroker(control=True, topics=["orders"]) as broker:
        barnabas = CommandLine(monkeypatch, capsys).use(broker.bootstrap_servers)
        barnabas.ok("produce", "orders", stdin="coffee\n")
        answer = {"api": "FindCoordinator", "code": "COORDINATOR_NOT_AVAILABLE"}
        with broker.control.fault("error", times=2, **answer) as fault:
            assert barnabas.ok("consume", "orders", "--group", "kitchen").out == "coffee\n"
            assert fault.met == 2
        for code in ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"):
            with broker.control.fault("error", api="OffsetFetch", code=code, times=2) as fault:
                assert barnabas.ok("groups", "describe", "kitchen").out.startswith("kitchen")
                assert fault.met == 2
        with broker.control.fault("error", **answer):
            late = barnabas("groups", "describe", "kitchen", "--timeout", "0.5")
            assert (late.code, "names no coordinator" in late.err) == (1, True)


def test_a_group_of_the_consumer_protocol(barnabas: CommandLine, servers: str) -> None:
    """DescribeGroups does not return such a group. The command has to use ConsumerGroupDescribe."""
    name, group = unique("modern"), unique("modern-group")
    barnabas.ok("topics", "create", name, "-p", "2")
    send_all(servers, name, [b"a", b"b"], partition=1)
    member = consumer(servers, group, **{"group.protocol": "consumer", "client.id": "cook"})
    try:
        member.subscribe([name])
        eventually(lambda: member.poll(0.2), what="a record")
        (row,) = barnabas.ok("groups", "describe", group, "--json").data
        assert (row["state"], row["protocol"], row["assignor"]) == ("Stable", "consumer", "uniform")
        assert [one["partitions"] for one in row["members"]] == [[f"{name}-0", f"{name}-1"]]
        assert {one["client_id"] for one in row["partitions"]} == {"cook"}
        refused = barnabas("groups", "reset-offsets", group, "-t", name, "--to", "latest", "--yes")
        assert (refused.code, "stop its consumers" in refused.err) == (1, True)
    finally:
        member.close()
    (row,) = barnabas.ok("groups", "describe", group, "--json").data
    assert (row["state"], row["members"]) == ("Empty", [])


def test_a_share_group(barnabas: CommandLine, servers: str) -> None:
    """Members share a partition. The command shows the partition's start offset and the number of
    its unfinished records.
    """
    name, group = unique("shared"), unique("couriers")
    barnabas.ok("topics", "create", name)
    settings = {"bootstrap.servers": servers, "group.id": group, "client.id": "courier", **QUIET}
    member = ShareConsumer({**settings, "share.acknowledgement.mode": "explicit"})
    try:
        member.subscribe([name])
        send_all(servers, name, [b"%d" % number for number in range(5)])

        def taken() -> list[Message]:
            # the group starts at the end of the topic, so records are sent until the member gets
            # some
            send_all(servers, name, [b"more"])
            return list(member.poll(timeout=1.0))

        records = eventually(taken, what="records")
        for record in records:
            member.acknowledge(record, AcknowledgeType.ACCEPT)
        member.commit_sync(30)
        (row,) = barnabas.ok("groups", "describe", group, "--json").data
        assert (row["state"], row["protocol"], row["assignor"]) == ("Stable", "share", "simple")
        assert [one["partitions"] for one in row["members"]] == [[f"{name}-0"]]
        (partition,) = row["partitions"]
        assert partition["client_ids"] == ["courier"]
        assert records[0].offset() <= partition["start_offset"] <= records[-1].offset() + 1
        assert partition["lag"] >= 0
        assert "courier" in barnabas.ok("groups", "describe", group).out
        refused = barnabas("groups", "reset-offsets", group, "--to", "earliest", "--yes")
        assert (refused.code, "stop its consumers" in refused.err) == (1, True)
    finally:
        member.close()
    plan = barnabas.ok("groups", "reset-offsets", group, "--to", "earliest", "--dry-run", "--json")
    (moved,) = plan.data["partitions"]
    assert (moved["committed_offset"], moved["new_offset"]) == (partition["start_offset"], 0)
    barnabas.ok("groups", "reset-offsets", group, "--to", "earliest", "--yes")
    (row,) = barnabas.ok("groups", "describe", group, "--json").data
    assert (row["state"], row["partitions"][0]["start_offset"]) == ("Empty", 0)
    assert ("share", "share") in [
        (one["protocol"], one["type"].lower())
        for one in barnabas.ok("groups", "list", "--json").data
        if one["group"] == group
    ]
    barnabas.ok("groups", "delete", group, "--yes")
    gone = barnabas("groups", "describe", group)
    assert (gone.code, "barnabas groups list" in gone.err) == (1, True)


def test_a_group_of_kafka_streams(barnabas: CommandLine, servers: str) -> None:
    """The command shows a member with the partitions that its tasks read."""
    name, fewer, group = unique("many"), unique("fewer"), unique("streams-group")
    barnabas.ok("topics", "create", name, "-p", "2")
    barnabas.ok("topics", "create", fewer, "-p", "1")
    topology = Topology(0, [Subtopology(subtopology_id="0", source_topics=[name, fewer])])
    join = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="cook",
        process_id="kitchen",
        topology=topology,
        rebalance_timeout_ms=10_000,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    with Wire(int(servers.rpartition(":")[2])) as member:
        answer = eventually(
            lambda: (found := member.call(wire.request(join, 0))).error_code == 0 and found,
            what="a member",
        )

        def assigned() -> bool:
            nonlocal answer
            beat = StreamsGroupHeartbeatRequest(
                group_id=group, member_id="cook", member_epoch=answer.member_epoch
            )
            answer = member.call(wire.request(beat, 0))
            return bool(answer.active_tasks)

        eventually(assigned, what="tasks")
        (row,) = barnabas.ok("groups", "describe", group, "--json").data
        assert (row["state"], row["protocol"]) == ("Stable", "streams")
        (one,) = row["members"]
        assert one["partitions"] == sorted([f"{name}-0", f"{name}-1", f"{fewer}-0"])
        assert group in barnabas.ok("groups", "describe").out
        refused = barnabas("groups", "reset-offsets", group, "-t", name, "--to", "latest", "--yes")
        assert (refused.code, "stop its consumers" in refused.err) == (1, True)
        leave = StreamsGroupHeartbeatRequest(group_id=group, member_id="cook", member_epoch=-1)
        assert member.call(wire.request(leave, 0)).error_code == 0
    barnabas.ok("groups", "delete", group, "--yes")
