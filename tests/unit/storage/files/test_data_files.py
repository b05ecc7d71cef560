"""The table of all files of a data directory: each file of a broker has one row."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.damage import directory
from helpers.disk_broker import DATA_DIR
from helpers.kept_files import unknown_files

from barnabas.broker.logs.durable_size import SIZE_SUFFIX
from barnabas.broker.settings.deletion import NOTE_NAME
from barnabas.broker.transactions.cuts import CUTS_NAME
from barnabas.broker.transactions.unwritten_markers import UNWRITTEN_MARKERS_NAME
from barnabas.graduation.copies import UNFINISHED_NAME
from barnabas.graduation.steps import PROPERTIES_NAME
from barnabas.storage.directory.graduated import BOOTSTRAP_NAME, GIVEN_NAME, MARK_NAME
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.checkpoints import METADATA_JOURNAL_NAME
from barnabas.storage.files.data_files import OF_DIRECTORY, OF_PARTITION, kind_of, names_of
from barnabas.storage.files.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    offset_name,
)
from barnabas.storage.opening.last_run import BOOT_ID_NAME
from barnabas.storage.opening.partition_files import SET_ASIDE_SUFFIX
from barnabas.test_control.forgetful_disk import LOSSES_NAME

SEGMENT = offset_name(7)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_each_file_of_a_broker_that_did_everything_has_a_row(is_stopped: bool) -> None:
    names = [path.removeprefix(f"{DATA_DIR}/") for path in directory(is_stopped=is_stopped)]
    assert "barnabas-metadata.journal" in names and len(names) > 50
    assert [name for name in names if kind_of(name) is None] == []


@pytest.mark.parametrize(
    "name",
    [
        *(
            BOOT_ID_NAME,
            BOOTSTRAP_NAME,
            CUTS_NAME,
            GIVEN_NAME,
            METADATA_JOURNAL_NAME,
            METADATA_JOURNAL_NAME + SIZE_SUFFIX,
        ),
        *(LOSSES_NAME, MARK_NAME, NOTE_NAME, PROPERTIES_NAME, UNFINISHED_NAME),
        *(UNWRITTEN_MARKERS_NAME, f"{METADATA_JOURNAL_NAME}.new", f"{BOOT_ID_NAME}.tmp"),
        *(f"t-0/{SEGMENT}{suffix}" for suffix in SEGMENT_SUFFIXES),
        *(
            f"t-0/{SEGMENT}{suffix}{under_way}"
            for suffix in SEGMENT_SUFFIXES
            for under_way in (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)
        ),
        *(f"t-0/{SEGMENT}{SET_ASIDE_SUFFIX}", f"t-0/{SEGMENT}{SET_ASIDE_SUFFIX}-17"),
    ],
)
def test_each_name_of_the_product_has_a_row(name: str) -> None:
    assert kind_of(name) is not None


def test_no_file_has_two_rows() -> None:
    for kinds in (OF_PARTITION, OF_DIRECTORY):
        literal = [kind.name for kind in kinds if isinstance(kind.name, str)]
        assert len(set(literal)) == len(literal)
        for name in literal:
            assert [kind.name for kind in kinds if kind.has_name(name)] == [name]


def test_a_file_without_a_row_is_reported(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0-stray").mkdir()
    names = (
        "meta.properties",
        f"t-0/{SEGMENT}.log",
        f"t-0/{SEGMENT}.hours",
        "hours",
        "t-0-stray/x",
    )
    for name in names:
        (tmp_path / name).touch()
    reported = [line.partition(" ")[0] for line in unknown_files(OsDisk(), str(tmp_path))]
    assert sorted(reported) == ["hours", f"t-0/{SEGMENT}.hours"]
    assert kind_of(SEGMENT + ".log") is None, "a segment is in a partition's directory"


def test_kinds_of_which_names_are_needed_have_one_name_each() -> None:
    with pytest.raises(AssertionError, match="is a pattern"):
        names_of(OF_PARTITION)
