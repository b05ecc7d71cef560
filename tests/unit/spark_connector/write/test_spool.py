"""Encoded batches in messages and files. Reading returns the batches that were written, or raises a
clear error.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow.fs as arrow_fs
from helpers.processes import measured_in_new_process

from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write.spool import (
    SUFFIX,
    SpoolError,
    SpoolWriter,
    delete_directory,
    delete_spool,
    from_message,
    join_uri,
    open_file_system,
    read_spool,
    to_message,
)

BATCHES = [
    EncodedRecordBatch("straße", 3, 2, b"abc"),
    EncodedRecordBatch("orders", 0, 1, bytearray(b"")),
    EncodedRecordBatch("straße", 2**31 - 1, 70_000, memoryview(b"x" * 70_000)),
]


def list_spool(directory_uri: str) -> list[str]:
    """The URIs of the complete files in a batch's directory, by name. Empty if the directory does
    not exist.
    """
    file_system, path = open_file_system(directory_uri)
    infos = file_system.get_file_info(arrow_fs.FileSelector(path, allow_not_found=True))
    return [
        join_uri(directory_uri, info.base_name)
        for info in sorted(infos, key=lambda info: info.path)
        if info.base_name.endswith(SUFFIX)
    ]


def written(
    directory: str, name: str = "0-0", record_batches: list[EncodedRecordBatch] = BATCHES
) -> str:
    with SpoolWriter(directory, name) as writer:
        for record_batch in record_batches:
            writer.append(record_batch)
    return writer.uri


def test_a_message_holds_its_batches() -> None:
    assert from_message(to_message(BATCHES)) == BATCHES
    assert from_message(to_message([])) == []


def test_a_message_is_little_more_than_its_batches() -> None:
    many = [EncodedRecordBatch("orders", partition, 100, b"x" * 100) for partition in range(100)]
    assert len(to_message(many)) < 100 * 100 + 600


@pytest.mark.parametrize("cut", [0, 3, 4, 10, 20, -1])
def test_a_cut_message_is_refused(cut: int) -> None:
    with pytest.raises(SpoolError, match="damaged"):
        from_message(to_message(BATCHES)[:cut])


def test_a_message_of_another_release_is_refused() -> None:
    message = bytearray(to_message(BATCHES))
    message[5] = 2  # byte 5 follows the size of the header and a byte of msgpack
    with pytest.raises(SpoolError, match=r"version 2.*same release"):
        from_message(bytes(message))


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_file_holds_its_batches(tmp_path: Path, form: str) -> None:
    directory = join_uri(form.format(tmp_path), "query", "7")
    uri = written(directory, "a b")
    assert uri.startswith(directory) and uri.endswith(".batches")
    assert list(read_spool(uri)) == BATCHES
    assert list_spool(directory) == [uri]
    delete_spool(uri)
    assert list_spool(directory) == []
    delete_spool(uri)
    delete_directory(directory)
    delete_directory(directory)
    assert list((tmp_path / "query").iterdir()) == []
    assert list_spool(directory) == []


def test_spaces_and_umlauts_in_a_uri(tmp_path: Path) -> None:
    (tmp_path / "ä b").mkdir()
    directory = join_uri(f"file://{tmp_path}/%C3%A4%20b", "c d")
    uri = written(directory)
    assert (tmp_path / "ä b" / "c d" / "0-0.batches").exists()
    assert list(read_spool(uri)) == BATCHES and list_spool(directory) == [uri]


def test_a_file_without_batches(tmp_path: Path) -> None:
    assert list(read_spool(written(str(tmp_path), record_batches=[]))) == []


def test_only_whole_files_are_seen(tmp_path: Path) -> None:
    writer = SpoolWriter(str(tmp_path), "0-0")
    writer.append(BATCHES[0])
    assert list_spool(str(tmp_path)) == []
    with pytest.raises(SpoolError, match="is missing"):
        list(read_spool(writer.uri))
    assert writer.close() == writer.uri
    assert list_spool(str(tmp_path)) == [writer.uri]


def test_an_exception_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with SpoolWriter(str(tmp_path), "0-0") as writer:
            writer.append(BATCHES[0])
            raise KeyError("the task")

    with pytest.raises(KeyError, match="the task"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_any_cut_is_seen_before_the_first_batch(tmp_path: Path) -> None:
    path = Path(written(str(tmp_path), record_batches=BATCHES[:2]))
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(SpoolError, match="damaged"):
            next(read_spool(str(path)))


def test_any_wrong_byte_is_seen(tmp_path: Path) -> None:
    path = Path(written(str(tmp_path), record_batches=BATCHES[:2]))
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        with pytest.raises(SpoolError, match="damaged"):
            list(read_spool(str(path)))


def test_bytes_after_the_end_are_seen(tmp_path: Path) -> None:
    path = Path(written(str(tmp_path)))
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(SpoolError, match="damaged"):
        list(read_spool(str(path)))


SIZE, COUNT = 1 << 20, 30


def peak_of_reading(uri: str) -> int:
    """The peak of the memory that reading a file takes, in bytes."""
    tracemalloc.start()
    assert sum(len(record_batch.data) for record_batch in read_spool(uri)) == COUNT * SIZE
    return tracemalloc.get_traced_memory()[1]


def test_one_batch_is_in_memory_at_a_time(tmp_path: Path) -> None:
    uri = written(
        str(tmp_path),
        record_batches=[
            EncodedRecordBatch("orders", index, 1, bytes(SIZE)) for index in range(COUNT)
        ],
    )
    assert SIZE <= measured_in_new_process(peak_of_reading, uri) < 4 * SIZE


def test_what_is_read_can_be_stamped(tmp_path: Path) -> None:
    for record_batch in read_spool(written(str(tmp_path))):
        assert isinstance(record_batch.data, bytearray)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match=r"0-0\.batches is missing: .* driver and all executors"):
        next(read_spool(str(tmp_path / "0-0.batches")))


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SpoolError, match="cannot be created"):
        SpoolWriter(str(tmp_path / "file"), "0-0")


@pytest.mark.parametrize(
    ("uri", "why"),
    [("spool/here", "is relative"), ("dbfs:/spool", "a file system unknown to Arrow")],
)
def test_places_that_are_none(uri: str, why: str) -> None:
    with pytest.raises(SpoolError, match=why):
        list_spool(uri)


@pytest.mark.parametrize("name", ["", "..", "a/b"])
def test_names_stay_within_the_directory(name: str) -> None:
    with pytest.raises(SpoolError, match="cannot be the name"):
        join_uri("/spool", name)


def test_settings_stay_at_the_end_of_a_uri() -> None:
    assert (
        join_uri("s3a://bucket/spool/?region=eu-north-1", "query", "7")
        == "s3a://bucket/spool/query/7?region=eu-north-1"
    )
