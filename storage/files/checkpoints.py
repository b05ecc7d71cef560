"""The small text files of a data directory, as Apache Kafka 3.9 writes them, and our own manifest.

Offset checkpoints (`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
`replication-offset-checkpoint`, `cleaner-offset-checkpoint`) and a partition's
`leader-epoch-checkpoint` have these lines:

    version (0)
    number of entries
    topic partition offset            or, of a leader epoch:  epoch start_offset

`partition.metadata`: `version: 0`, `topic_id: <22 characters of base64, URL-safe>`.
`meta.properties`: Java properties with version=1, cluster.id, node.id, directory.id.
`.kafka_cleanshutdown`: {"version":0,"brokerEpoch":n}, only after a clean stop.

`segments.manifest`, our own file, is in each partition's directory (Apache Kafka's tools ignore
it). It describes the files when they were last known to be correct. By comparison with it, a
changed or missing file is detected without reading the log. Lines:

    segments.manifest 1 <CRC-32C of all that follows, 8 hex digits>
    partition <topic_id> <log_start_offset> <log_end_offset>
    segment <base_offset> <size> <max_timestamp> <its offset> <end_offset>
    file <name> <size, -1 for no file> <CRC-32C, 8 hex digits>
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas.protocol.checksum import crc32c

MANIFEST_NAME = "segments.manifest"
CLEAN_SHUTDOWN_NAME = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN = b'{"version":0,"brokerEpoch":-1}'
LEADER_EPOCH_NAME = "leader-epoch-checkpoint"
PARTITION_METADATA_NAME = "partition.metadata"
META_PROPERTIES_NAME = "meta.properties"
# topics and dynamic settings: broker/logs/metadata.py
METADATA_JOURNAL_NAME = "barnabas-metadata.journal"
RECOVERY_POINT_NAME = "recovery-point-offset-checkpoint"
LOG_START_NAME = "log-start-offset-checkpoint"
REPLICATION_NAME = "replication-offset-checkpoint"
CLEANER_NAME = "cleaner-offset-checkpoint"
LOCK_NAME = ".lock"
STANDBY_NOTE_NAME = "barnabas-standby"
LEASE_SESSION_NAME = "barnabas-lease-session"
# marks a partition's directory that no standby has received yet
NOT_SENT_NAME = "barnabas-not-sent"
NO_TOPIC_ID = uuid.UUID(int=0)

Offsets = dict[tuple[str, int], int]


class CorruptCheckpoint(Exception):
    """A file does not have the format that its name implies."""


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    return encode_rows([offset_row(*item) for item in offsets.items()])


def offset_row(key: tuple[str, int], offset: int) -> str:
    """The line of a checkpoint for one partition."""
    return f"{key[0]} {key[1]} {offset}\n"


def encode_rows(rows: Sequence[str]) -> bytes:
    """The content of a checkpoint with these lines."""
    return f"0\n{len(rows)}\n{''.join(rows)}".encode()


def decode_offsets(data: bytes) -> Offsets:
    """Decode the offsets of a checkpoint. Raises: CorruptCheckpoint."""
    offsets: Offsets = {}
    try:
        for row in _rows(data, 3):
            offsets[row[0], _number(row[1])] = _number(row[2])
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from error
    return offsets


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    lines = [f"{epoch} {offset}\n" for epoch, offset in epochs]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Decode (epoch, start offset) pairs. Epochs and offsets must rise. Raises:
    CorruptCheckpoint.
    """
    try:
        epochs = [(_number(row[0]), _number(row[1])) for row in _rows(data, 2)]
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from error
    for earlier, later in pairwise(epochs):
        if later[0] <= earlier[0] or later[1] < earlier[1]:
            raise CorruptCheckpoint(f"the epoch {later[0]} does not follow {earlier[0]}")
    return epochs


def _rows(data: bytes, columns: int) -> list[list[str]]:
    """The rows of a checkpoint in Kafka's format, which is the version 0, the number of rows, the
    rows.

    Raises: ValueError.
    """
    lines = data.decode("utf-8").split("\n")
    # The last line must also end with a line feed. Otherwise a number that was cut off could be
    # read.
    if lines[-1] or lines[0] != "0":
        raise ValueError("it does not begin with the version 0, or its last line is cut off")
    rows = [line.split(" ") for line in lines[2:-1]]
    if _number(lines[1]) != len(rows) or any(len(row) != columns for row in rows):
        raise ValueError(f"it should have {lines[1]} entries of {columns} columns")
    return rows


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is no offset")
    return int(text)


def encode_topic_id(topic_id: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def decode_topic_id(text: str) -> uuid.UUID:
    """Decode a topic id. Raises: ValueError."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is no topic id") from error
    if len(text) != 22:
        raise ValueError(f"{text!r} is no topic id")
    return uuid.UUID(bytes=raw)


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    return f"version: 0\ntopic_id: {encode_topic_id(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> uuid.UUID:
    """Decode the topic id in the file. Raises: CorruptCheckpoint."""
    try:
        lines = data.decode("ascii").rstrip("\n").split("\n")
        if len(lines) == 2 and lines[0] == "version: 0" and lines[1].startswith("topic_id: "):
            return decode_topic_id(lines[1].removeprefix("topic_id: "))
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from error
    raise CorruptCheckpoint("it lacks the two lines `version: 0` and `topic_id: …`")


def encode_properties(properties: Mapping[str, str]) -> bytes:
    return ("#\n" + "".join(f"{key}={value}\n" for key, value in properties.items())).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """Decode keys and values; comments are left out. Raises: CorruptCheckpoint."""
    properties = {}
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(str(error)) from error
    for line in text.splitlines():
        if line.strip() and not line.startswith(("#", "!")):
            key, equals, value = line.partition("=")
            if not equals:
                raise CorruptCheckpoint(f"the line {line!r} is no property")
            properties[key.strip()] = value.strip()
    return properties


class SegmentNote(NamedTuple):
    """The entry for one segment in the manifest."""

    base_offset: int
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    end_offset: int


class Manifest:
    """The contents of `segments.manifest`."""

    __slots__ = ("_lines", "files", "log_end_offset", "log_start_offset", "segments", "topic_id")

    def __init__(self, topic_id: uuid.UUID, log_start_offset: int, log_end_offset: int) -> None:
        self.topic_id = topic_id
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.segments: dict[int, SegmentNote] = {}
        self.files: dict[str, tuple[int, int]] = {}
        self._lines: bytes | None = None

    def part(self, base_offset: int, names: Iterable[str]) -> Manifest:
        """A manifest of only one segment and its files, which does not change any more."""
        part = Manifest(self.topic_id, self.log_start_offset, self.log_end_offset)
        part.segments[base_offset] = self.segments[base_offset]
        part.files = {name: self.files[name] for name in names}
        part._lines = part._encode_lines()
        return part

    @property
    def parted(self) -> bool:
        """Whether this manifest was made by `part`, for one segment."""
        return self._lines is not None

    def knows(self, name: str, data: bytes | None) -> bool:
        """Whether the file still has the content that the manifest describes. Takes: data, the
        content, None for a missing file.
        """
        return self.files.get(name) == ((-1, 0) if data is None else (len(data), crc32c(data)))

    def prefix(self, name: str, data: bytes | None) -> bytes | None:
        """The part of a file that the manifest describes, if the file has only grown since.

        Gives:  the first bytes, or None if the file does not begin with the described content.
        """
        noted = self.files.get(name)
        if noted is None:
            return None
        size, crc = noted
        if size < 0:
            return b""
        if data is None or len(data) < size or crc32c(memoryview(data)[:size]) != crc:
            return None
        return data[:size]

    def encode(self, parts: Iterable[Manifest] = ()) -> bytes:
        """Encode the file, including the entries of `parts`."""
        topic_id = encode_topic_id(self.topic_id)
        head = f"partition {topic_id} {self.log_start_offset} {self.log_end_offset}\n"
        body = (
            head.encode()
            + self._encode_lines()
            + b"".join(part._lines or part._encode_lines() for part in parts)
        )
        return b"segments.manifest 1 %08x\n" % crc32c(body) + body

    def _encode_lines(self) -> bytes:
        lines = [f"segment {' '.join(map(str, note))}\n" for note in self.segments.values()]
        lines += [f"file {name} {size} {crc:08x}\n" for name, (size, crc) in self.files.items()]
        return "".join(lines).encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Decode the content of a manifest file. Raises: CorruptCheckpoint."""
        head, _, body = data.partition(b"\n")
        if head != b"segments.manifest 1 %08x" % crc32c(body):
            raise CorruptCheckpoint("its checksum is wrong")
        manifest: Manifest | None = None
        for line in body.decode().splitlines():
            kind, *fields = line.split(" ")
            if kind == "partition":
                manifest = cls(decode_topic_id(fields[0]), int(fields[1]), int(fields[2]))
            elif kind == "segment" and manifest is not None:
                note = SegmentNote(*map(int, fields))
                manifest.segments[note.base_offset] = note
            elif kind == "file" and manifest is not None:
                manifest.files[fields[0]] = (int(fields[1]), int(fields[2], 16))
        if manifest is None:
            raise CorruptCheckpoint("it names no partition")
        return manifest
