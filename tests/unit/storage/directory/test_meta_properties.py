"""The owner of a data directory: `meta.properties` as Apache Kafka 3.9 writes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_kafka_log import KAFKA

from barnabas.storage.directory.meta_properties import MetaProperties, take_directory
from barnabas.storage.disk import OsDisk
from barnabas.storage.log.log_directory import LogDirectoryError

OURS = MetaProperties(1, "our-cluster", "our-directory")


def test_kafkas_ids_are_kept_and_its_file_is_not_rewritten(tmp_path: Path) -> None:
    original = (KAFKA / "meta.properties").read_bytes()
    (tmp_path / "meta.properties").write_bytes(original)
    ids = take_directory(OsDisk(), str(tmp_path), OURS)
    assert ids == MetaProperties(1, "S77YdvnpTm-HVUzxuSPgvQ", "ggAN3Rh19w9F4cJLIobyvg")
    assert (tmp_path / "meta.properties").read_bytes() == original


def test_a_new_directory_gets_the_brokers_ids_in_kafkas_format(tmp_path: Path) -> None:
    assert take_directory(OsDisk(), str(tmp_path), OURS) == OURS
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert sorted(lines[1:]) == [
        "cluster.id=our-cluster", "directory.id=our-directory", "node.id=1", "version=1",
    ]  # fmt: skip
    assert take_directory(OsDisk(), str(tmp_path), OURS._replace(cluster_id="other")) == OURS


def test_missing_properties_are_added_and_unknown_ones_kept(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("node.id=1\nextra=kept\n")
    take_directory(OsDisk(), str(tmp_path), OURS)
    assert {"extra=kept", "cluster.id=our-cluster"} <= set(path.read_text().splitlines())


def test_another_nodes_directory_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("node.id=2\n")
    with pytest.raises(LogDirectoryError, match="node 2, not to node 1"):
        take_directory(OsDisk(), str(tmp_path), OURS)
    path.write_text("no property\n")
    with pytest.raises(LogDirectoryError, match="cannot be read"):
        take_directory(OsDisk(), str(tmp_path), OURS)


def test_an_unknown_cluster_id_is_not_written(tmp_path: Path) -> None:
    unnamed = OURS._replace(cluster_id=None)
    assert take_directory(OsDisk(), str(tmp_path), unnamed) == unnamed
    assert "cluster.id" not in (tmp_path / "meta.properties").read_text()
    assert take_directory(OsDisk(), str(tmp_path), OURS) == OURS


def test_the_file_is_written_in_the_form_that_its_version_says(tmp_path: Path) -> None:
    """Version 0 of the file, which Apache Kafka used with ZooKeeper, had other property names."""
    path = tmp_path / "meta.properties"
    path.write_text("version=0\nnode.id=1\n")
    take_directory(OsDisk(), str(tmp_path), OURS)
    assert {"version=1", "node.id=1"} <= set(path.read_text().splitlines())
