"""Requests with many elements, or with one element many times. The response has each element once,
other requests are served between two parts of the work, and the number of elements is limited. The
expected codes are those of Apache Kafka 3.9.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz.giants import TOO_MANY, Giant, array_paths, giants
from helpers.api_rows import SHAPES
from helpers.core_host import CoreHost
from helpers.our_messages import read_request, request_class
from helpers.repeating import repeat_until

from barnabas.broker.requests import wide_requests
from barnabas.broker.requests.encoded_rows import EncodedRows, join_rows
from barnabas.broker.requests.large_requests import PLACES
from barnabas.broker.requests.wide_requests import (
    CollectedAnswer,
    Repeats,
    Shape,
    leave_out_repeats,
    parts_of,
    shape_of,
)
from barnabas.protocol.api import Api
from barnabas.protocol.api_table import APIS, BY_KEY
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.primitives import BoundedBytes, TooManyElementsError

ANN, BOB, ADMIN = 1, 2, 3
SUPER = {"authorizer_class_name": "StandardAuthorizer", "super_users": "User:admin"}
MOST_TICKS = 5000


class Host(CoreHost):
    """A host for three users. With an authorizer, ANN and BOB have no rights, and ADMIN has all
    of them.
    """

    def __init__(self, directory: Path, **settings: str) -> None:
        """A broker with the topic t, and a connection for each of three users."""
        super().__init__(directory, **settings)
        for connection, user in ((ANN, "User:ann"), (BOB, "User:bob"), (ADMIN, "User:admin")):
            self.connect(connection)
            self.broker.connections[connection].principal = user
        self.broker.topics.create_topic("t", 3, {}, now_ms=self.now_ms)

    def go_on(self) -> None:
        """Complete one pending piece of background work, or one flush, or else run a tick."""
        if self.work:
            self.finish_work()
        elif self.flushes:
            self.flush()
        else:
            self.tick(0)

    def ask_and_wait(self, connection: int, request: Any, version: int) -> Any:
        """The response to a request; None if the connection was closed instead."""
        before = len(self.answers[connection])
        self.ask(connection, request, version)
        for _ in range(MOST_TICKS):
            if connection in self.closed:
                return None
            if len(self.answers[connection]) > before:
                return self.answers[connection][-1]
            self.go_on()
        raise AssertionError("it is not answered")

    def give(self, connection: int, frame: bytes) -> None:
        """Send a frame of raw bytes."""
        self.broker.on_frame(connection, memoryview(bytearray(frame)), self.event_ms())
        self.carry_out()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def guarded(tmp_path: Path) -> Host:
    return Host(tmp_path, **SUPER)


def names(count: int) -> list[str]:
    return [f"n{number:06d}" for number in range(count)]


def offsets_request(indexes: list[int], topic: str = "t") -> ListOffsetsRequest:
    rows = [ListOffsetsPartition(index, -1, -1) for index in indexes]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(topic, rows)])


# --- each thing once ----------------------------------------------------------------------------


def test_a_group_that_is_named_a_thousand_times_is_described_once(host: Host) -> None:
    answer = host.call(ANN, DescribeGroupsRequest(groups=["g", "h"] * 500), 5)
    assert [row.group_id for row in answer.groups] == ["g", "h"]


def test_a_group_named_several_times_is_fetched_once_for_all_topics_and_once_for_some(
    host: Host,
) -> None:
    """The response has one entry for all topics, one for the named topics, and one for an empty
    list of topics, as in Apache Kafka 3.9.
    """
    some = OffsetFetchRequestTopics("t", partition_indexes=[0, 1, 0, 1])
    groups = [
        OffsetFetchRequestGroup("g", topics=None),
        OffsetFetchRequestGroup("g", topics=[some]),
        OffsetFetchRequestGroup("g", topics=None),
        OffsetFetchRequestGroup("g", topics=[]),
        OffsetFetchRequestGroup("g", topics=[]),
    ]
    answer = host.call(ANN, OffsetFetchRequest(groups=groups), 8)
    reported = [
        [(topic.name, len(topic.partitions)) for topic in row.topics] for row in answer.groups
    ]
    assert reported == [[], [("t", 2)], []]


def test_repeated_elements_are_answered_once_in_four_kinds_of_requests(host: Host) -> None:
    keys = FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b", "a"])
    assert [row.key for row in host.call(ANN, keys, 4).coordinators] == ["a", "b"]
    resources = [
        DescribeConfigsResource(2, "t", None),
        DescribeConfigsResource(2, "t", ["retention.ms"]),
        DescribeConfigsResource(2, "t", None),
    ]
    answer = host.call(ANN, DescribeConfigsRequest(resources=resources), 4)
    assert [len(row.configs) > 1 for row in answer.results] == [True, False]
    topics = [TopicRequest("t", [0, 0, 1]), TopicRequest("u", []), TopicRequest("t", [1, 2])]
    answer = host.call(ANN, DescribeProducersRequest(topics=topics), 0)
    reported = [
        (topic.name, [row.partition_index for row in topic.partitions]) for topic in answer.topics
    ]
    assert reported == [("t", [0, 1]), ("u", []), ("t", [2])]
    elections = ElectLeadersRequest(0, [TopicPartitions("t", [2, 2, 2])], 1000)
    (topic,) = host.call(ANN, elections, 2).replica_election_results
    assert [row.partition_id for row in topic.partition_result] == [2]


def test_delete_records_uses_the_last_offset_named_for_a_partition(host: Host) -> None:
    """Apache Kafka puts the offsets into a map, which keeps the last one. The first offset, 7,
    would be out of range.
    """
    rows = [
        DeleteRecordsPartition(0, 7),
        DeleteRecordsPartition(1, 0),
        DeleteRecordsPartition(0, 0),
    ]
    (topic,) = host.call(ANN, DeleteRecordsRequest([DeleteRecordsTopic("t", rows)], 1000), 2).topics
    reported = {row.partition_index: row.error_code for row in topic.partitions}
    assert reported == {0: Code.NONE, 1: Code.NONE} and len(topic.partitions) == 2


def test_repeated_commits_of_a_partition_are_applied_in_order(host: Host) -> None:
    rows = [OffsetCommitRequestPartition(0, offset) for offset in range(3)]
    topics = [OffsetCommitRequestTopic("t", partitions=rows)]
    commit = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    answer = host.ask_and_wait(ANN, commit, 7)
    assert {row.error_code for row in answer.topics[0].partitions} == {Code.NONE}
    group = OffsetFetchRequestGroup("g", topics=None)
    answer = host.ask_and_wait(ANN, OffsetFetchRequest(groups=[group]), 8)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 2


@pytest.mark.parametrize("count", [2, 3000])
def test_a_partition_that_is_named_twice_has_its_error_in_requests_of_any_length(
    host: Host, count: int
) -> None:
    indexes = [0, *range(1, count), 0, 0]
    answer = host.ask_and_wait(ANN, offsets_request(indexes), 5)
    codes = {row.partition_index: row.error_code for row in answer.topics[0].partitions}
    assert codes[0] == Code.INVALID_REQUEST and codes[1] == Code.NONE
    assert len(codes) == count and Code.INVALID_REQUEST not in list(codes.values())[1:]


def test_a_resource_that_is_named_twice_is_not_changed_in_a_request_of_any_length(
    host: Host,
) -> None:
    def resource(name: str, value: str) -> AlterConfigsResource:
        return AlterConfigsResource(2, name, [AlterableConfig("retention.ms", 0, value)])

    many = [resource(name, "1") for name in names(300)]
    request = IncrementalAlterConfigsRequest([resource("t", "1"), *many, resource("t", "2")])
    answer = host.ask_and_wait(ANN, request, 1)
    codes = [row.error_code for row in answer.responses if row.resource_name == "t"]
    assert codes == [Code.INVALID_REQUEST] * 2
    topic = host.broker.metadata.topic("t")
    assert topic is not None and "retention.ms" not in topic.configs


def _shapes() -> Iterator[tuple[str, Shape]]:
    for name, shapes in SHAPES.items():
        for shape in shapes:
            if shape.repeats in (Repeats.ONCE, Repeats.LATEST):
                yield name, shape


@pytest.mark.parametrize(
    ("name", "shape"), list(_shapes()), ids=lambda one: one if isinstance(one, str) else ""
)
def test_elements_named_many_times_are_reduced_to_one(name: str, shape: Shape) -> None:
    """Each array that a shape covers, at any depth, gets equal elements, of which one must
    remain.
    """
    api = next(api for api in APIS if api.name == name)
    version = min(api.max_version, shape.last_version)
    paths = dict.fromkeys(array_paths(api, version))
    fields = tuple(level.rows for level in shape.levels)
    for depth in range(1, len(fields) + 1):
        assert fields[:depth] in paths, "the table names a list that requests do not have"
    for giant in giants(api, version, most_bytes=3000, kinds=("same",)):
        path = giant.name.split(" ")[2]
        if tuple(path.split(".")) not in [fields[:depth] for depth in range(1, len(fields) + 1)]:
            continue
        request = _read(api, version, giant)
        leave_out_repeats(request, shape)
        rows: Any = [request]
        for field in path.split("."):
            rows = [inner for row in rows for inner in getattr(row, field) or ()]
        assert len(rows) == 1, giant.name


def _read(api: Api, version: int, giant: Giant) -> Any:
    start = 11 + (version >= api.flexible_from)
    return request_class(api.name).read(giant.frame, start, version)[0]


# --- in parts -----------------------------------------------------------------------------------


def test_other_requests_are_served_between_the_parts_of_a_wide_request(host: Host) -> None:
    host.ask(ANN, offsets_request(list(range(2000))), 5)
    assert not host.answers[ANN]
    host.tick(0)
    answer = host.call(BOB, offsets_request([0]), 5)
    assert answer.topics[0].partitions[0].error_code == Code.NONE
    assert not host.answers[ANN]
    ticks = repeat_until(lambda: host.answers[ANN], lambda: host.tick(0))
    assert 9 <= ticks <= 12
    (topic,) = host.answers[ANN][-1].topics
    assert [row.partition_index for row in topic.partitions] == list(range(2000))
    assert [row.error_code for row in topic.partitions] == [Code.NONE] * 3 + [
        Code.UNKNOWN_TOPIC_OR_PARTITION
    ] * 1997


def test_wide_requests_take_turns(host: Host) -> None:
    host.ask(ANN, offsets_request(list(range(20_000))), 5)
    host.ask(BOB, offsets_request(list(range(1000))), 5)
    for _ in range(20):
        host.tick(0)
    assert host.answers[BOB] and not host.answers[ANN]


def test_a_wide_request_ends_when_its_client_disconnects(host: Host) -> None:
    host.ask(ANN, offsets_request(list(range(20_000))), 5)
    host.tick(0)
    host.broker.on_closed(ANN)
    assert host.broker.next_deadline_ms() != 0
    host.tick(0)
    host.connect(ANN)
    answer = host.call(ANN, offsets_request([0]), 5)
    assert answer.topics[0].partitions[0].error_code == Code.NONE


def test_denied_access_to_thousands_of_resources_is_answered_in_slices(guarded: Host) -> None:
    for request, version, field in (
        (DescribeGroupsRequest(groups=names(5000)), 5, "groups"),
        (
            CreateTopicsRequest([CreatableTopic(one, 1, 1) for one in names(5000)], 1000),
            7,
            "topics",
        ),
        (DeleteTopicsRequest([DeleteTopicState(one) for one in names(5000)]), 6, "responses"),
        (MetadataRequest([MetadataRequestTopic(None, one) for one in names(5000)]), 12, "topics"),
    ):
        guarded.ask(ANN, request, version)
        guarded.go_on()
        assert not guarded.answers[ANN], "it was done at once"
        repeat_until(lambda: guarded.answers[ANN], guarded.go_on)
        rows = getattr(guarded.answers[ANN].pop(), field)
        codes = {row.error_code for row in rows}
        # 29 and 30 are TOPIC_ and GROUP_AUTHORIZATION_FAILED
        assert len(rows) == 5000 and codes <= {29, 30}, codes


def test_allowed_topics_are_created_although_thousands_of_others_are_denied(guarded: Host) -> None:
    from barnabas.broker.security.stored import Acl

    acl = Acl(2, "n00000", 4, "User:ann", "*", 5, 3)  # CREATE on topics with this prefix
    assert guarded.parts.access.authorizer is not None
    guarded.parts.access.authorizer.add({uuid.uuid4(): acl})
    request = CreateTopicsRequest([CreatableTopic(one, 1, 1) for one in names(1200)], 1000)
    answer = guarded.ask_and_wait(ANN, request, 7)
    made = {row.name for row in answer.topics if row.error_code == Code.NONE}
    assert made == set(names(10)) and len(answer.topics) == 1200
    assert made <= set(guarded.broker.metadata.topics)
    hidden = {row.topic_config_error_code for row in answer.topics if row.name in made}
    assert hidden == {Code.TOPIC_AUTHORIZATION_FAILED}  # User:ann may not describe their settings


def test_metadata_of_many_topics_equals_that_of_few(host: Host) -> None:
    request = MetadataRequest(
        [MetadataRequestTopic(None, one) for one in ["t", *names(2000), "t"]],
        allow_auto_topic_creation=False,
    )
    answer = host.ask_and_wait(ANN, request, 9)
    assert [row.name for row in answer.topics] == ["t", *names(2000)]
    few = MetadataRequest([MetadataRequestTopic(None, "t")], allow_auto_topic_creation=False)
    assert answer.topics[0] == host.call(BOB, few, 9).topics[0]
    assert {row.error_code for row in answer.topics[1:]} == {Code.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_wide_metadata_request_creates_missing_topics(host: Host) -> None:
    request = MetadataRequest([MetadataRequestTopic(None, one) for one in names(700)])
    answer = host.ask_and_wait(ANN, request, 9)
    assert {row.error_code for row in answer.topics} == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert set(names(700)) <= set(host.broker.metadata.topics)


# --- bounds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", [api for api in APIS if api.key != 0], ids=lambda api: api.name)
def test_a_request_with_more_elements_than_its_row_allows_ends_its_connection(
    host: Host, api: Api
) -> None:
    """The test tries each array in the schema of the newest version, with 2 MiB of elements."""
    for giant in giants(api, api.max_version, kinds=(TOO_MANY,)):
        if giant.elements < api.most_elements:  # most rows allow 2 MiB of plain numbers
            continue
        host.connect(100)
        host.give(100, giant.frame)
        repeat_until(lambda: 100 in host.closed or host.answers[100], host.go_on)
        assert not host.answers[100]
        assert "has more elements in its lists" in host.closed.pop(100), giant.name


def test_the_element_limit_grows_with_the_maximum_request_size(tmp_path: Path) -> None:
    host = Host(tmp_path, barnabas_request_max_bytes=str(8 << 20))
    answer = host.ask_and_wait(ANN, FindCoordinatorRequest(coordinator_keys=[""] * 200_000), 4)
    assert len(answer.coordinators) == 1


def test_large_requests_that_clients_send_are_within_the_element_limits() -> None:
    """The requests are an OffsetCommit of 100,000 offsets, an OffsetFetch of 4,000 topics with 100
    partitions each, a Fetch of 60,000 partitions, and a DeleteTopics of 10,000 topics.
    """
    commits = [OffsetCommitRequestPartition(index, 1) for index in range(100_000)]
    some = [
        OffsetFetchRequestTopics(one, partition_indexes=list(range(100))) for one in names(4000)
    ]
    fetched = [FetchPartition(index) for index in range(60_000)]
    for request, version in (
        (
            OffsetCommitRequest(
                group_id="g", topics=[OffsetCommitRequestTopic("t", partitions=commits)]
            ),
            8,
        ),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=some)]), 8),
        (FetchRequest(topics=[FetchTopic("t", partitions=fetched)]), 12),
        (DeleteTopicsRequest([DeleteTopicState(one) for one in names(10_000)]), 6),
    ):
        api = BY_KEY[request.API_KEY]
        data = BoundedBytes(request.encode(version))
        data.elements_left = api.most_elements
        assert len(data) < 2 << 20
        assert read_request(api.name, data, 0, version)[0] == request, api.name
        data.elements_left = 10
        with pytest.raises(TooManyElementsError):
            read_request(api.name, data, 0, version)


def test_elements_beyond_the_maximum_response_size_are_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wide_requests, "MOST_ANSWER_BYTES", 20_000)
    resources = [DescribeConfigsResource(2, "t", ["retention.ms", one]) for one in names(3000)]
    with caplog.at_level(logging.WARNING):
        answer = host.ask_and_wait(ANN, DescribeConfigsRequest(resources=resources), 4)
    codes = [row.error_code for row in answer.results]
    assert len(codes) == 3000 and set(codes) == {Code.NONE, Code.POLICY_VIOLATION}
    assert codes == sorted(codes), "what comes after the bound alone is refused"
    assert "DescribeConfigs" in caplog.text and len(caplog.records) == 1


def test_large_requests_are_decoded_a_few_at_a_time_and_their_memory_is_counted(
    host: Host,
) -> None:
    request = FindCoordinatorRequest(coordinator_keys=names(20_000))
    for connection in range(100, 110):
        host.connect(connection)
        host.ask(connection, request, 4)
    assert len(host.work) == PLACES - 1  # the last place is for another owner
    held = host.broker.outbox.held_bytes
    # at least eight bytes for each of the 20,000 keys of each request
    assert held > 10 * 8 * 20_000
    host.broker.on_closed(109)  # its request waits
    host.broker.on_closed(100)  # the request of this connection is being decoded
    assert host.broker.outbox.held_bytes < held
    repeat_until(
        lambda: all(host.answers[connection] for connection in range(101, 109)), host.go_on
    )
    assert host.broker.outbox.held_bytes == 0
    assert len(host.answers[105][0].coordinators) == 20_000


def test_each_of_many_large_requests_with_few_names_is_answered(host: Host) -> None:
    """Such requests are not handled in parts. Each must free its place among the requests that may
    be decoded at the same time.
    """
    request = FindCoordinatorRequest(coordinator_keys=["x" * 20_000, "y" * 20_000])
    for connection in range(100, 100 + 2 * PLACES):
        host.connect(connection)
        assert len(host.ask_and_wait(connection, request, 4).coordinators) == 2
    assert host.broker.outbox.held_bytes == 0


# --- the pieces ---------------------------------------------------------------------------------


def test_the_parts_of_a_request_have_each_row_once_and_the_levels_that_continue() -> None:
    """A request is split into parts of at most ten elements. `continued` is the number of levels
    (group, topic) at which a part continues the row of the part before it.
    """
    shape = shape_of(SHAPES["OffsetFetch"], 8)
    assert shape is not None
    groups = [
        OffsetFetchRequestGroup("a", topics=None),
        OffsetFetchRequestGroup(
            "b",
            topics=[
                OffsetFetchRequestTopics("t", partition_indexes=list(range(25))),
                OffsetFetchRequestTopics("u", partition_indexes=[1]),
            ],
        ),
        OffsetFetchRequestGroup("c", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])]),
    ]
    parts = list(parts_of(groups, shape.levels, 10))
    reported = [
        (
            [
                (
                    group.group_id,
                    [(topic.name, topic.partition_indexes) for topic in group.topics or ()],
                )
                for group in rows
            ],
            continued,
        )
        for rows, continued in parts
    ]
    assert reported == [
        ([("a", [])], 0),
        ([("b", [("t", list(range(10)))])], 0),
        ([("b", [("t", list(range(10, 20)))])], 2),
        ([("b", [("t", list(range(20, 25)))])], 2),
        ([("b", [("u", [1])])], 1),
        ([("c", [("t", [0])])], 0),
    ]
    assert parts[0][0][0].topics is None


def test_a_response_collected_from_parts_is_encoded_as_a_whole_one() -> None:
    from barnabas.protocol.messages import offset_fetch as messages

    def group(name: str, *topics: tuple[str, list[int]]) -> messages.OffsetFetchResponseGroup:
        return messages.OffsetFetchResponseGroup(
            name,
            [
                messages.OffsetFetchResponseTopics(
                    topic,
                    partitions=[messages.OffsetFetchResponsePartitions(index) for index in indexes],
                )
                for topic, indexes in topics
            ],
        )

    def response(*groups: Any) -> messages.OffsetFetchResponse:
        return messages.OffsetFetchResponse(groups=list(groups))

    shape = shape_of(SHAPES["OffsetFetch"], 8)
    assert shape is not None
    collected = CollectedAnswer(shape.levels, 8)
    collected.add(response(group("a"), group("b", ("t", [0, 1]))), 0)
    collected.add(response(group("b", ("t", [2]))), 2)
    collected.add(response(group("b", ("u", [3])), group("c", ("t", [4]))), 1)
    whole = response(group("a"), group("b", ("t", [0, 1, 2]), ("u", [3])), group("c", ("t", [4])))
    expected = whole.encode(8)
    assert collected.whole().encode(8) == expected


def test_a_response_collected_from_parts_has_the_error_of_any_part() -> None:
    from barnabas.protocol.messages.elect_leaders import ElectLeadersResponse, ReplicaElectionResult

    shape = shape_of(SHAPES["ElectLeaders"], 2)
    assert shape is not None
    collected = CollectedAnswer(shape.levels, 2)
    collected.add(
        ElectLeadersResponse(replica_election_results=[ReplicaElectionResult("t", [])]), 0
    )
    collected.add(ElectLeadersResponse(error_code=41), 0)
    answer: Any = collected.whole()
    assert answer.error_code == 41 and len(answer.replica_election_results) == 1


def test_rows_that_are_already_encoded_are_written_like_a_list() -> None:
    rows = EncodedRows()
    assert len(rows) == 0 and list(rows) == []
    topics = [DeleteTopicState("a"), DeleteTopicState("b")]
    rows.add(topics[:1], 6)
    rows.add(topics[1:], 6)
    expected = DeleteTopicsRequest(topics=topics).encode(6)
    assert DeleteTopicsRequest(topics=rows).encode(6) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("is_first_encoded", [False, True])
@pytest.mark.parametrize("is_second_encoded", [False, True])
def test_rows_that_are_joined_keep_their_order(
    is_first_encoded: bool, is_second_encoded: bool
) -> None:
    topics = [DeleteTopicState(name) for name in "abc"]

    def rows_of(some: list[DeleteTopicState], is_encoded: bool) -> Any:
        rows = EncodedRows()
        rows.add(some, 6)
        return rows if is_encoded else list(some)

    joined = DeleteTopicsRequest(topics=rows_of(topics[:2], is_first_encoded))
    join_rows(joined, "topics", rows_of(topics[2:], is_second_encoded), 6)
    assert joined.encode(6) == DeleteTopicsRequest(topics=topics).encode(6)


def test_add_partitions_to_txn_with_too_many_elements_closes_the_connection(host: Host) -> None:
    topics = [AddPartitionsToTxnTopic("t", [0])] * (BY_KEY[24].most_elements + 1)
    host.ask(ANN, AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x", v3_and_below_topics=topics), 3)  # fmt: skip
    host.go_on()
    assert "has more elements in its lists" in host.closed[ANN]
