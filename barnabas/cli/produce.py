"""`barnabas produce`: sends the lines of standard input as records."""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import click

from barnabas.cli.cluster import Connection
from barnabas.cli.errors import CommandError
from barnabas.cli.options import SETTING, connection_options, examples, json_option
from barnabas.cli.output import Output, note, progress
from barnabas.cli.records import InputRecord, parse_json_line
from barnabas.cli.waiting import LOOK_EVERY_S, TimeoutOver, Waiting
from barnabas.texts import count_text

BATCH_BYTES = 256 * 1024
REQUEST_BYTES = 100 * 1024 * 1024  # a broker's default bound; the topic's settings decide
READ_BYTES = 1 << 16
ABORT_SOON_S = 0.5
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
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="Which acknowledgement it waits for: none, the leader's, or that of all replicas.",
)
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
    settings: dict[str, Any] = {
        "compression_type": None if compression == "none" else compression,
        "acks": -1 if acks == "all" else int(acks),
        "enable_idempotence": acks == "all",
        "linger_ms": 50,
        "batch_size": BATCH_BYTES,
        "max_request_size": REQUEST_BYTES,
        "allow_auto_create_topics": True,
    }
    if transactional_id is not None:
        settings["transactional_id"] = transactional_id
    if sys.stdin.isatty():
        note("a line is a record; Ctrl-D ends")
    with connection.producer(**settings) as producer:
        sender = _Sender(producer, topic, partition, shared)
        lines = _lines(sender.look)
        records: Iterable[InputRecord] = _read(lines, output.as_json, key, key_separator)
        if by_key:
            records = (record._replace(partition=None) for record in records)
        hidden = sys.stdin.isatty()
        try:
            with progress("records", None, hidden=hidden) as bar:
                if transactional_id is None:
                    sender.send(records, bar.advance)
                else:
                    sender.send_in_transactions(records, commit_every, bar.advance)
        except (KeyboardInterrupt, Exception):
            note(_unfinished(topic, sender, transactional_id), "warning")
            raise
    _tell(output, topic, sender, transactional_id)


def _unfinished(topic: str, sender: _Sender, transactional_id: str | None) -> str:
    text = f"{topic}: ended before all was sent: {sender.acknowledged()}"
    if transactional_id is None:
        return text
    if not sender.committed:
        return f"{text}, none of them committed"
    transactions = count_text(sender.transactions, "transaction")
    return f"{text}, {sender.committed} of them committed in {transactions}"


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


def _read(
    lines: Iterable[bytes], as_json: bool, key: str | None, key_separator: str | None
) -> Iterator[InputRecord]:
    separator = None if key_separator is None else key_separator.encode()
    shared_key = None if key is None else key.encode()
    for number, line in enumerate(lines, 1):
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


def _lines(look: Callable[[], None]) -> Iterator[bytes]:
    """The lines of standard input. `look` runs while there is none to be had.

    The descriptor is read without Python's buffer, since select sees only what is not in a buffer.
    """
    try:
        descriptor = sys.stdin.fileno()
    except OSError:  # no file, as in a program that gives its own stream
        yield from sys.stdin.buffer
        return
    rest = b""
    while True:
        while not select.select([descriptor], [], [], LOOK_EVERY_S)[0]:
            look()
        data = os.read(descriptor, READ_BYTES)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
    if rest:
        yield rest


class _Sender:
    """Sends records and waits for their answers. count, transactions: acknowledged ones.

    last: the last offset of each partition. committed: the records of committed transactions.
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
        self._pending: deque[Any] = deque()
        self._silence = producer.waiting.silence()
        self.count = 0
        self.committed = 0
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
        except (KeyboardInterrupt, TimeoutOver):
            raise
        except BaseException:
            self._wait()
            raise
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
        except BaseException as error:
            if in_transaction:
                self._abort(soon=isinstance(error, KeyboardInterrupt | TimeoutOver))
            raise

    def _commit(self) -> None:
        self._wait()
        self._producer.commit_transaction()
        self.transactions += 1
        self.committed = self.count

    def _abort(self, *, soon: bool) -> None:
        """Abort, if the coordinator allows it: a fenced producer's transaction has ended.

        Takes: soon, after Ctrl-C, or where the broker does not answer.
        """
        from kafka.errors import KafkaError

        waiting = self._producer.waiting
        timeout_s = ABORT_SOON_S if soon else waiting.timeout_s
        try:
            Waiting(waiting.address, timeout_s).call(
                "the abort of the open transaction", self._producer.client.abort_transaction
            )
            note("the open transaction is aborted")
        except TimeoutOver:
            note("the open transaction will be aborted by its timeout: the broker does not answer")
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
        if not self._pending:
            self._silence.end()
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

    def look(self) -> None:
        """Count the records that the broker has acknowledged.

        Raises: TimeoutOver, where no answer came for the timeout; the client's error for a record.
        """
        while self._pending and self._pending[0].is_done:
            sent = self._pending.popleft().get()
            self.count += 1
            self.last[sent.partition] = max(sent.offset, self.last.get(sent.partition, -1))
            self._silence.end()
        if self._pending:
            count = count_text(len(self._pending), "record")
            self._silence.look(f"its acknowledgement of {count}")

    def acknowledged(self) -> str:
        """What was acknowledged and committed, for a command that ended before its input."""
        answered = sum(future.is_done and not future.failed() for future in self._pending)
        count = self.count + answered
        was = "was" if count == 1 else "were"
        return f"{count_text(count, 'record')} {was} acknowledged"

    def _wait(self) -> None:
        from kafka.errors import KafkaTimeoutError

        while self._pending:
            with suppress(KafkaTimeoutError):
                self._producer.client.flush(timeout=LOOK_EVERY_S)
            self.look()
