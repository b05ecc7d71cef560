"""The leader epochs of a log: the start and the end of each epoch, and the content of the file."""

from __future__ import annotations

import logging

import pytest

from barnabas.storage.disk import OsDisk
from barnabas.storage.files.checkpoints import CorruptCheckpoint
from barnabas.storage.files.leader_epochs import UNDEFINED, HighestEpoch, LeaderEpochs

FILE = "leader-epoch-checkpoint"


def epochs(directory: object, *entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(OsDisk(), str(directory), list(entries))


def test_an_epoch_without_records_gives_way_to_the_next(tmp_path):
    of_log = epochs(tmp_path)
    assert of_log.latest == -1
    of_log.begin(3, 0)
    of_log.begin(5, 0)
    of_log.begin(6, 10)
    of_log.begin(8, 10)
    assert of_log.entries == [(5, 0), (8, 10)]
    assert of_log.latest == 8
    assert not (tmp_path / FILE).exists(), "the file learns of them with the first batch"


def test_epochs_above_the_end_of_a_log_that_was_cut_give_way_too(tmp_path):
    of_log = epochs(tmp_path, (1, 0), (2, 10), (3, 20))
    of_log.begin(4, 10)
    assert of_log.entries == [(1, 0), (4, 10)]


def test_an_epoch_that_is_assigned_is_in_the_file(tmp_path):
    of_log = epochs(tmp_path, (1, 0))
    assert not of_log.assign(1, 5) and not of_log.assign(0, 5)
    assert of_log.written == [] and not (tmp_path / FILE).exists()
    assert of_log.assign(2, 5)
    assert (tmp_path / FILE).read_bytes() == b"0\n2\n1 0\n2 5\n"
    assert of_log.written == [(1, 0), (2, 5)]
    again = LeaderEpochs.load(OsDisk(), str(tmp_path))
    assert (again.entries, again.written) == ([(1, 0), (2, 5)], [(1, 0), (2, 5)])
    again.begin(3, 9)
    assert again.written == [(1, 0), (2, 5)], "what the file has is kept apart"


def test_a_file_that_is_damaged_or_missing_is_said_to_be(tmp_path):
    with pytest.raises(FileNotFoundError):
        LeaderEpochs.load(OsDisk(), str(tmp_path))
    (tmp_path / FILE).write_bytes(b"0\n2\n1 0\n")
    with pytest.raises(CorruptCheckpoint):
        LeaderEpochs.load(OsDisk(), str(tmp_path))


@pytest.mark.parametrize(
    ("offset", "epoch"), [(-1, -1), (0, -1), (4, -1), (5, 2), (9, 2), (10, 4), (99, 4)]
)
def test_an_offset_lies_in_the_epoch_that_began_last_before_it(tmp_path, offset, epoch):
    assert epochs(tmp_path, (2, 5), (4, 10)).epoch_of(offset) == epoch


@pytest.mark.parametrize(
    ("epoch", "end"),
    [
        (-1, UNDEFINED),
        (0, (0, 5)),
        (1, (1, 5)),
        (2, (2, 10)),
        (3, (2, 10)),
        (4, (4, 20)),
        (5, (4, 20)),
        (6, (6, 30)),
        (7, UNDEFINED),
    ],
)
def test_an_epoch_ends_where_the_next_one_began(tmp_path, epoch, end):
    """If the log lacks the epoch, the response has the highest epoch below it (KIP-320)."""
    assert epochs(tmp_path, (2, 5), (4, 10), (6, 20)).end_offset_for(epoch, 30) == end


def test_a_log_without_epochs_cannot_say_where_one_ended(tmp_path):
    assert epochs(tmp_path).end_offset_for(0, 30) == UNDEFINED
    assert epochs(tmp_path).epoch_of(0) == -1


@pytest.mark.parametrize(
    ("log_start_offset", "left"),
    [
        (0, [(1, 5), (2, 10), (3, 20)]),
        (5, [(1, 5), (2, 10), (3, 20)]),
        (6, [(1, 6), (2, 10), (3, 20)]),
        (10, [(2, 10), (3, 20)]),
        (15, [(2, 15), (3, 20)]),
        (20, [(3, 20)]),
        (99, [(3, 99)]),
    ],
)
def test_deleted_records_take_their_epochs_with_them(tmp_path, log_start_offset, left):
    entries = [(1, 5), (2, 10), (3, 20)]
    of_log = epochs(tmp_path, *entries)
    of_log.truncate_from_start(log_start_offset)
    assert of_log.entries == left
    assert of_log.written == (left if left != entries else []), "written where it changed"


@pytest.mark.parametrize(
    ("log_end_offset", "left"), [(30, 3), (20, 3), (19, 2), (10, 2), (9, 1), (0, 0)]
)
def test_a_log_that_is_cut_loses_the_epochs_that_began_after_its_end(
    tmp_path, log_end_offset, left
):
    entries = [(1, 5), (2, 10), (3, 20)]
    of_log = epochs(tmp_path, *entries)
    of_log.truncate_from_end(log_end_offset)
    assert of_log.entries == entries[:left]
    assert of_log.written == (entries[:left] if left < 3 else [])


def test_the_highest_epoch_is_read_as_it_was_written(tmp_path):
    highest = HighestEpoch(OsDisk(), str(tmp_path))
    assert highest.read() == -1
    highest.write(17)
    assert highest.read() == 17
    assert HighestEpoch(OsDisk(), str(tmp_path)).read() == 17
    # The checksum is the CRC-32C of "17", computed by another implementation.
    assert (tmp_path / "barnabas-leader-epoch").read_bytes() == b"17 46a4d07c\n" + b"." * 1000


def test_without_space_an_epoch_is_stored_by_cutting_its_file(tmp_path):
    """Truncating the file needs no space. An epoch that exceeds the file's number of bytes cannot
    be stored in this way.
    """
    highest = HighestEpoch(OsDisk(), str(tmp_path))
    assert not highest.raise_without_space(0)
    assert not (tmp_path / "barnabas-leader-epoch").exists()
    highest.write(17)
    assert highest.raise_without_space(17)
    assert highest.read() == 17
    assert highest.raise_without_space(18)
    assert highest.raise_without_space(20)
    assert HighestEpoch(OsDisk(), str(tmp_path)).read() == 20
    assert (tmp_path / "barnabas-leader-epoch").read_bytes() == b"17 46a4d07c\n" + b"." * 997
    assert not highest.raise_without_space(17 + 1000)
    assert highest.read() == 20
    assert highest.raise_without_space(17 + 999)
    assert highest.read() == 17 + 999
    highest.write(2000)
    assert highest.read() == 2000


def test_a_highest_epoch_of_an_earlier_version_has_no_bytes_to_cut(tmp_path):
    (tmp_path / "barnabas-leader-epoch").write_bytes(b"17 46a4d07c\n")
    highest = HighestEpoch(OsDisk(), str(tmp_path))
    assert not highest.raise_without_space(18)
    assert highest.read() == 17


def test_a_damaged_highest_epoch_is_not_cut(tmp_path):
    (tmp_path / "barnabas-leader-epoch").write_bytes(b"27 46a4d07c\n" + b"." * 1000)
    highest = HighestEpoch(OsDisk(), str(tmp_path))
    assert not highest.raise_without_space(28)
    assert (tmp_path / "barnabas-leader-epoch").stat().st_size == 1012


def test_a_highest_epoch_with_a_wrong_checksum_is_not_believed(tmp_path, caplog):
    highest = HighestEpoch(OsDisk(), str(tmp_path))
    highest.write(17)
    (tmp_path / "barnabas-leader-epoch").write_bytes(b"27 46a4d07c\n")
    with caplog.at_level(logging.WARNING):
        assert highest.read() == -1
    assert "the highest leader epoch is taken from the logs" in caplog.text
