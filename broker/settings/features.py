"""Features of the cluster (KIP-584): the versions that this broker supports, and the finalised
levels.

A client gets both from ApiVersions, and uses the finalised levels: with `transaction.version` at 2,
it uses the second version of the transaction protocol (KIP-890). The level of a feature comes from
the first of three places that contains one: the setting `barnabas.features`; the metadata journal,
in which UpdateFeatures stores levels; the table. The journal stores the levels with an epoch that
rises with each change, since a client uses the response with the highest epoch.

| feature | level | effect |
|---|---|---|
| transaction.version | 0 | the transaction log as before Apache Kafka 3.8 |
| | 1 | the transaction log's records have tagged fields |
| | 2 | an epoch for each transaction, partitions added by writing to them (KIP-890) |
| group.version | 0 | only classic groups |
| | 1 | also groups of the consumer protocol (KIP-848) |
| share.version | 0 | no share groups |
| | 1 | share groups (KIP-932) |
| streams.version | 0 | no streams groups |
| | 1 | streams groups (KIP-1071) |
| metadata.version | 7 to 30 | none: it describes Apache Kafka's metadata log (3.3 to 4.3) |

The supported features depend on the release (`releases.py`), since a broker may emulate another
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from barnabas.broker.security.stored import ScramNonces
from barnabas.protocol.api import Api
from barnabas.protocol.api_table import BY_KEY

TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
METADATA_VERSION = "metadata.version"
READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 6, 8, 10, 11  # AclOperation


class Feature(NamedTuple):
    """A feature, which is one row of the table.

    default_level: the finalised level if no setting and no update has set another one. A feature at
    level 0 is not listed.
    """

    name: str
    min_version: int
    max_version: int
    default_level: int


FEATURES = (
    Feature(TRANSACTION_VERSION, 0, 2, 2),
    Feature(GROUP_VERSION, 0, 1, 1),
    Feature(SHARE_VERSION, 0, 1, 1),
    Feature(STREAMS_VERSION, 0, 1, 1),
    Feature(METADATA_VERSION, 7, 30, 30),
)

LEVELS = tuple(
    f"{feature.name}={level}"
    for feature in FEATURES
    for level in range(feature.min_version, feature.max_version + 1)
    if feature.name != METADATA_VERSION
)
"""Every `name=level` that the setting `barnabas.features` may have."""


def operations(*numbers: int) -> int:
    """A bit set of AclOperations."""
    return sum(1 << number for number in numbers)


class Release(NamedTuple):
    """The release that clients see, which is a column of the table in `releases.py`.

    apis: the supported requests, by API key. features: the supported features, with their default
    levels. group_operations: a bit set of the AclOperations that apply to a group.
    names_doubled_offsets: if a ListOffsets request names a partition several times, whether the
    response names it as often. fewest_segment_bytes: the minimum of segment.bytes. kept_defaults:
    settings of the broker that the cluster stores as dynamic defaults. has_group_preview: whether
    groups of the consumer protocol are those of 3.9, which `group.coordinator.rebalance.protocols`
    enables. scram_nonces: which nonces the final message of a SCRAM login may have
    (`ScramNonces`). assigns_emptied_groups: whether the assignment epoch of a group without members
    is that of the group (KAFKA-20442). defaults: defaults of the broker's settings that differ from
    the table. absent: the settings of topics and brokers that the release does not have.
    """

    name: str
    apis: Mapping[int, Api]
    features: tuple[Feature, ...]
    group_operations: int
    names_doubled_offsets: bool
    fewest_segment_bytes: int
    kept_defaults: tuple[str, ...]
    has_group_preview: bool
    scram_nonces: ScramNonces
    assigns_emptied_groups: bool
    defaults: Mapping[str, str]
    absent: frozenset[str]


TODAY = Release(
    name="",
    apis=BY_KEY,
    features=FEATURES,
    group_operations=operations(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    names_doubled_offsets=False,
    fewest_segment_bytes=14,
    kept_defaults=(),
    has_group_preview=False,
    scram_nonces="or repeated",
    assigns_emptied_groups=True,
    defaults={},
    absent=frozenset(),
)

EMULATED = ("3.9", "4.3")
"""The allowed values of `barnabas.emulate`."""


def release_of(name: str) -> Release:
    """The release of that name, to be emulated; TODAY if the name is empty. Raises: KeyError."""
    if not name:
        return TODAY
    from barnabas.broker.settings.releases import emulated

    return emulated(name)


class FeatureJournal(Protocol):
    """Where the levels of features are stored: `ClusterMetadata` in `broker/logs/metadata.py`."""

    feature_levels: dict[str, int]
    updated_features: dict[str, int]
    features_epoch: int

    def set_features(self, levels: Mapping[str, int], updated: Mapping[str, int]) -> None: ...


class FinalizedFeatures(NamedTuple):
    """The finalised levels. epoch: a number that rises with each change. supported: the features
    that this broker supports.
    """

    levels: Mapping[str, int]
    epoch: int
    supported: tuple[Feature, ...] = FEATURES

    def level(self, name: str) -> int:
        return self.levels.get(name, 0)


def levels_of(
    settings: Iterable[str],
    updated: Mapping[str, int] | None = None,
    supported: Iterable[Feature] = FEATURES,
) -> dict[str, int]:
    """The level of each supported feature. Unsupported features are skipped.

    Takes:  settings, as `name=level`; updated, the levels that UpdateFeatures has set.
    """
    named = dict(updated or {})
    for setting in settings:
        name, _, text = setting.partition("=")
        named[name] = int(text)
    levels = {}
    for feature in supported:
        level = named.get(feature.name, feature.default_level)
        is_supported = feature.min_version <= level <= feature.max_version
        levels[feature.name] = level if is_supported else feature.default_level
    return levels


def finalize(
    journal: FeatureJournal,
    levels: Mapping[str, int],
    supported: tuple[Feature, ...] = FEATURES,
    updated: Mapping[str, int] | None = None,
) -> FinalizedFeatures:
    """Finalise these levels. If they have changed, they are stored.

    Takes: updated, the levels that UpdateFeatures has set; None if they are unchanged.
    """
    if updated is None:
        updated = journal.updated_features
    if journal.feature_levels != levels or journal.updated_features != updated:
        journal.set_features(levels, updated)
    return FinalizedFeatures(journal.feature_levels, journal.features_epoch, supported)
