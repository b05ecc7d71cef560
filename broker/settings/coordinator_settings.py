"""The settings of the coordinators, made from the broker's settings."""

from __future__ import annotations

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.features import TRANSACTION_VERSION, FinalizedFeatures
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.share.share_group_settings import ShareGroupSettings
from barnabas.coordinator.groups.streams.streams_group_settings import StreamsGroupSettings
from barnabas.coordinator.transactions.transaction_table import TxnSettings


def transaction_settings(config: BrokerConfig, features: FinalizedFeatures) -> TxnSettings:
    """The settings of transactions, including the finalised level of `transaction.version`."""
    return TxnSettings(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        transaction_version=features.level(TRANSACTION_VERSION),
        two_phase_commit_enable=config.transaction_two_phase_commit_enable,
        is_durable=config.barnabas_transaction_durability == "flush",
    )


def consumer_group_settings(config: BrokerConfig) -> ConsumerGroupSettings:
    """The settings of groups of the consumer protocol (KIP-848)."""
    return ConsumerGroupSettings(
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        max_size=config.group_consumer_max_size,
        assignors=config.group_consumer_assignors,
        migration_policy=config.group_consumer_migration_policy,
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        is_preview=config.release.has_group_preview,
        assigns_emptied=config.release.assigns_emptied_groups,
    )


def share_group_settings(config: BrokerConfig) -> ShareGroupSettings:
    """The settings of share groups (KIP-932) that cannot be set for a single group."""
    return ShareGroupSettings(
        max_size=config.group_share_max_size,
        initialize_retry_interval_ms=config.group_share_initialize_retry_interval_ms,
        assigns_emptied=config.release.assigns_emptied_groups,
    )


def streams_group_settings(config: BrokerConfig) -> StreamsGroupSettings:
    """The settings of streams groups (KIP-1071) that cannot be set for a single group."""
    return StreamsGroupSettings(
        max_size=config.group_streams_max_size,
        assigns_emptied=config.release.assigns_emptied_groups,
    )


def group_settings(config: BrokerConfig) -> GroupSettings:
    """The settings that apply to all types of groups, and those of classic groups."""
    return GroupSettings(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        offset_metadata_max_size=config.offset_metadata_max_bytes,
        max_record_bytes=config.message_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        group_operations=config.release.group_operations,
    )
