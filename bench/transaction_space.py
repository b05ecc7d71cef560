"""What space do transactions take? `python -m bench.transaction_space`

Writes the same records without and with transactions, stops the broker, and counts the bytes of the
log files. Bytes do not depend on the machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from barnabas import LocalBroker

TRANSACTIONS = 50
VALUE = b"x" * 100
SHAPES = ((1, 1), (1, 100), (1, 1000), (10, 10), (10, 100), (100, 1), (100, 100))


class Sizes(NamedTuple):
    """Bytes of files."""

    data: int
    log: int
    aborted: int  # of .txnindex

    @classmethod
    def of(cls, directory: Path) -> Sizes:
        """The sizes of what a stopped broker has written."""

        def total(pattern: str) -> int:
            return sum(path.stat().st_size for path in directory.glob(pattern))

        return cls(
            total("t-*/*.log"), total("__transaction_state-*/*.log"), total("t-*/*.txnindex")
        )


class Row(NamedTuple):
    """Bytes of one transaction, of `partitions` with `records` in each."""

    partitions: int
    records: int
    plain: float  # the same records without a transaction
    data: float  # in a transaction, without the markers
    markers: float
    log: float  # in __transaction_state

    @property
    def more(self) -> float:
        """The additional bytes, as a share of the plain ones."""
        return (self.data + self.markers + self.log) / self.plain - 1


def measured(partitions: int, records: int, *, transactional: bool, commit: bool = True) -> Sizes:
    """Write the batches, and return the bytes of the logs, by kind."""
    with tempfile.TemporaryDirectory() as folder:
        with LocalBroker(Path(folder, "data"), topics={"t": partitions}) as broker:
            settings = {
                "bootstrap.servers": broker.bootstrap_servers,
                "log_level": 0,
                "linger.ms": 1000,  # all records of a partition are one batch
                "batch.num.messages": 1_000_000,
            }
            if transactional:
                settings["transactional.id"] = "space"
            producer = Producer({**settings, "enable.idempotence": True})
            if transactional:
                producer.init_transactions(30)
            for _ in range(TRANSACTIONS):
                if transactional:
                    producer.begin_transaction()
                for partition in range(partitions):
                    for _ in range(records):
                        producer.produce("t", VALUE, partition=partition)
                producer.flush(60)
                if transactional:
                    (producer.commit_transaction if commit else producer.abort_transaction)(30)
            broker.stop()
        return Sizes.of(Path(folder, "data"))


MARKER_BYTES = 78  # a batch of 61 bytes with a control record: of 16 bytes and its length


def rows() -> Iterator[Row]:
    """Measure each shape."""
    for partitions, records in SHAPES:
        plain = measured(partitions, records, transactional=False)
        within = measured(partitions, records, transactional=True)
        markers = MARKER_BYTES * partitions
        yield Row(
            partitions,
            records,
            plain.data / TRANSACTIONS,
            within.data / TRANSACTIONS - markers,
            markers,
            within.log / TRANSACTIONS,
        )


def main() -> None:
    """Print a table."""
    print(
        "| partitions x records | plain | transactional | markers | `__transaction_state` | more |"
    )
    print("|---|---|---|---|---|---|")
    for row in rows():
        print(
            f"| {row.partitions:,} x {row.records:,} | {row.plain:,.0f} | {row.data:,.0f} "
            f"| {row.markers:,.0f} | {row.log:,.0f} | {row.more:.1%} |",
            flush=True,
        )
    aborted = measured(1, 1, transactional=True, commit=False)
    print(f"\nan aborted transaction: {aborted.aborted / TRANSACTIONS:.0f} bytes in .txnindex")


if __name__ == "__main__":
    main()
