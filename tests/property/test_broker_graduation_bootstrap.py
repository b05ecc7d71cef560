"""The file `bootstrap.checkpoint` of a random cluster. The broker's reader of Kafka's metadata
finds the journal's whole contents in it, the conversion back gives the same journal, and its
batches have the format of a file that Apache Kafka wrote.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from helpers.admin_host import NOW_MS
from helpers.examples import drawn
from helpers.graduation import new_disk
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.security.stored import Acl, ScramCredential
from barnabas.broker.settings.config import BrokerConfig
from barnabas.graduation.bootstrap import ClusterImage, encode_bootstrap, read_bootstrap
from barnabas.graduation.bring_back import _Merge
from barnabas.graduation.hand_over import HandOver
from barnabas.graduation.kafka_versions import KAFKA_VERSIONS
from barnabas.graduation.survey import Survey
from barnabas.protocol.records import batches_in, computed_crc, records_of

KAFKAS = Path(__file__).parent.parent / "fixtures" / "kafka-metadata" / "bootstrap.checkpoint"
NODE_ID = 7
DIRECTORY_ID = "AAAAAAAAAAAAAAAAAAAABQ"
NAMES = st.text("abc.-_", min_size=1, max_size=6)
TEXTS = st.text(max_size=20)
BLOBS = st.binary(min_size=1, max_size=64)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "retention.ms": st.integers(-1, 2**62).map(str),
        "cleanup.policy": st.sampled_from(["delete", "compact", "compact,delete"]),
    },
)
ACLS = st.builds(
    Acl, st.integers(2, 7), TEXTS, st.integers(3, 4), TEXTS, TEXTS, st.integers(2, 15),
    st.integers(2, 3),
)  # fmt: skip
ENTITIES = st.dictionaries(
    st.sampled_from(["user", "client-id", "ip"]), st.none() | TEXTS, min_size=1
).map(lambda entity: tuple(sorted(entity.items())))
QUOTAS = st.dictionaries(TEXTS, st.floats(0.001, 1e12), min_size=1, max_size=3)
CREDENTIALS = st.builds(ScramCredential, BLOBS, BLOBS, BLOBS, st.integers(4096, 16384))
USERS = st.tuples(TEXTS, st.sampled_from([1, 2]))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[ClusterMetadata, dict[str, tuple[int, ...]]]:
    """A journal of a random cluster, and the leader epochs of its partitions."""
    disk = new_disk()
    disk.mkdir("/data")
    metadata = ClusterMetadata(disk, "/data/journal")
    epochs = {}
    for number, name in enumerate(draw(st.sets(NAMES, max_size=4))):
        own = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4))
        metadata.create_topic(name, uuid.UUID(int=number + 1), len(own), draw(CONFIGS))
        epochs[name] = tuple(own)
    metadata.add_acls(draw(st.dictionaries(st.uuids(), ACLS, max_size=3)))
    metadata.set_client_quotas(draw(st.dictionaries(ENTITIES, QUOTAS, max_size=3)))
    metadata.set_scram_credentials(draw(st.dictionaries(USERS, CREDENTIALS, max_size=3)))
    for name in draw(st.sets(NAMES, max_size=2)):
        metadata.set_group_configs(name, {"consumer.session.timeout.ms": "50000"})
        metadata.set_client_metrics(name, {"interval.ms": "1000"})
    metadata.set_broker_configs({"log.retention.ms": "77"})
    metadata.set_next_producer_id(draw(st.integers(1, 2**61)))
    return metadata, epochs


def planned(metadata: ClusterMetadata, epochs: dict[str, tuple[int, ...]]) -> HandOver:
    """The plan for handing over a directory with this journal."""
    survey = Survey(
        "/data", NODE_ID, "id", DIRECTORY_ID, metadata, epochs, metadata.next_producer_id
    )
    return HandOver(
        survey,
        KAFKA_VERSIONS["4.3"],
        {topic.name: topic.configs for topic in survey.topics},
        metadata.broker_configs,
        {"log.cleaner.backoff.ms": "1"},
        dict(metadata.scram_credentials),
        dict(KAFKA_VERSIONS["4.3"].features),
    )


def read_back(plan: HandOver) -> tuple[bytes, ClusterImage]:
    """The bytes of the bootstrap checkpoint, and what the broker's reader decodes from them."""
    data = encode_bootstrap(plan, NOW_MS)
    disk = new_disk()
    disk.mkdir("/data")
    disk.write_atomic("/data/b", data)
    return data, read_bootstrap(disk, "/data/b")


def state(metadata: ClusterMetadata) -> dict[str, Any]:
    """The contents of a journal as plain values."""
    return {
        "topics": {
            topic.name: (topic.topic_id, topic.partition_count, topic.configs)
            for topic in metadata.topics.values()
        },
        "configs": (metadata.broker_configs, metadata.group_configs, metadata.client_metrics),
        "users": metadata.scram_credentials,
        "acls": metadata.acls,
        "quotas": metadata.client_quotas,
        "producer id": metadata.next_producer_id,
    }


@settings(max_examples=drawn(40))
@given(clusters())
def test_the_bootstrap_checkpoint_has_the_whole_cluster_and_converts_back(
    cluster: tuple[ClusterMetadata, dict[str, tuple[int, ...]]],
) -> None:
    metadata, epochs = cluster
    plan = planned(metadata, epochs)
    data, image = read_back(plan)
    assert image.features == plan.features
    for name, own in epochs.items():
        partitions = image.partitions[image.topic_ids[name]]
        assert [partitions[index].leader_epoch for index in range(len(own))] == list(own)
        assert {(state.replicas, state.isr, state.leader) for state in partitions.values()} == {
            ((NODE_ID,), (NODE_ID,), NODE_ID)
        }
    assert image.broker_default_configs() == {"log.cleaner.backoff.ms": "1"}
    disk = new_disk()
    disk.mkdir("/data")
    back = ClusterMetadata(disk, "/data/journal")
    _Merge(back, image, None, NODE_ID, BrokerConfig.from_properties({})).run()
    assert state(back) == state(metadata)
    before = state(metadata)
    report = _Merge(metadata, image, image, NODE_ID, BrokerConfig.from_properties({})).run()
    assert (report.made, report.deleted, report.configured) == ([], [], [])
    # Merging an image that Kafka has not changed must not change the journal.
    assert state(metadata) == before
    check_batches(data)


def check_batches(data: bytes) -> None:
    """Check that offsets increase from 0, and that the first and the last batch have only control
    records.
    """
    batches = list(batches_in(data))
    offset = 0
    for position, header in batches:
        batch = memoryview(data)[position : position + header.size_bytes]
        assert (header.base_offset, header.leader_epoch) == (offset, 0)
        assert computed_crc(batch) == header.crc
        offset = header.next_offset
    assert [header.is_control for _, header in batches] == [
        at in (0, len(batches) - 1) for at in range(len(batches))
    ]
    assert batches[-1][0] + batches[-1][1].size_bytes == len(data)


def test_the_bootstrap_checkpoint_has_the_format_of_one_that_apache_kafka_wrote() -> None:
    disk = new_disk()
    disk.mkdir("/data")
    ours, _ = read_back(planned(ClusterMetadata(disk, "/data/journal"), {}))
    kafkas = KAFKAS.read_bytes()
    check_batches(kafkas)
    for data in (ours, kafkas):
        batches = list(batches_in(data))
        # The control records of a snapshot: the header (3) is first, and the footer (4) is last.
        for at, key, size in ((0, b"\0\0\0\3", 11), (-1, b"\0\0\0\4", 3)):
            position, header = batches[at]
            (record,) = records_of(memoryview(data)[position : position + header.size_bytes])
            assert (record.key, len(record.value or b"")) == (key, size)
        position, header = batches[1]
        first, *_ = records_of(memoryview(data)[position : position + header.size_bytes])
        assert first.key is None
        assert bytes(first.value or b"")[:3] == b"\1\x0c\0"  # frame 1, FeatureLevel, version 0
