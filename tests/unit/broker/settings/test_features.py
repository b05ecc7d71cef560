"""The levels of features, and the epoch that increases with each change of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.features import TRANSACTION_VERSION, finalize, levels_of
from barnabas.broker.settings.setting import ConfigError
from barnabas.storage.disk import OsDisk


def test_a_setting_overrules_the_default_of_its_feature() -> None:
    config = BrokerConfig.from_properties({"barnabas.features": "transaction.version=1"})
    assert levels_of(config.barnabas_features)[TRANSACTION_VERSION] == 1


@pytest.mark.parametrize(
    "text", ["transaction.version=3", "transaction.version", "share.version=2"]
)
def test_a_level_that_is_not_supported_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"transaction\.version=2"):
        BrokerConfig.from_properties({"barnabas.features": text})


def test_the_epoch_rises_with_each_change_and_outlives_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.journal")
    epochs = []
    for level in (1, 1, 2, 1):
        metadata = ClusterMetadata(OsDisk(), path)
        features = finalize(metadata, {TRANSACTION_VERSION: level})
        assert features.level(TRANSACTION_VERSION) == level
        epochs.append(features.epoch)
        metadata.close()
    assert epochs == [0, 0, 1, 2]
