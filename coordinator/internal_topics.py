"""The names of the internal topics, which store the state of the coordinators."""

from collections.abc import Mapping

OFFSETS_TOPIC = "__consumer_offsets"
"""Stores groups and their committed offsets."""

TRANSACTIONS_TOPIC = "__transaction_state"
"""Stores transactional ids."""

SHARE_STATE_TOPIC = "__share_group_state"
"""Stores the states of share partitions (KIP-932)."""

INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC)

_COMPACTED = {"cleanup.policy": "compact"}
RETENTION_CONFIGS: Mapping[str, Mapping[str, str]] = {
    OFFSETS_TOPIC: _COMPACTED,
    TRANSACTIONS_TOPIC: _COMPACTED,
    # the share coordinator itself deletes records that later records replace
    SHARE_STATE_TOPIC: {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
}
"""The settings of each topic by which its records are deleted, in the broker that leads it."""
