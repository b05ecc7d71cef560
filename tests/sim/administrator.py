"""An administrator that adds partitions to topics, deletes topics and creates them again, and
deletes records, while other clients work.
"""

from __future__ import annotations

from typing import Any

from checkers import NEVER_MS, Deletion, Life, Partition

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from sim import wire
from sim.clients import Asking, Client, name_of
from sim.network import LOST

GIVING_UP = 0.4
MOST_PARTITIONS = 4


class Administrator(Client):
    """An administrator with one task and its own connection. If a request gets no response, it is
    sent again, as Kafka's tools do.
    """

    def __init__(self, world: Any) -> None:
        super().__init__(world, "admin")

    def delete_records(self, partition: Partition, offset: int) -> Asking:
        """Raise the start of a log once."""
        rows = [
            DeleteRecordsTopic(
                name=partition[0],
                partitions=[DeleteRecordsPartition(partition_index=partition[1], offset=offset)],
            )
        ]
        asked = self.world.history.deletions_asked
        asked[partition] = max(asked.get(partition, 0), offset)
        answer = yield from self.ask(
            wire.request(DeleteRecordsRequest(topics=rows, timeout_ms=1000), 2)
        )
        self.hang_up()
        if answer is not LOST and answer.topics[0].partitions[0].error_code == 0:
            found = answer.topics[0].partitions[0]
            self.world.history.deletions.append(
                Deletion(partition, found.low_watermark, self.world.loop.now_ms)
            )

    def let_grow(self, topic: str) -> Asking:
        """Add partitions to a topic once or twice."""
        for _ in range(self.rng.randint(1, 2)):
            yield self.rng.randint(100, 1200)
            count = self.world.scenario.topics[topic] + self.rng.randint(1, 2)
            if self.world.is_draining or count > MOST_PARTITIONS:
                break
            call = wire.request(
                CreatePartitionsRequest(
                    topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
                    timeout_ms=1000,
                    validate_only=False,
                ),
                2,
            )
            yield from self._until(call, done_already=Code.INVALID_PARTITIONS)
            self.world.set_partition_count(topic, count)
        self.hang_up()

    def remake(self, topic: str, times: int) -> Asking:
        """Delete a topic and create it again, a few times, with a random number of partitions."""
        for _ in range(times):
            yield self.rng.randint(200, 1200)
            if self.world.is_draining:
                break
            if (yield from self._delete(topic)):
                yield self.rng.choice((0, 0, 20, 300))
                yield from self._make(topic, self.rng.randint(1, 2))
                self.world.seen.add("a topic was made again")
        self.hang_up()

    def _delete(self, topic: str) -> Asking:
        """Delete the topic. Return False if it was not deleted and continues to exist."""
        life = self.world.history.lives[topic][-1]
        life.asked_ms = self.world.loop.now_ms
        call = wire.request(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 3)
        while True:
            answer = yield from self.ask(call)
            if answer is not LOST and answer.responses[0].error_code != Code.KAFKA_STORAGE_ERROR:
                self._check(
                    "DeleteTopics",
                    answer.responses[0].error_code,
                    Code.UNKNOWN_TOPIC_OR_PARTITION if self.lost else 0,
                )
                return True
            yield self.rng.randint(5, 100)
            if self.rng.random() < GIVING_UP and (yield from self._is_there(topic)):
                life.asked_ms = NEVER_MS
                return False

    def _is_there(self, topic: str) -> Asking:
        call = wire.request(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
            ),
            5,
        )
        answer = yield from self.insist(call, lambda _: 0)
        return answer.topics[0].error_code == 0

    def _make(self, topic: str, count: int) -> Asking:
        """Create the topic, and record that a new life of it begins."""
        world = self.world
        configs = [
            CreatableTopicConfig(name=name, value=value)
            for name, value in world.scenario.topic_configs[topic].items()
        ]
        rows = [
            CreatableTopic(
                name=topic,
                num_partitions=count,
                replication_factor=1,
                assignments=[],
                configs=configs,
            )
        ]
        call = wire.request(
            CreateTopicsRequest(topics=rows, timeout_ms=1000, validate_only=False), 4
        )
        yield from self._until(call, done_already=Code.TOPIC_ALREADY_EXISTS)
        world.history.lives[topic].append(Life(world.loop.now_ms))
        world.set_partition_count(topic, count)

    def _until(self, call: wire.Call, *, done_already: int) -> Asking:
        """Repeat the request until it gets a response and the disk has space. done_already: the
        error that is correct if an earlier attempt was carried out and its response lost.
        """
        lost_before = self.lost
        while (code := (yield from self._code(call))) in (None, Code.KAFKA_STORAGE_ERROR):
            yield self.rng.randint(5, 100)
        self._check(call.name, code, done_already if self.lost > lost_before else 0)

    def _code(self, call: wire.Call) -> Asking:
        """The error code of the request's only topic; None if the response was lost."""
        answer = yield from self.ask(call)
        if answer is LOST:
            return None
        rows = answer.topics if call.name == "CreateTopics" else answer.results
        return rows[0].error_code

    def _check(self, name: str, code: int, done_already: int) -> None:
        if code not in (0, done_already):
            self.world.history.incident("refused", f"{self.name}: {name}: {name_of(code)}")
