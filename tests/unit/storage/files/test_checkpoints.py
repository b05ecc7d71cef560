"""The small files of a log directory in Kafka's format, and the manifest in Barnabas's own."""

from __future__ import annotations

import uuid

import pytest
from crc32c import crc32c

from barnabas.storage.files.checkpoints import (
    CorruptCheckpoint,
    Manifest,
    SegmentNote,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    decode_topic_id,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
    encode_topic_id,
)

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_offset_checkpoints_are_laid_out_as_kafka_writes_them() -> None:
    data = encode_offsets({("t", 0): 15, ("a.b_c-d", 11): 0})
    assert data == b"0\n2\nt 0 15\na.b_c-d 11 0\n"
    assert decode_offsets(data) == {("t", 0): 15, ("a.b_c-d", 11): 0}
    assert decode_offsets(b"0\n0\n") == {} and encode_offsets({}) == b"0\n0\n"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"0\n", id="a version alone"),
        pytest.param(b"0", id="half a line"),
        pytest.param(b"1\n1\nt 0 15\n", id="another version"),
        pytest.param(b"0\n2\nt 0 15\n", id="an entry too few"),
        pytest.param(b"0\n1\nt 0 15\nu 0 1\n", id="an entry too many"),
        pytest.param(b"0\n1\nt 0 15", id="a number that may be cut off"),
        pytest.param(b"0\n1\nt 0 15\nu 0 1", id="a line more that is cut off"),
        pytest.param(b"0\n1\nt 0 15 7\n", id="a column too many"),
        pytest.param(b"0\n1\nt 15\n", id="a column too few"),
        pytest.param(b"0\n1\nt 0 -1\n", id="a negative offset"),
        pytest.param(b"0\n1\nt 0 1_5\n", id="an offset that Python alone reads"),
        pytest.param("0\n1\nt 0 ²\n".encode(), id="a digit that is no number"),
        pytest.param("0\n1\nt 0 ١\n".encode(), id="another script's digit"),
        pytest.param(b"0\nx\nt 0 15\n", id="no count"),
        pytest.param(b"0\n1\nt\xff 0 15\n", id="no UTF-8"),
    ],
)
def test_what_is_no_offset_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_offsets(data)


def test_leader_epochs_are_laid_out_as_kafka_writes_them() -> None:
    epochs = [(3, 0), (7, 0), (8, 100), (200, 101)]
    data = encode_epochs(epochs)
    assert data == b"0\n4\n3 0\n7 0\n8 100\n200 101\n"
    assert decode_epochs(data) == epochs
    assert decode_epochs(b"0\n0\n") == []


@pytest.mark.parametrize(
    ("earlier", "later"), [((3, 5), (3, 9)), ((3, 5), (2, 9)), ((3, 5), (4, 4)), ((9, 0), (8, 10))]
)
def test_leader_epochs_that_do_not_rise_are_refused(
    earlier: tuple[int, int], later: tuple[int, int]
) -> None:
    with pytest.raises(CorruptCheckpoint, match=f"epoch {later[0]} does not follow {earlier[0]}"):
        decode_epochs(encode_epochs([earlier, later]))


@pytest.mark.parametrize("data", [b"0\n1\n3\n", b"0\n1\n3 x\n", b"0\n1\nx 3\n", b"0\n1\n3 1 2\n"])
def test_what_is_no_leader_epoch_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_epochs(data)


def test_a_topic_id_is_22_characters_that_a_url_may_have() -> None:
    assert encode_topic_id(TOPIC_ID) == "ABEiM0RVZneImaq7zN3u_w"
    assert decode_topic_id("ABEiM0RVZneImaq7zN3u_w") == TOPIC_ID
    assert decode_topic_id(encode_topic_id(uuid.UUID(int=2**128 - 1))).int == 2**128 - 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ABEiM0RVZneImaq7zN3u_",
        "ABEiM0RVZneImaq7zN3u_w=",
        "ABEiM0RVZneImaq7zN3u/!",
        "!!!!M0RVZneImaq7zN3u_w",
        "A" * 18,
        "A" * 23,
    ],
)
def test_what_is_no_topic_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no topic id"):
        decode_topic_id(text)


def test_partition_metadata_are_laid_out_as_kafka_writes_them() -> None:
    data = encode_partition_metadata(TOPIC_ID)
    assert data == b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w"
    assert decode_partition_metadata(data) == decode_partition_metadata(data + b"\n") == TOPIC_ID


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version: 1\ntopic_id: ABEiM0RVZneImaq7zN3u_w",
        b"version: 0\nid: ABEiM0RVZneImaq7zN3u_w",
        b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w\nmore: 1",
        b"version: 0\nABEiM0RVZneImaq7zN3u_w",
        b"version: 0\ntopic_id: short",
        b"version: 0\ntopic_id: \xff",
    ],
)
def test_what_are_no_partition_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_partition_metadata(data)


def test_a_topic_id_that_is_none_is_named() -> None:
    with pytest.raises(CorruptCheckpoint, match="'short' is no topic id"):
        decode_partition_metadata(b"version: 0\ntopic_id: short")


def test_properties_are_read_with_their_comments_and_spaces_left_out() -> None:
    assert encode_properties({"version": "1", "cluster.id": "x=y"}) == (
        b"#\nversion=1\ncluster.id=x=y\n"
    )
    data = b"#comment\n! another\n\n  \nversion = 1 \ncluster.id=x=y\nempty=\n"
    assert decode_properties(data) == {"version": "1", "cluster.id": "x=y", "empty": ""}


@pytest.mark.parametrize("data", [b"version\n", b"a=1\nnonsense\n", b"a=\xff\n"])
def test_what_are_no_properties_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_properties(data)


# --- the manifest -------------------------------------------------------------------------------


def manifest() -> Manifest:
    of_log = Manifest(TOPIC_ID, 3, 40)
    of_log.segments[0] = SegmentNote(0, 100, 7, 3, 10)
    of_log.segments[10] = SegmentNote(10, 200, 9, 12, 40)
    of_log.files["0.index"] = (3, crc32c(b"abc"))
    of_log.files["10.index"] = (-1, 0)
    return of_log


LINES = (
    b"segment 0 100 7 3 10\n"
    b"segment 10 200 9 12 40\n"
    b"file 0.index 3 364b3fb7\n"
    b"file 10.index -1 00000000\n"
)
BODY = b"partition ABEiM0RVZneImaq7zN3u_w 3 40\n" + LINES


def with_checksum(body: bytes) -> bytes:
    return b"segments.manifest 1 %08x\n" % crc32c(body) + body


def test_the_manifest_is_laid_out_as_its_table_says() -> None:
    assert manifest().encode() == with_checksum(BODY)
    again = Manifest.decode(with_checksum(BODY))
    assert (again.topic_id, again.log_start_offset, again.log_end_offset) == (TOPIC_ID, 3, 40)
    assert (again.segments, again.files) == (manifest().segments, manifest().files)


def test_a_part_of_the_manifest_stays_as_it_was() -> None:
    """The manifest's lines about a closed segment are computed only once."""
    of_log = manifest()
    part = of_log.part(0, ["0.index"])
    assert part.parted and not of_log.parted
    assert (part.segments, part.files) == (
        {0: of_log.segments[0]},
        {"0.index": of_log.files["0.index"]},
    )
    rest = Manifest(TOPIC_ID, 3, 40)
    rest.segments[10] = of_log.segments[10]
    part.segments.clear()
    whole = Manifest.decode(rest.encode([part]))
    assert set(whole.segments) == {0, 10} and set(whole.files) == {"0.index"}
    unparted = Manifest(TOPIC_ID, 0, 0)
    unparted.files["10.index"] = (-1, 0)
    assert set(Manifest.decode(rest.encode([part, unparted])).files) == {"0.index", "10.index"}


def test_a_file_is_known_by_its_size_and_checksum_or_by_its_absence() -> None:
    of_log = manifest()
    assert of_log.knows("0.index", b"abc") and not of_log.knows("0.index", b"abd")
    assert not of_log.knows("0.index", None) and not of_log.knows("0.index", b"abcd")
    assert of_log.knows("10.index", None) and not of_log.knows("10.index", b"")
    assert not of_log.knows("another", None) and not of_log.knows("another", b"abc")


def test_a_file_that_has_grown_is_known_by_its_first_bytes() -> None:
    """`Manifest.prefix` returns the noted part of a file if the file begins with it. The file may
    have grown since, and a file that was noted as missing may exist now.
    """
    of_log = manifest()
    of_log.files["empty"] = (0, 0)
    of_log.files["a byte"] = (1, crc32c(b"x"))
    assert of_log.prefix("a byte", b"xy") == b"x" and of_log.prefix("a byte", b"y") is None
    assert of_log.prefix("0.index", b"abc") == of_log.prefix("0.index", b"abcdef") == b"abc"
    for data in (None, b"ab", b"abx", b"xabc"):
        assert of_log.prefix("0.index", data) is None
    assert of_log.prefix("empty", b"") == of_log.prefix("empty", b"new") == b""
    assert of_log.prefix("empty", None) is None, "the noted file is missing"
    assert of_log.prefix("10.index", None) == of_log.prefix("10.index", b"new") == b""
    assert of_log.prefix("another", b"") is None


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "its checksum is wrong"),
        (with_checksum(BODY)[:-1], "its checksum is wrong"),
        (with_checksum(BODY).replace(b"manifest 1", b"manifest 2"), "its checksum is wrong"),
        (with_checksum(LINES), "it names no partition"),
        (with_checksum(b""), "it names no partition"),
    ],
)
def test_what_is_no_manifest_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=says):
        Manifest.decode(data)


def test_lines_of_a_manifest_that_mean_nothing_here_are_left_out() -> None:
    assert set(Manifest.decode(with_checksum(BODY + b"later fields\n")).segments) == {0, 10}
