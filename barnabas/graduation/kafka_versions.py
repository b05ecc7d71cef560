"""The differences between the versions of Apache Kafka to which a directory can be handed over.

Source: the versions' own feature levels and configuration references; KIP-724 (message formats
before v2 were removed), KIP-1030 (changed defaults and bounds).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.broker.settings.features import (
    GROUP_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
)

_MIB, _HOUR_MS = 1 << 20, 3_600_000
METADATA_VERSION = "metadata.version"
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
_OURS = (TRANSACTION_VERSION, GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION)
_OF_BARNABAS = frozenset({"barnabas.transactions.whole"})
_GONE_IN_4 = _OF_BARNABAS | frozenset({
    "message.format.version", "message.downconversion.enable",
    "message.timestamp.difference.max.ms",
})  # fmt: skip


class KafkaVersion(NamedTuple):
    """One version of Kafka.

    features: the feature levels of a new cluster. topic_defaults: the defaults of topic settings
    that differ from ours, as typed values. gone: the topic settings that this version does not
    know. lowest_segment_bytes: the lowest valid segment.bytes. own_topics: settings for internal
    topics that only Kafka has. By default these topics need three brokers; with these settings one
    suffices.
    """

    name: str
    features: Mapping[str, int]
    topic_defaults: Mapping[str, Any]
    gone: frozenset[str]
    lowest_segment_bytes: int
    own_topics: Mapping[str, str]

    @property
    def is_before_4(self) -> bool:
        """Whether groups of the consumer protocol have to be enabled by a setting."""
        return self.name.startswith("3.")

    @property
    def has_share_groups(self) -> bool:
        """Whether this version has the internal topic of share groups."""
        return "share.coordinator.state.topic.min.isr" in self.own_topics

    def feature_levels(self, ours: Mapping[str, int]) -> dict[str, int]:
        """The feature levels for a cluster in which `ours` are finalised, limited to the levels of
        this version.
        """
        levels = {
            name: min(level, ours.get(name, level)) if name in _OURS else level
            for name, level in self.features.items()
        }
        return {name: level for name, level in levels.items() if level > 0}


_KAFKA_4_DEFAULTS = {"message.timestamp.after.max.ms": _HOUR_MS}
# Settings for the internal topics of tiered storage (KIP-405) and share groups (KIP-932). The
# minimum of in-sync replicas of __remote_log_metadata came with 4.3.
_TIERED = {"rlmm.config.remote.log.metadata.topic.replication.factor": "1"}
_TIERED_AND_SHARED = {
    **_TIERED,
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
KAFKA_VERSIONS = {
    version.name: version
    for version in (
        KafkaVersion(
            "3.9",
            {METADATA_VERSION: 21},
            {},
            _OF_BARNABAS | {"message.format.version"},
            14,
            _TIERED,
        ),
        KafkaVersion(
            "4.0",
            {METADATA_VERSION: 25, GROUP_VERSION: 1, TRANSACTION_VERSION: 2},
            _KAFKA_4_DEFAULTS,
            _GONE_IN_4,
            _MIB,
            _TIERED_AND_SHARED,
        ),
        KafkaVersion(
            "4.3",
            {
                METADATA_VERSION: 30,
                ELIGIBLE_LEADER_REPLICAS: 1,
                GROUP_VERSION: 1,
                SHARE_VERSION: 1,
                STREAMS_VERSION: 1,
                TRANSACTION_VERSION: 2,
            },
            _KAFKA_4_DEFAULTS,
            _GONE_IN_4,
            _MIB,
            {**_TIERED_AND_SHARED, "rlmm.config.remote.log.metadata.topic.min.isr": "1"},
        ),
    )
}
