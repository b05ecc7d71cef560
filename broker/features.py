"""Features of the cluster (KIP-584): which versions this broker supports, and which are finalised.

A client asks for them with ApiVersions, and speaks what is finalised: with `transaction.version` at
2 the second version of the transaction protocol (KIP-890). The levels are the settings'; the
metadata journal keeps them with an epoch that rises when they change, since a client believes the
answer with the highest epoch.

| feature | level | what it brings |
|---|---|---|
| transaction.version | 0 | the transaction log as before Apache Kafka 3.8 |
| | 1 | the transaction log's records have tagged fields |
| | 2 | an epoch for each transaction, partitions added by writing to them (KIP-890) |
| group.version | 0 | classic groups alone |
| | 1 | groups of the consumer protocol, too (KIP-848) |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.broker.metadata import ClusterMetadata

TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"


class Feature(NamedTuple):
    """One row. default_level: what is finalised unless a setting says otherwise; 0 is not told."""

    name: str
    min_version: int
    max_version: int
    default_level: int


FEATURES = (Feature(TRANSACTION_VERSION, 0, 2, 2), Feature(GROUP_VERSION, 0, 1, 1))

LEVELS = tuple(
    f"{feature.name}={level}"
    for feature in FEATURES
    for level in range(feature.min_version, feature.max_version + 1)
)
"""Every `name=level` that the setting `barnabas.features` may have."""


class FinalizedFeatures(NamedTuple):
    """The levels that hold. epoch: it rises with each change of them."""

    levels: Mapping[str, int]
    epoch: int

    def level(self, name: str) -> int:
        return self.levels.get(name, 0)


def levels_of(settings: Iterable[str]) -> dict[str, int]:
    """The level of each feature: its default, but for those in `settings` (`name=level`)."""
    levels = {feature.name: feature.default_level for feature in FEATURES}
    for setting in settings:
        name, _, level = setting.partition("=")
        levels[name] = int(level)
    return levels


def finalize(metadata: ClusterMetadata, levels: Mapping[str, int]) -> FinalizedFeatures:
    """Let these levels hold; they are kept if they are others than before."""
    if metadata.feature_levels != levels:
        metadata.set_features(levels)
    return FinalizedFeatures(metadata.feature_levels, metadata.features_epoch)
