"""UpdateFeatures (KIP-584, KIP-778). The expected codes were recorded from Apache Kafka 3.9."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost

from barnabas.broker.settings.features import TRANSACTION_VERSION
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(
    host: CoreHost, *levels: tuple[str, int, int], version: int = 1, validate_only: bool = False
) -> Any:
    updates = [FeatureUpdateKey(name, level, upgrade_type=kind) for name, level, kind in levels]
    request = UpdateFeaturesRequest(1000, updates, validate_only)
    connection = max(host.broker.connections, default=0) + 1
    return host.call(host.connect(connection), request, version)


def finalized(host: CoreHost) -> tuple[dict[str, int], int]:
    """Return the finalized level of each feature, and the epoch of the finalized features."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    connection = max(host.broker.connections, default=0) + 1
    answer = host.call(host.connect(connection), request, 4)
    levels = {row.name: row.max_version_level for row in answer.finalized_features}
    return levels, answer.finalized_features_epoch


@pytest.mark.parametrize(
    ("name", "level", "kind", "code"),
    [
        (TRANSACTION_VERSION, 2, UPGRADE, Code.NONE),
        (TRANSACTION_VERSION, 1, UPGRADE, Code.INVALID_UPDATE_VERSION),
        (TRANSACTION_VERSION, 1, SAFE, Code.NONE),
        (TRANSACTION_VERSION, 3, UPGRADE, Code.INVALID_UPDATE_VERSION),
        (TRANSACTION_VERSION, -1, UNSAFE, Code.INVALID_UPDATE_VERSION),
        (TRANSACTION_VERSION, 2, 0, Code.INVALID_UPDATE_VERSION),
        ("metadata.version", 6, UNSAFE, Code.INVALID_UPDATE_VERSION),
        ("no.such", 1, UPGRADE, Code.INVALID_UPDATE_VERSION),
        ("no.such", 0, SAFE, Code.NONE),
        ("kraft.version", 2, UPGRADE, Code.INVALID_UPDATE_VERSION),
    ],
)
def test_a_feature_level_is_changed_only_by_a_valid_kind_of_update(
    name: str, level: int, kind: int, code: Code, tmp_path: Path
) -> None:
    answer = update(CoreHost(tmp_path), (name, level, kind))
    assert answer.error_code == Code.NONE
    assert [(row.feature, row.error_code) for row in answer.results] == [(name, code)]


@pytest.mark.parametrize("emulated", ["", "4.3"])
def test_all_features_of_a_release_are_upgraded_at_once(emulated: str, tmp_path: Path) -> None:
    """`kafka-features upgrade --release-version 4.3` sends these levels."""
    levels = {
        "metadata.version": 30, "kraft.version": 1, "transaction.version": 2, "group.version": 1,
        "eligible.leader.replicas.version": 1, "share.version": 1, "streams.version": 1,
    }  # fmt: skip
    host = CoreHost(tmp_path, barnabas_emulate=emulated)
    answer = update(host, *((name, level, UPGRADE) for name, level in levels.items()), version=2)
    assert answer.error_code == Code.NONE
    assert finalized(host)[0].items() >= {"transaction.version": 2, "share.version": 1}.items()


def test_a_new_level_applies_immediately_with_a_higher_epoch_and_after_a_restart(
    tmp_path: Path,
) -> None:
    """The level in the properties file has precedence over the stored one."""
    host = CoreHost(tmp_path)
    _, before = finalized(host)
    update(host, (TRANSACTION_VERSION, 1, SAFE))
    levels, epoch = finalized(host)
    assert (levels[TRANSACTION_VERSION], epoch) == (1, before + 1)
    assert host.broker.transactions.settings.transaction_version == 1
    host.close()
    host = CoreHost(tmp_path)
    assert finalized(host) == (levels, epoch)
    host.close()
    by_setting = CoreHost(tmp_path, barnabas_features="transaction.version=2")
    assert finalized(by_setting)[0][TRANSACTION_VERSION] == 2


def test_of_two_updates_of_a_feature_the_second_follows_the_first(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    update(host, (TRANSACTION_VERSION, 1, SAFE))
    twice = update(host, (TRANSACTION_VERSION, 2, UPGRADE), (TRANSACTION_VERSION, 1, UPGRADE))
    assert [row.error_code for row in twice.results] == [0, Code.INVALID_UPDATE_VERSION]
    assert finalized(host)[0][TRANSACTION_VERSION] == 2


def test_each_change_keeps_the_ones_before_it_also_over_restarts(tmp_path: Path) -> None:
    host, expected = CoreHost(tmp_path), {}
    for name, level in (
        ("group.version", 0), (TRANSACTION_VERSION, 1), ("share.version", 0), ("group.version", 1),
    ):  # fmt: skip
        update(host, (name, level, UPGRADE if name in expected else SAFE))
        expected[name] = level
        for is_restarted in (False, True):
            if is_restarted:
                host.close()
                host = CoreHost(tmp_path)
            levels = finalized(host)[0]
            assert {name: levels.get(name, 0) for name in expected} == expected, is_restarted
    host.close()


def test_a_feature_at_level_0_is_not_listed(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    update(host, ("group.version", 0, SAFE))
    assert "group.version" not in finalized(host)[0]


def test_validate_only_changes_no_level(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    before = finalized(host)
    answer = update(host, (TRANSACTION_VERSION, 1, SAFE), validate_only=True)
    assert answer.results[0].error_code == Code.NONE
    assert finalized(host) == before


@pytest.mark.parametrize(("version", "level", "code"), [(1, 1, 0), (2, 2, 95)])
def test_a_refused_feature_affects_the_others_only_from_version_2_on(
    version: int, level: int, code: int, tmp_path: Path
) -> None:
    """From version 2 on, either all features of a request are changed or none (KIP-1022)."""
    host = CoreHost(tmp_path)
    wanted = (TRANSACTION_VERSION, 1, SAFE), ("no.such", 1, UPGRADE)
    assert update(host, *wanted, version=version).error_code == code
    assert finalized(host)[0][TRANSACTION_VERSION] == level


def test_version_0_allows_a_downgrade_by_its_own_flag(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    for allowed, code in ((False, Code.INVALID_UPDATE_VERSION), (True, Code.NONE)):
        updates = [FeatureUpdateKey(TRANSACTION_VERSION, 1, allow_downgrade=allowed)]
        connection = host.connect(100 + allowed)
        answer = host.call(connection, UpdateFeaturesRequest(1000, updates), 0)
        assert answer.results[0].error_code == code
