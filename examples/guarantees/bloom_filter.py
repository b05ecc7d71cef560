"""Removes repeated records with a Bloom filter, and counts what that costs.

A set of all keys finds each repetition and grows with the keys. A Bloom filter has a fixed size: it
knows each key that was added, and takes a new key for a known one with a small probability. A
record with such a key is dropped although it is new: the filter never doubles, and loses a few.

Reading, filtering and writing are one transaction for each batch. The filter is in memory; a
restart makes it again from the output, which has each key that was let through.

Without options the script starts its own broker, sends 20,000 records of 10,000 keys, each twice,
and filters them with an error of 1 % and of 0.01 %.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from confluent_kafka import Producer
from guarantee_tools import (
    CLIENT,
    TIMEOUT_S,
    Batches,
    broker_at,
    make_topic,
    new_consumer,
    next_offsets,
    publish,
    read_committed,
    send,
)

PARTITIONS = 3


class BloomFilter:
    """A set of bytes that may take a new element for a known one, with a probability of at most
    `error` while it has at most `capacity` elements.

    Source: B. H. Bloom, Space/Time Trade-offs in Hash Coding with Allowable Errors, CACM 13 (1970).
            With n elements, m bits and k = m/n ln 2 hashes the error is 2 ** -k.
    """

    def __init__(self, capacity: int, error: float) -> None:
        self.hash_count = max(1, round(-math.log2(error)))
        self.bit_count = math.ceil(-capacity * math.log(error) / math.log(2) ** 2)
        self.bits = bytearray(-(-self.bit_count // 8))

    def _places(self, element: bytes) -> Iterator[int]:
        """The bits of an element: from two hashes, as many as are needed."""
        digest = hashlib.blake2b(element, digest_size=16).digest()
        first, step = int.from_bytes(digest[:8]), int.from_bytes(digest[8:]) | 1
        for number in range(self.hash_count):
            yield (first + number * step) % self.bit_count

    def __contains__(self, element: bytes) -> bool:
        return all(self.bits[at >> 3] & 1 << (at & 7) for at in self._places(element))

    def add(self, element: bytes) -> None:
        """Know the element from now on."""
        for at in self._places(element):
            self.bits[at >> 3] |= 1 << (at & 7)


class Outcome(NamedTuple):
    """What a run did."""

    records: int
    written: int
    filter_bytes: int


def deduplicate(
    servers: str, source: str, target: str, filter_of_keys: BloomFilter, *, batches: int | None
) -> Outcome:
    """Write each record whose key the filter does not know, and commit the offsets with it.

    Takes:  batches, after how many of them to stop; None to go on to the end of the input.
    """
    producer = Producer({"bootstrap.servers": servers, "transactional.id": target, **CLIENT})
    producer.init_transactions(TIMEOUT_S)  # the output that is read next is final
    for value in read_committed(servers, target):
        filter_of_keys.add(value)
    consumer = new_consumer(servers, target)
    consumer.subscribe([source])
    records = written = 0
    try:
        reader = Batches(consumer, 500)
        while batches != 0 and (batch := reader.next()) is not None:
            membership = consumer.consumer_group_metadata()
            new: list[tuple[bytes, bytes]] = []
            for message in batch:
                key = message.value() or b""
                if key not in filter_of_keys:
                    filter_of_keys.add(key)
                    new.append((key, key))
            producer.begin_transaction()
            send(producer, target, new)
            producer.send_offsets_to_transaction(next_offsets(batch), membership, TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
            records, written = records + len(batch), written + len(new)
            batches = None if batches is None else batches - 1
    finally:
        consumer.close()
    return Outcome(records, written, len(filter_of_keys.bits))


def keys_of(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Records whose value is their key."""
    for number in range(count):
        yield b"%d" % number, b"reading-%d" % number


def main(arguments: Sequence[str] | None = None) -> int:
    """Filter the same records with two errors, and print a table. Gives: the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap-servers", help="host:port; without it a broker is started")
    parser.add_argument("--keys", type=int, default=10_000, help="each is sent twice (10000)")
    parser.add_argument("--source", default="readings-sent-twice", help="(readings-sent-twice)")
    options = parser.parse_args(arguments)
    with broker_at(options.bootstrap_servers) as servers:
        make_topic(servers, options.source, PARTITIONS)
        for _ in range(2):
            publish(servers, options.source, keys_of(options.keys))
        print("| error | records | written | new records lost | filter |\n|---|---|---|---|---|")
        for error in (0.01, 0.0001):
            target = f"{options.source}-once-{error}"
            make_topic(servers, target, PARTITIONS)
            found = deduplicate(
                servers, options.source, target, BloomFilter(options.keys, error), batches=None
            )
            lost = options.keys - len(set(read_committed(servers, target)))
            print(
                f"| {error:.2%} | {found.records:,} | {found.written:,} | {lost:,} "
                f"| {found.filter_bytes:,} bytes |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
