"""Products are conversations in which a few requests cause much work, since what a request names is
multiplied by what the broker has: subtopologies by partitions, members by topics, a repeated
partition by the batches of its state.

A giant (giants.py) is one request with one long array, sent to a broker that has little. It cannot
find such work: a product needs a factor that earlier requests have made, often fields that fit
together, and it is often done after the response, or when a connection is closed. So a product is
written by hand. It sends requests as several clients, lets time pass and hangs up, in a world with
a topic of WIDE partitions. It is done ROUNDS times; the requirements are those of a giant (see
ordeal.py), and that rounds leave no memory behind.

`PRODUCTS` has the products by API: the one that multiplies, and others that read the result.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from helpers.our_messages import read_answer, request_frame
from helpers.scratch import IN_MEMORY

from barnabas.broker.logs.metadata import Topic
from barnabas.broker.slices import run_through
from barnabas.daemon.garbage import GC_THRESHOLDS
from barnabas.protocol.api_table import APIS
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_share_group_offsets,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_topics,
    delete_acls,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    find_coordinator,
    incremental_alter_configs,
    initialize_share_group_state,
    join_group,
    list_groups,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    write_share_group_state,
    write_txn_markers,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.message import Message
from fuzz.ordeal import (
    ALL_RIGHTS,
    NO_RIGHTS,
    Ordeal,
    Outcome,
    findings_of,
    in_child,
    line_of,
    resident_mb,
)

WIDE, WIDE_ID, PARTITIONS = "wide", uuid.UUID(int=0x5678), 1_000
MANY = 2_000  # topics of one partition
ROUNDS = 3
KEPT_MB = 24  # the most that a round may leave behind; the first round loads code

TOPIC, GROUP, LITERAL, PREFIXED, READ, DESCRIBE, ALLOW = 2, 3, 3, 4, 3, 8, 3  # numbers of ACLs

_VERSIONS = {api.name: api.max_version for api in APIS}


class World(Ordeal):
    """The broker of an ordeal, with a wide topic and many small ones."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        broker, now_ms = self.broker, self.host.now_ms
        topics = [Topic(WIDE, WIDE_ID, PARTITIONS, {})]
        topics += [Topic(f"t{at}", uuid.UUID(int=0x10000 + at), 1, {}) for at in range(MANY)]
        run_through(broker.topics.create_topics(topics, now_ms), now_ms)
        self.host.carry_out()
        self._reason = ""
        # the client without rights may join groups and see topics, and may not create any
        self.say(
            self.client(),
            create_acls.CreateAclsRequest(
                [
                    create_acls.AclCreation(GROUP, "s", PREFIXED, "User:eve", "*", READ, ALLOW),
                    create_acls.AclCreation(TOPIC, "*", LITERAL, "User:eve", "*", DESCRIBE, ALLOW),
                ]
            ),
        )

    def client(self, rights: str = ALL_RIGHTS) -> int:
        return self._connect(rights)

    def say(self, client: int, request: Message, version: int = -1) -> Any:
        """Send a request and return its response. A request that ends its connection is a finding,
        unless it has too many elements.
        """
        name = type(request).__name__.removesuffix("Request")
        version = _VERSIONS[name] if version < 0 else version
        self.request_name = name
        self.correlation += 1
        frame = request_frame(request, version, self.correlation)
        answer_bytes, reason = self.send(client, bytes(frame))
        assert "elements" not in reason, f"{name} has {reason}: make the product smaller"
        self._reason = self._reason or reason
        if answer_bytes < 0:
            return None
        return read_answer(memoryview(self.answer)[4:], type(request), version)

    correlation = 0

    def post(self, client: int, request: Message) -> None:
        """Send a request that waits for others."""
        self.request_name = name = type(request).__name__.removesuffix("Request")
        self.correlation += 1
        frame = bytearray(request_frame(request, _VERSIONS[name], self.correlation))
        self._timed(self.broker.on_frame, client, memoryview(frame), self.host.event_ms())
        while self._do_work():
            pass

    def play(self, name: str, conversation: Callable[[World], None]) -> Outcome:
        """Have a conversation several times, and return what happened."""
        self.begin(ALL_RIGHTS)
        kept: list[int] = []
        for _ in range(ROUNDS):
            conversation(self)
            for connection in list(self.broker.connections):
                if connection > FIRST:
                    self.hang_up(connection)
            self.settle(60_000)
            self.settle(60_000)
            gc.collect()
            kept.append(resident_mb())
        outcome = self.outcome(name, 0, self._reason or f"slowest: {self.slowest}")
        if kept[-1] - kept[0] > KEPT_MB * (ROUNDS - 1):
            return outcome._replace(reason=f"rounds leave memory behind: {kept} MB")
        return outcome


FIRST = 100  # the number of the connection that made the ordeal's world


# --- streams groups -------------------------------------------------------------------------------

sgh = streams_group_heartbeat


def _join_streams(
    world: World, client: int, topology: Any, member: str = "m", group: str = "s", **fields: Any
) -> Any:
    return world.say(
        client,
        sgh.StreamsGroupHeartbeatRequest(
            group, member, 0, -1, rebalance_timeout_ms=60_000, topology=topology,
            process_id=f"of-{member}", active_tasks=[], standby_tasks=[], warmup_tasks=[],
            user_endpoint=sgh.Endpoint("h", 1), **fields,
        ),
    )  # fmt: skip


def _reading(count: int, topics: Sequence[str] = (WIDE,)) -> Any:
    return sgh.Topology(1, [sgh.Subtopology(f"{at:05d}", list(topics)) for at in range(count)])


def _streams_group(world: World, topology: Any, members: int = 2) -> None:
    """Members join, take their tasks, list them, are described, and leave or hang up."""
    clients = {f"m{at}": world.client() for at in range(members)}
    epochs = {
        name: _join_streams(world, client, topology, name).member_epoch
        for name, client in clients.items()
    }
    tasks: dict[str, Any] = {}
    for _ in range(6):
        world.settle(3_000)
        for name, client in clients.items():
            owned = tasks.get(name, [])
            answer = world.say(
                client,
                sgh.StreamsGroupHeartbeatRequest(
                    "s", name, epochs[name], -1, active_tasks=owned, standby_tasks=[],
                    warmup_tasks=[],
                ),
            )  # fmt: skip
            if answer.error_code:
                continue
            epochs[name] = answer.member_epoch
            if answer.active_tasks is not None:
                tasks[name] = [
                    sgh.TaskIds(row.subtopology_id, row.partitions) for row in answer.active_tasks
                ]
    world.say(clients["m0"], streams_group_describe.StreamsGroupDescribeRequest(["s"]))
    name, client = next(iter(clients.items()))
    world.say(client, sgh.StreamsGroupHeartbeatRequest("s", name, -1))


def streams_of_one_wide_topic(world: World) -> None:
    _streams_group(world, _reading(20))


def streams_of_many_subtopologies(world: World) -> None:
    _streams_group(world, _reading(1_000, ["t1"]))


def streams_of_too_many_subtopologies(world: World) -> None:
    _streams_group(world, _reading(9_000))


def streams_of_many_topics(world: World) -> None:
    names = [f"t{at}" for at in range(MANY)]
    for topology in (_reading(2, names), _reading(9, names)):
        _streams_group(world, topology)


def streams_of_missing_topics(world: World) -> None:
    for count in (4_900, 19_000):
        _streams_group(world, _reading(1, [f"missing{at}" for at in range(count)]))


def _internal(count: int, *, stateful: bool) -> Any:
    infos = [sgh.TopicInfo(f"log{at}", 0, 0, []) for at in range(count)]
    if stateful:
        return sgh.Topology(1, [sgh.Subtopology("0", ["t1"], [], infos)])
    for info in infos:
        info.partitions = 1
    return sgh.Topology(1, [sgh.Subtopology("0", ["t1"], [], [], [], infos)])


def streams_of_many_internal_topics(world: World) -> None:
    """Without the right to create them: each heartbeat says why they are missing."""
    for stateful, count in itertools.product((True, False), (4_900, 19_000)):
        client = world.client(NO_RIGHTS)
        topology = _internal(count, stateful=stateful)
        answer = _join_streams(world, client, topology, group=f"s{stateful}")
        if answer is not None and not answer.error_code:
            for _ in range(3):
                world.say(
                    client,
                    sgh.StreamsGroupHeartbeatRequest(f"s{stateful}", "m", answer.member_epoch),
                )


def streams_of_created_topics(world: World) -> None:
    client = world.client()
    _join_streams(world, client, _internal(900, stateful=True), group="made")


def streams_that_list_tasks(world: World) -> None:
    client = world.client()
    epoch = _join_streams(world, client, _reading(1), group="s2").member_epoch
    world.settle(3_000)
    for tasks in (
        [sgh.TaskIds("00000", list(range(30_000)))],
        [sgh.TaskIds("00000", list(range(PARTITIONS))) for _ in range(30)],
        [sgh.TaskIds(f"{at:05d}", [0]) for at in range(7_000)],
    ):
        for _ in range(2):
            world.say(
                client,
                sgh.StreamsGroupHeartbeatRequest(
                    "s2", "m", epoch, -1, active_tasks=tasks, standby_tasks=tasks[:1],
                    warmup_tasks=[],
                ),
            )  # fmt: skip


def streams_of_copartition_groups(world: World) -> None:
    names = [f"t{at}" for at in range(MANY)]
    whole = sgh.CopartitionGroup(list(range(MANY)), [], [])
    for topology in (
        sgh.Topology(1, [sgh.Subtopology("0", names, copartition_groups=[whole])]),
        sgh.Topology(1, [sgh.Subtopology("0", names, copartition_groups=[whole] * 30)]),
        sgh.Topology(1, [sgh.Subtopology(
            "0", names[:1], copartition_groups=[sgh.CopartitionGroup([0] * 70_000, [], [])]
        )]),
    ):  # fmt: skip
        _join_streams(world, world.client(), topology, group="s3")


# --- consumer groups ------------------------------------------------------------------------------

cgh = consumer_group_heartbeat


def _join_consumers(
    world: World, count: int, kind: Any = cgh.ConsumerGroupHeartbeatRequest, **fields: Any
) -> None:
    """Members join from one connection, and send heartbeats until their assignments are stable."""
    client = world.client()
    epochs: dict[str, int] = {}
    shared = kind is share_group_heartbeat.ShareGroupHeartbeatRequest
    more = {} if shared else {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
    group = "share" if shared else "consumers"
    for at in range(count):
        answer = world.say(client, kind(group, f"m{at:05d}", 0, **more, **fields))
        if answer is not None and not answer.error_code:
            epochs[f"m{at:05d}"] = answer.member_epoch
    for _ in range(3):
        world.settle(2_000)
        for name, epoch in list(epochs.items())[:40]:
            answer = world.say(client, kind(group, name, epoch))
            if answer is not None and not answer.error_code:
                epochs[name] = answer.member_epoch
    for describe in (
        consumer_group_describe.ConsumerGroupDescribeRequest([group]),
        share_group_describe.ShareGroupDescribeRequest([group]),
        list_groups.ListGroupsRequest(),
    ):
        world.say(client, describe)
    for name in list(epochs)[:20]:
        world.say(client, kind(group, name, -1))


def consumers_of_many_topics(world: World) -> None:
    _join_consumers(world, 30, subscribed_topic_names=[WIDE, *[f"t{at}" for at in range(MANY)]])


def consumers_of_a_pattern(world: World) -> None:
    _join_consumers(world, 60, subscribed_topic_regex=".*")


def consumers_of_many_patterns(world: World) -> None:
    client = world.client()
    for at in range(60):
        pattern = f"(t|{'a' * 50}{at}|wi.*)+[0-9]*.{{0,40}}" * 20
        world.say(
            client,
            cgh.ConsumerGroupHeartbeatRequest(
                "patterns", f"m{at}", 0, rebalance_timeout_ms=60_000, topic_partitions=[],
                subscribed_topic_regex=pattern,
            ),
        )  # fmt: skip
    world.settle(11_000)


def consumers_of_missing_topics(world: World) -> None:
    _join_consumers(world, 8, subscribed_topic_names=[f"missing{at}" for at in range(19_000)])


def many_consumers_of_one_topic(world: World) -> None:
    _join_consumers(world, 400, subscribed_topic_names=[WIDE])


def sharers_of_many_topics(world: World) -> None:
    _join_consumers(
        world, 30, share_group_heartbeat.ShareGroupHeartbeatRequest,
        subscribed_topic_names=[WIDE, *[f"t{at}" for at in range(MANY)]],
    )  # fmt: skip


def many_sharers_of_one_topic(world: World) -> None:
    _join_consumers(
        world, 190, share_group_heartbeat.ShareGroupHeartbeatRequest, subscribed_topic_names=[WIDE]
    )


def consumers_that_list_partitions(world: World) -> None:
    client = world.client()
    kind = cgh.ConsumerGroupHeartbeatRequest
    join = kind("c2", "m", 0, rebalance_timeout_ms=60_000, topic_partitions=[],
                subscribed_topic_names=[WIDE])  # fmt: skip
    epoch = world.say(client, join).member_epoch
    for rows in (
        [cgh.TopicPartitions(WIDE_ID, list(range(70_000)))],
        [cgh.TopicPartitions(WIDE_ID, list(range(PARTITIONS))) for _ in range(60)],
        [cgh.TopicPartitions(uuid.UUID(int=at), [0]) for at in range(15_000)],
    ):
        for _ in range(2):
            world.say(client, kind("c2", "m", epoch, topic_partitions=rows))


# --- share sessions -------------------------------------------------------------------------------


def _share_fetch(topics: list[Any], epoch: int, member: str = "m", **more: Any) -> Message:
    return share_fetch.ShareFetchRequest(
        "g", member, epoch, 0, 1, 1 << 20, 500, 500, 0, False, topics, **more
    )


def _with_session(world: World, topics: list[Any]) -> None:
    """A session of these partitions, some small requests, and the client hangs up."""
    client = world.client()
    world.say(client, _share_fetch(topics, 0))
    for epoch in range(1, 6):
        world.say(client, _share_fetch([], epoch))


def share_sessions_of_unknown_topics(world: World) -> None:
    rows = [share_fetch.FetchPartition(0)]
    _with_session(world, [share_fetch.FetchTopic(uuid.UUID(int=at), rows) for at in range(39_000)])


def share_sessions_of_missing_partitions(world: World) -> None:
    rows = [share_fetch.FetchPartition(at) for at in range(PARTITIONS, 78_000)]
    _with_session(world, [share_fetch.FetchTopic(WIDE_ID, rows)])


def share_sessions_of_real_partitions(world: World) -> None:
    _initialize(world, "g")
    rows = [share_fetch.FetchPartition(at) for at in range(PARTITIONS)]
    for at in range(6):
        client = world.client()
        world.say(client, _share_fetch([share_fetch.FetchTopic(WIDE_ID, rows)], 0, f"m{at}"))
        world.say(client, _share_fetch([], 1, f"m{at}"))


def share_sessions_that_forget(world: World) -> None:
    client, count = world.client(), 70_000
    rows = [share_fetch.FetchPartition(at) for at in range(count)]
    world.say(client, _share_fetch([share_fetch.FetchTopic(WIDE_ID, rows)], 0))
    forgotten = [share_fetch.ForgottenTopic(WIDE_ID, list(range(count)))] * 4
    world.say(client, _share_fetch([], 1, forgotten_topics_data=forgotten))


def acknowledgements_of_many_partitions(world: World) -> None:
    client = world.client()
    world.say(client, _share_fetch([], 0))
    batch = share_acknowledge.AcknowledgementBatch
    for epoch, topics in enumerate(
        (
            [share_acknowledge.AcknowledgeTopic(WIDE_ID, [
                share_acknowledge.AcknowledgePartition(at, [batch(0, 0, [1])])
                for at in range(36_000)
            ])],
            [share_acknowledge.AcknowledgeTopic(uuid.UUID(int=at), [
                share_acknowledge.AcknowledgePartition(0, [])
            ]) for at in range(38_000)],
            [share_acknowledge.AcknowledgeTopic(WIDE_ID, [
                share_acknowledge.AcknowledgePartition(
                    0, [batch(at, at, [1]) for at in range(60_000)]
                )
            ])],
            [share_acknowledge.AcknowledgeTopic(WIDE_ID, [
                share_acknowledge.AcknowledgePartition(0, [batch(0, 299_999, [1] * 300_000)])
            ])],
        ),
        1,
    ):  # fmt: skip
        world.say(client, share_acknowledge.ShareAcknowledgeRequest("g", "m", epoch, False, topics))


# --- states of share partitions -------------------------------------------------------------------


def _initialize(world: World, group: str, count: int = PARTITIONS) -> None:
    rows = [initialize_share_group_state.PartitionData(at, 0, 0) for at in range(count)]
    topics = [initialize_share_group_state.InitializeStateData(WIDE_ID, rows)]
    world.say(
        world.client(), initialize_share_group_state.InitializeShareGroupStateRequest(group, topics)
    )


def _write_state(world: World, batches: list[Any], partitions: Sequence[int] = (0,)) -> None:
    rows = [write_share_group_state.PartitionData(at, 0, 0, 0, 0, batches) for at in partitions]
    topics = [write_share_group_state.WriteStateData(WIDE_ID, rows)]
    world.say(world.client(), write_share_group_state.WriteShareGroupStateRequest("w", topics))


def _state_batches(count: int, delivery_count: int) -> list[Any]:
    batch = write_share_group_state.StateBatch
    return [batch(2 * at, 2 * at, 0, delivery_count) for at in range(count)]


def states_with_overlapping_batches(world: World) -> None:
    """Each of the later batches overlaps all earlier ones, and replaces none."""
    _initialize(world, "w", 1)
    whole = write_share_group_state.StateBatch(0, 1 << 40, 0, 1)
    _write_state(world, [*_state_batches(5_400, 2), *[whole] * 5_400])


def states_with_overlapping_batches_in_several_requests(world: World) -> None:
    _initialize(world, "w", 1)
    for _ in range(5):
        _write_state(world, _state_batches(9_900, 2))
        _write_state(world, _state_batches(9_900, 3))


def states_that_grow(world: World) -> None:
    batch = write_share_group_state.StateBatch
    _initialize(world, "w", 1)
    for round in range(8):
        first = round * 40_000
        _write_state(world, [batch(first + 2 * at, first + 2 * at, 0, 1) for at in range(10_500)])
    for kind, row, data in (
        (read_share_group_state.ReadShareGroupStateRequest,
         read_share_group_state.PartitionData, read_share_group_state.ReadStateData),
        (read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
         read_share_group_state_summary.PartitionData,
         read_share_group_state_summary.ReadStateSummaryData),
    ):  # fmt: skip
        world.say(world.client(), kind("w", [data(WIDE_ID, [row(0, 0)] * 9_500)]))
        world.say(world.client(), kind("w", [data(WIDE_ID, [row(0, 0)])] * 4_700))
    rows = [delete_share_group_state.PartitionData(0)] * 9_500
    topics = [delete_share_group_state.DeleteStateData(WIDE_ID, rows)]
    world.say(world.client(), delete_share_group_state.DeleteShareGroupStateRequest("w", topics))


def states_of_many_partitions(world: World) -> None:
    for group in ("w", "x", "y"):
        _initialize(world, group)
        _initialize(world, group, 9_500)
    _write_state(world, _state_batches(9, 1), range(PARTITIONS))
    _write_state(world, [], [0] * 10_000)


# --- offsets --------------------------------------------------------------------------------------


def offsets_of_share_groups(world: World) -> None:
    client = world.client()
    for group in ("g", "w"):
        _initialize(world, group)
    describe = describe_share_group_offsets
    groups = [
        describe.DescribeShareGroupOffsetsRequestGroup(group, None)
        for group in ["g", "w", *[f"none{at}" for at in range(1_000)]]
    ]
    world.say(client, describe.DescribeShareGroupOffsetsRequest(groups))
    names = [
        describe.DescribeShareGroupOffsetsRequestTopic(WIDE, list(range(PARTITIONS)))
        for _ in range(20)
    ]
    groups = [describe.DescribeShareGroupOffsetsRequestGroup("g", names) for _ in range(20)]
    world.say(client, describe.DescribeShareGroupOffsetsRequest(groups))
    alter = alter_share_group_offsets
    rows = [alter.AlterShareGroupOffsetsRequestPartition(at, 5) for at in range(PARTITIONS)]
    topics = [alter.AlterShareGroupOffsetsRequestTopic(WIDE, rows)] * 100
    world.say(client, alter.AlterShareGroupOffsetsRequest("g", topics))
    delete = delete_share_group_offsets
    topics = [delete.DeleteShareGroupOffsetsRequestTopic(f"t{at}") for at in range(MANY)]
    world.say(client, delete.DeleteShareGroupOffsetsRequest("g", topics))


def offsets_of_many_groups(world: World) -> None:
    client = world.client()
    oc = offset_commit
    for at in range(30):
        rows = [
            oc.OffsetCommitRequestPartition(at, 1, committed_metadata="o" * 60)
            for at in range(PARTITIONS)
        ]
        topics = [oc.OffsetCommitRequestTopic(WIDE, partitions=rows)]
        world.say(client, oc.OffsetCommitRequest(f"o{at}", -1, "", None, -1, topics), 7)
    of = offset_fetch
    groups = [of.OffsetFetchRequestGroup(f"o{at}", topics=None) for at in range(30)] * 300
    world.say(client, of.OffsetFetchRequest(groups=groups), 9)
    for at in range(30):
        deleted = [
            offset_delete.OffsetDeleteRequestTopic(
                WIDE, [offset_delete.OffsetDeleteRequestPartition(one) for one in range(PARTITIONS)]
            )
        ]
        world.say(client, offset_delete.OffsetDeleteRequest(f"o{at}", deleted))
    keys = [f"o{at}" for at in range(9_000)]
    world.say(client, find_coordinator.FindCoordinatorRequest(coordinator_keys=keys))


# --- topics, transactions, rights -----------------------------------------------------------------


def topics_with_all_their_partitions(world: World) -> None:
    client = world.client()
    dtp = describe_topic_partitions
    topics = [dtp.TopicRequest(WIDE)] * 9_000 + [dtp.TopicRequest(f"t{at}") for at in range(MANY)]
    world.say(client, dtp.DescribeTopicPartitionsRequest(topics, 2_000))
    world.say(client, metadata.MetadataRequest(None))
    rows = [metadata.MetadataRequestTopic(name=WIDE)] * 30_000
    world.say(client, metadata.MetadataRequest(rows))


def transactions_that_match_a_pattern(world: World) -> None:
    client = world.client()
    for at in range(300):
        world.say(client, InitProducerIdRequest(f"txn-{'x' * 200}-{at}", 60_000))
    for pattern in ("(x|xx|xxx)*y", "(.*x){20}y", ".*" * 5_000, "(a|b|x){0,900}y"):
        world.say(client, list_transactions.ListTransactionsRequest([], [], -1, pattern))


def rights_that_match_filters(world: World) -> None:
    client = world.client()
    creations = [
        create_acls.AclCreation(TOPIC, f"t{at}", PREFIXED, f"User:u{at % 50}", "*", READ, ALLOW)
        for at in range(8_000)
    ]
    world.say(client, create_acls.CreateAclsRequest(creations))
    any_of = describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1)
    world.say(client, any_of)
    none = delete_acls.DeleteAclsFilter(2, "nothing", 2, "User:nobody", None, 1, 1)
    world.say(client, delete_acls.DeleteAclsRequest([none] * 900))
    user = world.client(NO_RIGHTS)
    world.say(user, metadata.MetadataRequest(None))


def filters_of_quotas(world: World) -> None:
    client = world.client()
    acq, dcq = alter_client_quotas, describe_client_quotas
    for first in range(0, 3_000, 1_000):
        entries = [
            acq.EntryData(
                [acq.EntityData("user", f"u{at}"), acq.EntityData("client-id", f"c{at}")],
                [acq.OpData("producer_byte_rate", 1e6), acq.OpData("consumer_byte_rate", 1e6)],
            )
            for at in range(first, first + 1_000)
        ]
        world.say(client, acq.AlterClientQuotasRequest(entries))
    for strict in (False, True):
        world.say(client, dcq.DescribeClientQuotasRequest([], strict))
        components = [dcq.ComponentData("user", 2, None), dcq.ComponentData("client-id", 2, None)]
        world.say(client, dcq.DescribeClientQuotasRequest(components, strict))


def settings_of_many_things(world: World) -> None:
    client = world.client()
    dc, iac = describe_configs, incremental_alter_configs
    rows = [dc.DescribeConfigsResource(2, f"t{at}", None) for at in range(MANY)]
    rows += [dc.DescribeConfigsResource(32, f"g{at}", None) for at in range(2_000)]
    world.say(client, dc.DescribeConfigsRequest(rows, True, True))
    keys = [dc.DescribeConfigsResource(2, WIDE, ["retention.ms"] * 10_000) for _ in range(12)]
    world.say(client, dc.DescribeConfigsRequest(keys, True, True))
    changed = [
        iac.AlterConfigsResource(
            2, f"t{at}", [iac.AlterableConfig("retention.ms", 0, str(at + 1_000_000))]
        )
        for at in range(MANY)
    ]
    world.say(client, iac.IncrementalAlterConfigsRequest(changed))


def topics_that_are_created_and_deleted(world: World) -> None:
    client = world.client()
    ct = create_topics
    configs = [ct.CreatableTopicConfig("retention.ms", "1000")]
    topics = [ct.CreatableTopic(f"new{at}", 1, 1, [], configs) for at in range(1_500)]
    topics.append(ct.CreatableTopic("broad", 1_500, 1, [], []))
    assigned = [ct.CreatableReplicaAssignment(at, [1] * 8) for at in range(1_000)]
    topics.append(ct.CreatableTopic("assigned", -1, -1, assigned, []))
    world.say(client, ct.CreateTopicsRequest(topics, 60_000, False))
    names = [delete_topics.DeleteTopicState(topic.name) for topic in topics]
    world.say(client, delete_topics.DeleteTopicsRequest(names, timeout_ms=60_000))


def directories_with_all_their_partitions(world: World) -> None:
    client = world.client()
    dld = describe_log_dirs
    world.say(client, dld.DescribeLogDirsRequest(None))
    topics = [dld.DescribableLogDirTopic(WIDE, list(range(PARTITIONS))) for _ in range(90)]
    world.say(client, dld.DescribeLogDirsRequest(topics))
    dp = describe_producers
    rows = [dp.TopicRequest(WIDE, list(range(PARTITIONS))) for _ in range(90)]
    world.say(client, dp.DescribeProducersRequest(rows))


def transactions_of_many_partitions(world: World) -> None:
    client = world.client()
    apt, wtm = add_partitions_to_txn, write_txn_markers
    for at in range(12):
        begun = world.say(client, InitProducerIdRequest(f"wide{at}", 60_000))
        topics = [apt.AddPartitionsToTxnTopic(WIDE, list(range(PARTITIONS)))]
        one = apt.AddPartitionsToTxnTransaction(
            f"wide{at}", begun.producer_id, begun.producer_epoch, False, topics
        )
        world.say(client, apt.AddPartitionsToTxnRequest([one]))
    names = [f"wide{at}" for at in range(12)] * 300
    world.say(client, describe_transactions.DescribeTransactionsRequest(names))
    topics = [wtm.WritableTxnMarkerTopic(WIDE, list(range(PARTITIONS)))]
    markers = [wtm.WritableTxnMarker(7 + at, 0, False, topics) for at in range(90)]
    world.say(client, wtm.WriteTxnMarkersRequest(markers))


def classic_members_with_many_protocols(world: World) -> None:
    """Each member of a group waits on a connection of its own. The protocol that most prefer is
    chosen, and the leader gets the metadata of all.
    """
    jg = join_group
    protocols = [jg.JoinGroupRequestProtocol(f"p{at:04d}", b"m" * 40) for at in range(900)]
    for _ in range(2):
        for at in range(150):
            some = protocols[at % 5 :] + protocols[: at % 5]
            world.post(
                world.client(),
                jg.JoinGroupRequest("classic", 6_000, 6_000, "", f"i{at}", "consumer", some),
            )
        world.settle(4_000)
    world.say(world.client(), describe_groups.DescribeGroupsRequest(["classic"]))


PRODUCTS: dict[str, tuple[Callable[[World], None], ...]] = {
    "StreamsGroupHeartbeat": (
        streams_of_one_wide_topic, streams_of_many_subtopologies,
        streams_of_too_many_subtopologies, streams_of_many_topics, streams_of_missing_topics,
        streams_of_many_internal_topics, streams_of_created_topics, streams_that_list_tasks,
        streams_of_copartition_groups,
    ),
    "ConsumerGroupHeartbeat": (
        consumers_of_many_topics, consumers_of_a_pattern, consumers_of_many_patterns,
        consumers_of_missing_topics, many_consumers_of_one_topic, consumers_that_list_partitions,
    ),
    "ShareGroupHeartbeat": (sharers_of_many_topics, many_sharers_of_one_topic),
    "ShareFetch": (
        share_sessions_of_unknown_topics, share_sessions_of_missing_partitions,
        share_sessions_of_real_partitions, share_sessions_that_forget,
    ),
    "ShareAcknowledge": (acknowledgements_of_many_partitions,),
    "WriteShareGroupState": (
        states_with_overlapping_batches, states_with_overlapping_batches_in_several_requests,
        states_that_grow, states_of_many_partitions,
    ),
    "DescribeShareGroupOffsets": (offsets_of_share_groups,),
    "OffsetFetch": (offsets_of_many_groups,),
    "DescribeTopicPartitions": (topics_with_all_their_partitions,),
    "ListTransactions": (transactions_that_match_a_pattern,),
    "DeleteAcls": (rights_that_match_filters,),
    "DescribeClientQuotas": (filters_of_quotas,),
    "DescribeConfigs": (settings_of_many_things,),
    "CreateTopics": (topics_that_are_created_and_deleted,),
    "DescribeLogDirs": (directories_with_all_their_partitions,),
    "AddPartitionsToTxn": (transactions_of_many_partitions,),
    "JoinGroup": (classic_members_with_many_protocols,),
}  # fmt: skip


def outcome_of(conversation: Callable[[World], None]) -> list[Outcome]:
    """The outcome of a product in a world of its own."""
    with tempfile.TemporaryDirectory(prefix="barnabas-product-", dir=IN_MEMORY) as scratch:
        return [World(Path(scratch)).play(conversation.__name__, conversation)]


def main(given: list[str] | None = None) -> int:
    """Play the products, and return the exit code, which is 0 if all requirements hold."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.products", description=__doc__)
    parser.add_argument("--api", action="append", help="of these alone; by default of all")
    parser.add_argument("--name", action="append", help="these alone")
    options = parser.parse_args(given)
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    is_found = False
    for api, conversations in PRODUCTS.items():
        for one in conversations:
            if options.api and api not in options.api:
                continue
            if options.name and one.__name__ not in options.name:
                continue
            (outcome,) = in_child(one.__name__, lambda one=one: outcome_of(one))
            found = findings_of(outcome)
            is_found = is_found or bool(found)
            print(line_of(outcome), *found, flush=True)
    return is_found


if __name__ == "__main__":
    sys.exit(main())
