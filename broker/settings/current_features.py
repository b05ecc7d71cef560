"""The finalised levels of features, and the callbacks that run when the levels change."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.features import (
    GROUP_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    FeatureJournal,
    FinalizedFeatures,
    finalize,
    levels_of,
)


class CurrentFeatures:
    """The current levels of features.

    finalized: the finalised levels. on_updated: functions that are called after each change of a
    level.
    """

    def __init__(self, config: BrokerConfig, journal: FeatureJournal) -> None:
        """Finalize the features: the levels of the settings and of UpdateFeatures requests, within
        those that the emulated release supports.
        """
        self._config, self._journal = config, journal
        supported = config.release.features
        levels = levels_of(config.barnabas_features, journal.updated_features, supported)
        self.finalized: FinalizedFeatures = finalize(journal, levels, supported)
        self.on_updated: list[Callable[[], None]] = []

    @property
    def speaks_consumer_groups(self) -> bool:
        """Whether groups of the consumer protocol are enabled (KIP-848)."""
        if self._config.release.has_group_preview:
            return "consumer" in self._config.group_coordinator_rebalance_protocols
        return self.finalized.level(GROUP_VERSION) > 0

    @property
    def speaks_share_groups(self) -> bool:
        """Whether share groups are enabled (KIP-932)."""
        return self.finalized.level(SHARE_VERSION) > 0

    @property
    def speaks_streams_groups(self) -> bool:
        """Whether streams groups are enabled (KIP-1071)."""
        return self.finalized.level(STREAMS_VERSION) > 0

    def update(self, updated: Mapping[str, int]) -> None:
        """Set the levels of the given features. Other features keep their levels."""
        self.finalized = finalize(
            self._journal,
            {**self.finalized.levels, **updated},
            self.finalized.supported,
            {**self._journal.updated_features, **updated},
        )
        for call in self.on_updated:
            call()
