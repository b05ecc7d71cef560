"""What a group waits for is said alike by `groups list`, `groups describe`, `check`, the console
and the metrics, for groups of each kind in each situation.
"""

from __future__ import annotations

import struct
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from helpers.cli_commands import CommandLine
from helpers.console_page import Shop
from helpers.e2e_wire import Wire
from helpers.scrapes import port_of, scrape_at
from sim import wire

from barnabas.cli import check
from barnabas.coordinator.groups.classic.consumer_protocol import write_assignment
from barnabas.group_lag import AT_REST
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.spark_connector.write.deduplication import CommitNote

pytestmark = pytest.mark.e2e
SUBSCRIPTION = struct.pack(">hi", 0, 1) + b"\0\4full" + struct.pack(">i", -1)
HELD = "held back by an open transaction"


class Said(NamedTuple):
    """What is said of a group: its lag, its status, and its partitions by situation."""

    lag: int
    status: str
    situations: dict[str, int]


NO_PARTITIONS = "and its members have no partitions"
EXPECTED = {
    # classic groups without members, which only commit
    "simple-behind": Said(6, "6 behind", {"behind": 1}),
    "simple-at-the-end": Said(0, "up to date", {"up to date": 1}),
    "only-markers-left": Said(0, "up to date", {"up to date": 1}),
    "only-aborted-left": Said(0, "up to date", {"up to date": 1}),
    "at-a-transaction": Said(3, f"3 behind, {HELD}", {"waits": 1}),
    "before-a-transaction": Said(5, f"5 behind, 3 of them {HELD}", {"behind": 1}),
    "reads-uncommitted": Said(1, "1 behind", {"behind": 1}),
    "beyond-the-end": Said(0, "its offset is beyond the end of 1 partition", {"beyond the end": 1}),
    "before-the-start": Said(
        4,
        "4 behind, records that it had not read were deleted in 1 partition",
        {"before the start": 1},
    ),
    "sink": Said(0, "batch numbers of a Spark sink: no lag", {"batch number": 1}),
    "two-topics": Said(9, f"9 behind, 3 of them {HELD}", {"behind": 1, "waits": 1}),
    # classic groups with members
    "classic-stuck": Said(10, "nothing committed: up to 10 wait", {"never committed": 1}),
    "classic-none-assigned": Said(6, f"6 behind, {NO_PARTITIONS}", {"behind": 1}),
    "classic-empty-handed": Said(
        0, "no committed offsets yet, its members have no partitions", {}
    ),
    "classic-left": Said(6, "6 behind, and no member continues", {"behind": 1}),
    "classic-on-a-transaction": Said(2, f"2 behind, {HELD}", {"waits": 1}),
    # the other kinds
    "consumer-stuck": Said(10, "nothing committed: up to 10 wait", {"never committed": 1}),
    "consumer-empty-topic": Said(0, "nothing committed, none waits", {"never committed": 1}),
    "streams-stuck": Said(10, "nothing committed: up to 10 wait", {"never committed": 1}),
    "share-not-started": Said(0, "no record of 1 partition delivered yet", {"not started": 1}),
    "share-behind": Said(6, "6 behind, and no member continues", {"behind": 1}),
}  # fmt: skip


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """A broker with groups in all situations."""
    shop = Shop(
        barnabas_metrics_port=0,
        barnabas_metrics_detail="partitions",
        group_streams_initial_rebalance_delay_ms=0,
    )
    with shop.broker, ExitStack() as stack:
        servers = shop.broker.bootstrap_servers
        for topic in ("full", "trimmed", "committed", "aborted", "held", "opened", "none"):
            shop.broker.create_topic(topic)
        plain = Producer({"bootstrap.servers": servers})
        for topic in ("full", "trimmed"):
            for _ in range(10):
                plain.produce(topic, b"v")
        for _ in range(2):
            plain.produce("held", b"v")
        assert plain.flush(20) == 0
        for topic, count, end in (
            ("committed", 3, "commit"), ("aborted", 3, "abort"), ("held", 3, ""), ("opened", 2, ""),
        ):  # fmt: skip
            producer = shop.producer(f"of-{topic}")
            producer.begin_transaction()
            for _ in range(count):
                producer.produce(topic, b"v")
            assert producer.flush(20) == 0
            if end:
                getattr(producer, f"{end}_transaction")(20)

        def commit(group: str, offsets: dict[str, int], metadata: str = "") -> None:
            consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
            places = [TopicPartition(topic, 0, at, metadata) for topic, at in offsets.items()]
            consumer.commit(offsets=places, asynchronous=False)
            consumer.close()

        for group, offsets in (
            ("simple-behind", {"full": 4}),
            ("simple-at-the-end", {"full": 10}),
            ("only-markers-left", {"committed": 3}),
            ("only-aborted-left", {"aborted": 0}),
            ("at-a-transaction", {"held": 2}),
            ("before-a-transaction", {"held": 0}),
            ("reads-uncommitted", {"held": 4}),
            ("beyond-the-end", {"full": 99}),
            ("before-the-start", {"trimmed": 2}),
            ("two-topics", {"full": 4, "held": 2}),
            ("classic-none-assigned", {"full": 4}),
            ("classic-left", {"full": 4}),
        ):
            commit(group, offsets)
        commit("sink", {"full": 3}, CommitNote(what="batch 3 of query q", target="full").to_text())

        def member() -> Wire:
            return stack.enter_context(Wire(shop.broker.port))

        for group, topic in (
            ("classic-stuck", "full"), ("classic-none-assigned", ""), ("classic-empty-handed", ""),
            ("classic-on-a-transaction", "opened"),
        ):  # fmt: skip
            join_classic(member(), group, topic)
        with Wire(shop.broker.port) as leaving:
            leave_classic(leaving, "classic-left", join_classic(leaving, "classic-left", "full"))
        for group, topic in (("consumer-stuck", "full"), ("consumer-empty-topic", "none")):
            beat = ConsumerGroupHeartbeatRequest(
                group, str(uuid.uuid4()), 0, rebalance_timeout_ms=60_000,
                subscribed_topic_names=[topic], topic_partitions=[],
            )  # fmt: skip
            assert member().call(wire.request(beat, 1)).error_code == 0
        for group, epochs in (("share-not-started", (0,)), ("share-behind", (0, -1))):
            member_id = str(uuid.uuid4())
            for epoch in epochs:
                share = ShareGroupHeartbeatRequest(group, member_id, epoch, None, ["full"])
                assert member().call(wire.request(share, 1)).error_code == 0
        streams = StreamsGroupHeartbeatRequest(
            "streams-stuck", str(uuid.uuid4()), 0, rebalance_timeout_ms=60_000, process_id="p",
            topology=Topology(1, [Subtopology("0", source_topics=["full"])]),
            active_tasks=[], standby_tasks=[], warmup_tasks=[],
        )  # fmt: skip
        assert member().call(wire.request(streams, 0)).error_code == 0
        yield shop
        output = "".join(shop.broker.output)
        assert "Traceback" not in output and " ERROR " not in output, output[-3000:]


def join_classic(connection: Wire, group: str, topic: str) -> str:
    """Join a classic group as its only member, with partition 0 of a topic, or no partition."""
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=60_000, rebalance_timeout_ms=60_000, member_id="",
        group_instance_id=None, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", SUBSCRIPTION)], reason=None,
    )  # fmt: skip
    joined = connection.call(wire.request(request, 3))
    assert joined.error_code == 0
    assignment = write_assignment(0, {topic: [0]} if topic else {})
    sync = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id,
        group_instance_id=None,
        assignments=[SyncGroupRequestAssignment(joined.member_id, assignment)],
    )  # fmt: skip
    assert connection.call(wire.request(sync, 2)).error_code == 0
    return str(joined.member_id)


def leave_classic(connection: Wire, group: str, member_id: str) -> None:
    from barnabas.protocol.messages.leave_group import LeaveGroupRequest

    request = LeaveGroupRequest(group_id=group, member_id=member_id)
    assert connection.call(wire.request(request, 2)).error_code == 0


@pytest.fixture
def barnabas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shop: Shop
) -> CommandLine:
    return CommandLine(monkeypatch, capsys).use(shop.broker.bootstrap_servers)


@pytest.fixture
def share_offsets(barnabas: CommandLine) -> None:
    """Give the share group without members a start offset."""
    barnabas.ok("groups", "reset-offsets", "share-behind", "-t", "full", "--to", "4", "--yes")
    barnabas.ok("records", "delete", "trimmed", "--before", "6", "--yes")


def of_list(barnabas: CommandLine) -> dict[str, tuple[int, str]]:
    rows = barnabas.ok("groups", "list", "--json").data
    return {row["group"]: (row["lag"], row["status"]) for row in rows}


def of_describe(barnabas: CommandLine) -> dict[str, Said]:
    rows = barnabas.ok("groups", "describe", "--json").data
    return {
        row["group"]: Said(
            row["lag"],
            row["status"],
            dict(Counter(part["situation"] for part in row["partitions"])),
        )
        for row in rows
    }


def of_console(shop: Shop) -> dict[str, Said]:
    said = {}
    for row in shop.ask("/api/groups?count=200")[2]["rows"]:
        parts = shop.ask(f"/api/group?group={row['group']}")[2]["rows"]
        counts = Counter(part["situation"] for part in parts)
        said[row["group"]] = Said(row["lag"], row["status"], dict(counts))
    return said


def of_metrics(shop: Shop) -> dict[str, tuple[int, dict[str, int]]]:
    lags: Counter[str] = Counter()
    situations: dict[str, dict[str, int]] = {}
    for (name, labels), value in scrape_at(port_of(shop.broker)).samples.items():
        of = dict(labels)
        if name == "barnabas_group_lag":
            lags[of["group"]] += int(value)
        elif name == "barnabas_group_partitions":
            situations.setdefault(of["group"], {})[of["situation"]] = int(value)
    return {group: (lags[group], situations.get(group, {})) for group in EXPECTED}


@pytest.mark.usefixtures("share_offsets")
def test_all_say_the_same_of_a_group(
    shop: Shop, barnabas: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "NAMED_MOST", 100)
    assert of_list(barnabas) == {group: row[:2] for group, row in EXPECTED.items()}
    assert of_describe(barnabas) == EXPECTED
    assert of_console(shop) == EXPECTED
    assert of_metrics(shop) == {group: (row.lag, row.situations) for group, row in EXPECTED.items()}
    (step,) = [
        row
        for row in barnabas("check", "--read-only", "--stuck-after", "9999", "--json").data["steps"]
        if row["step"] == "groups"
    ]
    head, *texts = step["result"].split("; ")
    assert (head, step["ok"]) == (f"{len(EXPECTED)} groups", True)
    assert sorted(texts) == sorted(
        f"{group}: {row.status}" for group, row in EXPECTED.items() if row.status not in AT_REST
    )
    largest = scrape_at(port_of(shop.broker)).of("barnabas_group_lag_max")
    assert largest == max(row.lag for row in EXPECTED.values())


@pytest.mark.usefixtures("share_offsets")
def test_the_pages_of_a_topic_and_of_a_partition_say_it_too(shop: Shop) -> None:
    rows = shop.ask("/api/topic?topic=held")[2]["groups"]
    said = {row["group"]: row["topic_status"] for row in rows}
    names = ("at-a-transaction", "before-a-transaction", "reads-uncommitted")
    assert said == {
        **{group: EXPECTED[group].status for group in names},
        "two-topics": f"3 behind, {HELD}",
    }
    rows = shop.ask("/api/partition?topic=full&partition=0")[2]["groups"]
    said = {row["group"]: row["status"] for row in rows}
    assert said["classic-stuck"] == EXPECTED["classic-stuck"].status
    assert said["two-topics"] == "6 behind"


@pytest.mark.usefixtures("share_offsets")
def test_the_console_names_the_transaction_that_a_group_waits_for(shop: Shop) -> None:
    waiting = {
        row["group"]: [(place["topic"], place["transactional_id"]) for place in row["stuck"]]
        for row in shop.ask("/api/groups?count=200")[2]["rows"]
        if row["stuck"]
    }
    assert waiting == {
        "at-a-transaction": [("held", "of-held")],
        "two-topics": [("held", "of-held")],
        "classic-on-a-transaction": [("opened", "of-opened")],
    }


def test_the_command_prints_the_situation_of_each_partition(barnabas: CommandLine) -> None:
    printed = barnabas.ok("groups", "describe", "classic-stuck").out
    assert "nothing committed: up to 10 wait" in printed and "never committed" in printed
