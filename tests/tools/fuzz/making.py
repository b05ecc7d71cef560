"""Plausible requests of every API and version, made from the schemas. Their values refer to topics,
groups and producers of the broker under test.
"""

from __future__ import annotations

import struct
import uuid
from random import Random
from typing import Any, NamedTuple

from helpers import kafka_messages as messages

from barnabas.protocol.api import Api
from barnabas.protocol.records import CRC_START, NewRecord, computed_crc, encode_batch
from fuzz.reading import BOUNDS, NUMBERS

BASE_TOPICS = {"plain": 3, "compacted": 1, "transactional": 2, "small-segments": 1}
OTHER_TOPICS = (
    "new-0",
    "new-1",
    "new-2",
    *("__consumer_offsets", "__transaction_state") * 4,
    "missing",
    "",
    "a/b",
    "x" * 250,
)
GROUPS = ("readers", "readers", "writers", "")
TRANSACTIONAL_IDS = ("first", "second", "third", "")
CONFIGS = (
    ("retention.ms", "60000"),
    ("segment.bytes", "4000"),
    ("max.message.bytes", "100000"),
    ("cleanup.policy", "compact"),
    ("compression.type", "gzip"),
    ("flush.messages", "1"),
    ("message.timestamp.type", "LogAppendTime"),
    ("unknown", "1"),
    ("log.retention.ms", "100000"),
    ("compression.type", "producer"),
    ("flush.messages", "9223372036854775807"),
    ("", ""),
)
INTERESTING = (
    0,
    1,
    -1,
    2,
    -2,
    7,
    100,
    127,
    128,
    255,
    256,
    32767,
    32768,
    65535,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
)
JOIN_GROUP = 11
LETTERS = ("", "a", "é", "\0", "a b", "%s", "../..", "a" * 300, "-", ".")


class Producer(NamedTuple):
    """A producer id and epoch that the broker assigned."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class Knowledge:
    """What clients know about the broker, from its responses and from inspecting its state."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.producers: list[Producer] = [Producer(None, -1, -1)]
        self.members: dict[str, list[tuple[str, int]]] = {}
        self.fetch_sessions: list[tuple[int, int]] = [(0, -1), (0, 0)]
        self.next_sequence: dict[tuple[int, int, str, int], int] = {}
        self.end_offsets: dict[tuple[str, int], int] = {}

    def remember_producer(self, producer: Producer) -> None:
        """Add a producer. In most cases, drop the earlier identities of the same transactional id,
        because they are fenced.
        """
        kept = [
            known
            for known in self.producers
            if known.transactional_id != producer.transactional_id or known.transactional_id is None
        ]
        self.producers = [Producer(None, -1, -1), *kept[-4:], *self.producers[-1:], producer]

    def remember_member(self, group: str, member: str, generation: int) -> None:
        known = [row for row in self.members.get(group, []) if row[0] != member]
        self.members[group] = [*known[-5:], (member, generation)]

    def remember_session(self, session_id: int, epoch: int) -> None:
        """Add a fetch session, and drop old ones. The first two entries stay: they request no
        session and a new session.
        """
        self.fetch_sessions = [
            *self.fetch_sessions[:2],
            *self.fetch_sessions[2:][-5:],
            (session_id, epoch),
        ]


class Maker:
    """Encodes requests. `wild` is the probability that a value is one that no client would send."""

    def __init__(self, random: Random, knowledge: Knowledge, now_ms: int) -> None:
        self.random, self.knowledge, self.now_ms = random, knowledge, now_ms
        # `wild` is the probability of a senseless value. The other attributes are values that the
        # fields of one request share.
        self.wild = 0.0
        self._producer = Producer(None, -1, -1)
        self._group, self._member, self._generation = "", "", -1
        self._session = (0, -1)
        self._topic = "plain"
        self._partition = 0

    def request(self, api: Api, version: int, correlation_id: int, *, wild: float = 0.0) -> bytes:
        """Encode a whole frame, without its size."""
        random = self.random
        self.wild = wild
        self._producer = random.choice(self.knowledge.producers)
        self._topic, self._partition = "plain", 0
        self._group = random.choice(GROUPS)
        members = self.knowledge.members.get(self._group) or [("", -1)]
        self._member, self._generation = (
            random.choice(members) if random.random() < 0.4 else members[-1]
        )
        if api.key == JOIN_GROUP and random.random() < 0.3:
            self._member = ""
        self._session = random.choice(self.knowledge.fetch_sessions)
        flexible = version >= api.flexible_from
        head = struct.pack(">hhih", api.key, version, correlation_id, 4) + b"fuzz"
        form = messages.message_class(api.name + "Request")._struct
        return head + (b"\0" if flexible else b"") + self._fields(form, version, flexible, api.name)

    # --- by kind ---------------------------------------------------------------------------------

    def _fields(self, form: Any, version: int, flexible: bool, parent: str) -> bytes:
        """The encoded fields of a struct in this version."""
        out = b"".join(
            self._field(field, version, flexible, parent) for field in form.untagged_fields(version)
        )
        return out + b"\0" if flexible else out

    def _field(self, field: Any, version: int, flexible: bool, parent: str) -> bytes:
        """An encoded field: null, an array of up to three elements, or a single value."""
        kind = field._type_str
        nullable = bool(field.nullable_for_version_q(version))
        if kind.startswith("[]"):
            if nullable and self.random.random() < 0.2:
                return b"\0" if flexible else b"\xff\xff\xff\xff"
            count = self.random.choices((0, 1, 2, 3), (1, 8, 2, 1))[0]
            items = [
                self._single(
                    field.array_of, field.name, version, flexible, kind[2:], nullable=False
                )
                for _ in range(count)
            ]
            return _length(count, "array", flexible) + b"".join(items)
        return self._single(field, field.name, version, flexible, parent, nullable=nullable)

    def _single(
        self, field: Any, name: str, version: int, flexible: bool, parent: str, *, nullable: bool
    ) -> bytes:
        """Encode a value that is not an array."""
        kind = field._type_str
        if kind in NUMBERS:
            return NUMBERS[kind].pack(self._number(name, kind))
        if kind == "bool":
            return self.random.choice((b"\0", b"\1"))
        if kind == "uuid":
            return self._topic_id().bytes
        if kind in ("string", "bytes", "records"):
            value = (
                self._text(name, parent, nullable)
                if kind == "string"
                else self._blob(name, nullable)
            )
            if value is None:
                return (
                    b"\0" if flexible else b"\xff\xff" if kind == "string" else b"\xff\xff\xff\xff"
                )
            return _length(len(value), kind, flexible) + value
        if nullable:
            if self.random.random() < 0.7:
                return b"\xff"
            return b"\1" + self._fields(field, version, flexible, parent)
        return self._fields(field, version, flexible, parent)

    # --- by name ---------------------------------------------------------------------------------

    def _number(self, name: str, kind: str) -> Any:
        """Return a number that suits the field's name, or, with the probability `wild`, any number
        of the type.
        """
        random = self.random
        if kind == "float64":
            return random.random()
        if random.random() < self.wild:
            bound = 1 << BOUNDS.get(kind, 15)
            return (
                (random.choice(INTERESTING) + bound) % (2 * bound) - bound
                if kind != "uint16"
                else random.randrange(65536)
            )
        low = name.lower()
        value = self._known_number(low)
        if value is not None:
            return value
        if "partition" in low or low == "index":
            self._partition = (
                random.randrange(BASE_TOPICS.get(self._topic, 1)) if random.random() < 0.9 else 3
            )
            return self._partition
        if "epoch" in low:
            return random.choice((-1, 0, 0, 1))
        if low in ("timeout_ms", "max_wait_ms"):
            return random.choice((0, 10, 100, 1000))
        if low.endswith("timeout_ms"):
            return random.choice((6000, 10_000, 60_000))
        if low == "timestamp":
            return random.choice((-1, -2, -3, -4, self.now_ms, 0))
        if "offset" in low:
            end = self.knowledge.end_offsets.get((self._topic, self._partition), 0)
            return random.choice((0, 0, end, end, max(0, end - 1), random.randrange(end + 2), -1))
        if low.endswith("bytes"):
            return random.choice((1, 0, 100, 10_000, 1 << 20))
        if low in ("num_partitions", "count"):
            return random.choice((-1, 1, 1, 2, 3))
        return random.choice((0, 1, 1, 2, 3))

    def _known_number(self, low: str) -> int | None:
        """Return a number for a field whose name has a fixed meaning, or None for any other
        field.
        """
        random = self.random
        if low == "acks":
            return random.choice((-1, -1, 1, 0))
        if low.endswith("producer_id"):
            return self._producer.producer_id
        if low.endswith("producer_epoch"):
            return self._producer.producer_epoch
        if low == "session_id":
            return self._session[0]
        if low == "session_epoch":
            return self._session[1]
        if low.startswith("generation_id"):
            return self._generation
        if low == "replication_factor":
            return random.choice((1, -1))
        if low == "resource_type":
            return random.choice((2, 2, 4))
        if low in ("broker_ids", "replicas"):
            return 1
        return None

    def _text(self, name: str, parent: str, nullable: bool) -> bytes | None:
        """Return a text that suits the field's name. The chosen topic is remembered for the fields
        that follow.
        """
        random = self.random
        if nullable and parent != "Produce" and random.random() < 0.3:
            return None
        if random.random() < self.wild:
            return random.choice(LETTERS).encode()
        low = name.lower()
        if "transactional_id" in low:
            own = self._producer.transactional_id
            if own is None and parent == "Produce":
                return None
            chosen = (
                own
                if own is not None and random.random() < 0.9
                else random.choice(TRANSACTIONAL_IDS)
            )
            return chosen.encode()
        if low in ("group_id", "groups", "groups_names", "key", "coordinator_keys"):
            return self._group.encode()
        if low == "member_id":
            return self._member.encode()
        if low == "group_instance_id":
            return random.choice((b"static-1", b"static-2"))
        if low == "protocol_type":
            return b"consumer"
        if "Protocol" in parent or low == "protocol_name":
            return random.choice((b"range", b"range", b"sticky"))
        if "Config" in parent and low in ("name", "value", "config_name"):
            return random.choice(CONFIGS)[0 if low != "value" else 1].encode()
        if low == "configuration_keys":
            return random.choice(CONFIGS)[0].encode()
        if low == "resource_name":
            return random.choice((*BASE_TOPICS, "1", "")).encode()
        if low in ("client_software_name", "client_software_version"):
            return b"fuzz.1"
        self._topic = random.choice(tuple(BASE_TOPICS) if random.random() < 0.9 else OTHER_TOPICS)
        return self._topic.encode()

    def _topic_id(self) -> uuid.UUID:
        """Return a topic id, in most cases that of a known topic. The topic is remembered for the
        fields that follow.
        """
        known = self.knowledge.topic_ids
        if not known or self.random.random() < 0.1:
            return uuid.UUID(int=self.random.choice((0, 1, 99)))
        self._topic = self.random.choice(list(known))
        return known[self._topic]

    def _blob(self, name: str, nullable: bool) -> bytes | None:
        """Return a batch for a field `records`, or otherwise bytes such as an empty assignment."""
        if name == "records":
            return None if nullable and self.random.random() < 0.02 else self.batch()
        return self.random.choice(
            (b"", b"\0\1\0\0\0\0\0\0", self.random.randbytes(self.random.randrange(40)))
        )

    def batch(self) -> bytes:
        """Return a batch of the chosen producer for the chosen partition. It is mutated with four
        times the probability `wild`.
        """
        random = self.random
        producer = self._producer
        transactional = producer.transactional_id is not None and random.random() < 0.9
        records = [
            NewRecord(
                random.choice((None, b"k%d" % random.randrange(5))),
                random.randbytes(random.randrange(60)),
                self.now_ms + number,
            )
            for number in range(random.choice((1, 1, 2, 5, 30)))
        ]
        sequence = -1
        if producer.producer_id >= 0:
            place = (producer.producer_id, producer.producer_epoch, self._topic, self._partition)
            sequence = max(
                0, self.knowledge.next_sequence.get(place, 0) + random.choice((0, 0, 0, 0, -1, 1))
            )
        batch = encode_batch(
            records,
            codec=random.choice((0, 0, 0, 1, 2, 3, 4)),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        return bytes(batch) if random.random() >= self.wild * 4 else mutated_batch(batch, random)


def mutated_batch(batch: bytearray, random: Random) -> bytes:
    """Return a corrupted batch. In half of the cases its checksum is correct."""
    for _ in range(random.choice((1, 1, 2, 4))):
        what = random.random()
        at = (
            random.randrange(len(batch))
            if what < 0.4
            else random.choice((8, 16, 21, 22, 23, 27, 35, 43, 51, 53, 57, 61, 62, 63)) % len(batch)
        )
        if what < 0.7:
            batch[at] = random.choice(
                (
                    0,
                    1,
                    0x7F,
                    0x80,
                    0xFF,
                    random.randrange(256),
                    batch[at] ^ 1 << random.randrange(8),
                )
            )
        elif what < 0.85:
            width = random.choice((2, 4, 8))
            at = min(at, len(batch) - width)
            value = random.choice(INTERESTING) % (1 << 8 * width)
            batch[at : at + width] = value.to_bytes(width)
        elif what < 0.93:
            del batch[random.randrange(62, len(batch) + 1) :]
            if random.random() < 0.7:
                struct.pack_into(">i", batch, 8, len(batch) - 12)
        else:
            batch += random.randbytes(random.randrange(1, 80))
            if random.random() < 0.5:
                struct.pack_into(">i", batch, 8, len(batch) - 12)
    if random.random() < 0.5 and len(batch) > CRC_START:
        struct.pack_into(">I", batch, 17, computed_crc(batch))
    return bytes(batch)


def mutated(frame: bytes, other: bytes, random: Random) -> bytes:
    """A corrupted frame, or the start of `frame` joined to the end of `other`."""
    data = bytearray(frame)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        what = random.randrange(9)
        at = random.randrange(len(data)) if data else 0
        if what <= 2 and data:
            data[at] = random.choice(
                (0, 1, 0x7F, 0x80, 0xFF, random.randrange(256), data[at] ^ 1 << random.randrange(8))
            )
        elif what == 3:
            width = random.choice((2, 4, 8))
            data[at : at + width] = (random.choice(INTERESTING) % (1 << 8 * width)).to_bytes(width)
        elif what == 4:
            del data[at:]
        elif what == 5:
            del data[at : at + random.randrange(1, 9)]
        elif what == 6:
            data[at:at] = random.randbytes(random.randrange(1, 9))
        elif what == 7:
            data[at:at] = data[at : at + random.randrange(1, 64)]
        else:
            data[at:] = other[random.randrange(len(other)) :]
    return bytes(data)


def _length(length: int, kind: str, flexible: bool) -> bytes:
    """The encoded length of a string, of bytes or of an array."""
    if not flexible:
        return struct.pack(">h" if kind == "string" else ">i", length)
    value, out = length + 1, bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
