"""`barnabas produce`: sends the lines of standard input as records."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from barnabas.cli.cluster import Connection
from barnabas.cli.errors import CommandError
from barnabas.cli.options import SETTING, connection_options, examples, json_option
from barnabas.cli.output import Output, note, progress
from barnabas.cli.records import InputRecord, parse_json_line
from barnabas.texts import count_text

BATCH_BYTES = 256 * 1024
PENDING_MOST = 20_000  # the most unanswered records before reading goes on


@click.command(
    epilog=examples(
        "echo hello | barnabas produce greetings",
        "barnabas produce orders --key-separator : < orders.txt",
        "barnabas produce orders --transactional-id load-1 < orders.txt",
        "barnabas consume orders --json | barnabas produce copy --json --transactional-id copy-1",
    )
)
@click.argument("topic")
@click.option("-k", "--key", help="The key of all records.")
@click.option("-K", "--key-separator", metavar="TEXT", help="The separator between key and value.")
@click.option(
    "-H", "--header", "headers", type=SETTING, multiple=True, help="A header of all records."
)
@click.option("-p", "--partition", type=click.IntRange(0), help="Where to; else by key.")
@click.option("--by-key", is_flag=True, help="By key, whatever partition a line of JSON names.")
@click.option("-t", "--transactional-id", help="All in one transaction, or see --commit-every.")
@click.option(
    "--commit-every", metavar="N", type=click.IntRange(1), help="A transaction for each N records."
)
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none"
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@connection_options
@json_option
def produce(
    connection: Connection,
    output: Output,
    topic: str,
    key: str | None,
    key_separator: str | None,
    headers: Sequence[tuple[str, str]],
    partition: int | None,
    by_key: bool,
    transactional_id: str | None,
    commit_every: int | None,
    compression: str,
    acks: str,
) -> None:
    """Write the lines of standard input to a topic, a record each.

    With --json a line is an object with value, and if need be key, headers, partition and
    timestamp_ms: what `barnabas consume --json` prints. With --transactional-id nothing is visible
    to read_committed readers before the input has ended; where it ends in an error or with Ctrl-C,
    all of the open transaction is aborted.
    """
    if commit_every is not None and transactional_id is None:
        raise click.UsageError("--commit-every needs --transactional-id")
    if transactional_id is not None and acks != "all":
        raise click.UsageError("a transaction needs --acks all")
    shared = tuple((name, value.encode()) for name, value in headers)
    records: Iterable[InputRecord] = _read(output.as_json, key, key_separator)
    settings: dict[str, Any] = {
        "compression_type": None if compression == "none" else compression,
        "acks": -1 if acks == "all" else int(acks),
        "enable_idempotence": acks == "all",
        "linger_ms": 50,
        "batch_size": BATCH_BYTES,
        "allow_auto_create_topics": True,
    }
    if transactional_id is not None:
        settings["transactional_id"] = transactional_id
    if by_key:
        records = (record._replace(partition=None) for record in records)
    if sys.stdin.isatty():
        note("a line is a record; Ctrl-D ends")
    with connection.producer(**settings) as producer:
        sender = _Sender(producer, topic, partition, shared)
        hidden = sys.stdin.isatty()
        with progress("records", None, hidden=hidden) as bar:
            if transactional_id is None:
                sender.send(records, bar.advance)
            else:
                sender.send_in_transactions(records, commit_every, bar.advance)
    _tell(output, topic, sender, transactional_id)


def _tell(output: Output, topic: str, sender: _Sender, transactional_id: str | None) -> None:
    if output.as_json:
        output.data(
            {
                "topic": topic,
                "records": sender.count,
                "transactional_id": transactional_id,
                "transactions": sender.transactions,
                "last_offsets": {str(index): last for index, last in sorted(sender.last.items())},
            }
        )
        return
    what = count_text(sender.count, "record")
    if transactional_id is not None:
        what += f" in {count_text(sender.transactions, 'transaction')}"
    note(f"{topic}: {what}")


def _read(as_json: bool, key: str | None, key_separator: str | None) -> Iterator[InputRecord]:
    separator = None if key_separator is None else key_separator.encode()
    shared_key = None if key is None else key.encode()
    for number, line in enumerate(sys.stdin.buffer, 1):
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if as_json:
            if not line.strip():
                continue
            record = parse_json_line(line, number)
            yield record if record.key is not None else record._replace(key=shared_key)
        elif separator is None:
            yield InputRecord(shared_key, line)
        else:
            own_key, found, value = line.partition(separator)
            if not found:
                raise CommandError(f"line {number} has no {key_separator!r} (--key-separator)")
            yield InputRecord(own_key, value)


class _Sender:
    """Sends records and waits for their answers. count, transactions: acknowledged ones.

    last: the last offset of each partition.
    """

    def __init__(
        self,
        producer: Any,
        topic: str,
        partition: int | None,
        headers: tuple[tuple[str, bytes], ...],
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._headers = headers
        self._pending: list[Any] = []
        self.count = 0
        self.transactions = 0
        self.last: dict[int, int] = {}
        self._partitions = frozenset(producer.partitions_for(topic) or ())
        self._check_partition(partition)

    def send(self, records: Iterable[InputRecord], advance: Any) -> None:
        """Send all records. If reading fails, the records read before are sent."""
        try:
            for record in records:
                self._send_one(record)
                advance()
        finally:
            self._wait()

    def send_in_transactions(
        self, records: Iterable[InputRecord], every: int | None, advance: Any
    ) -> None:
        """Send all records in transactions; a failure aborts the open one."""
        self._producer.init_transactions()
        in_transaction = 0
        try:
            for record in records:
                if in_transaction == 0:
                    self._producer.begin_transaction()
                self._send_one(record)
                in_transaction += 1
                advance()
                if in_transaction == every:
                    self._commit()
                    in_transaction = 0
            if in_transaction:
                self._commit()
        except BaseException:
            if in_transaction:
                self._abort()
            raise

    def _commit(self) -> None:
        self._wait()
        self._producer.commit_transaction()
        self.transactions += 1

    def _abort(self) -> None:
        """Abort, if the coordinator allows it: a fenced producer's transaction has ended."""
        from kafka.errors import KafkaError

        try:
            self._producer.abort_transaction()
            note("the open transaction is aborted")
        except (KafkaError, AssertionError, ValueError, RuntimeError) as error:
            note(f"the open transaction will be aborted by its timeout: {error}")

    def _check_partition(self, partition: int | None) -> None:
        if partition is not None and partition not in self._partitions:
            count = count_text(len(self._partitions), "partition")
            raise CommandError(
                f"the topic {self._topic!r} has {count}, and a record is for number {partition}: "
                "pass --by-key, or create the topic with as many as the other topic"
            )

    def _send_one(self, record: InputRecord) -> None:
        if len(self._pending) >= PENDING_MOST:
            self._wait()
        self._check_partition(record.partition)
        self._pending.append(
            self._producer.send(
                self._topic,
                key=record.key,
                value=record.value,
                headers=[*self._headers, *record.headers],
                partition=self._partition if record.partition is None else record.partition,
                timestamp_ms=record.timestamp_ms,
            )
        )

    def _wait(self) -> None:
        self._producer.flush()
        for future in self._pending:
            sent = future.get()
            self.count += 1
            self.last[sent.partition] = max(sent.offset, self.last.get(sent.partition, -1))
        self._pending = []
