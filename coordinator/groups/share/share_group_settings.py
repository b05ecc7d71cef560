"""The broker's settings for share groups (KIP-932) that cannot be set for a single group."""

from __future__ import annotations

from typing import NamedTuple


class ShareGroupSettings(NamedTuple):
    """The settings, each with Kafka's name in its comment."""

    max_size: int = 200  # group.share.max.size
    initialize_retry_interval_ms: int = 30_000  # group.share.initialize.retry.interval.ms
    assigns_emptied: bool = True  # not while a release is emulated (KAFKA-20442)
