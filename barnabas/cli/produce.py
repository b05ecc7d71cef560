"""`barnabas produce`: sends lines, JSON lines and CSV as records."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import click

from barnabas.cli.client.topics import describe_topics
from barnabas.cli.cluster import Connection
from barnabas.cli.denied import denied_by, denied_kind
from barnabas.cli.errors import CommandError
from barnabas.cli.options import (
    SETTING,
    connection_options,
    examples,
    exit_codes,
    help_end,
    json_option,
    section,
)
from barnabas.cli.output import Output, note, progress
from barnabas.cli.producing.input_lines import STANDARD_INPUT
from barnabas.cli.producing.input_options import InputOptions, input_options
from barnabas.cli.producing.record_encoding import RecordEncoding
from barnabas.cli.producing.record_producer import RecordProducer
from barnabas.cli.producing.record_sender import RecordSender
from barnabas.cli.records import InputRecord
from barnabas.cli.serde.schema_options import (
    KEY,
    VALUE,
    SchemaOptions,
    schema_help,
    schema_options,
)
from barnabas.cli.waiting import TimeoutOver
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Code
from barnabas.texts import count_text


@click.command(
    epilog=help_end(
        section(
            "Kinds of --input",
            "lines     a line is a value; with --key-separator, key and value",
            "jsonl     a line is a value, which is JSON                      (.jsonl, .ndjson)",
            "records   a line is what `consume --json` prints: an object with value, and if",
            "          need be key, headers, partition and timestamp_ms",
            "csv, tsv  a row is an object with a field for each column       (.csv, .tsv)",
            "FIELD is a field of a jsonl value, also within others as customer.id, or a column.",
        ),
        section("SCHEMA of --value-schema and --key-schema", *schema_help(producing=True)),
        section(
            "Data with a schema are written as JSON",
            'Avro      a union of several types as {"type": value}; bytes that are not UTF-8 as',
            '          {"base64": "..."}; times as ISO 8601, decimals as their digits',
            "Protobuf  its JSON form; names as in the .proto file or in camelCase",
        ),
        exit_codes(),
        examples(
            "echo hello | barnabas produce greetings",
            "barnabas produce orders --key-separator : < orders.txt",
            "barnabas produce orders orders.csv --key-field id --csv-type price=float",
            "barnabas produce orders orders.jsonl --key-field customer.id --header-field trace",
            "barnabas produce orders orders.csv --time-field at --omit-field at -t load-1",
            "barnabas produce orders orders.csv -s http://127.0.0.1:8081 "
            "--value-schema registry:order.avsc",
            "barnabas produce orders --transactional-id load-1 < orders.txt",
            "barnabas consume orders --json | barnabas produce copy --json --by-key -t copy-1",
        ),
    )
)
@click.argument("topic")
@input_options
@click.option("-k", "--key", help="The key of all records.")
@click.option("-K", "--key-separator", metavar="TEXT", help="The text between key and value.")
@click.option(
    "-H", "--header", "headers", type=SETTING, multiple=True, help="A header of all records."
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    help="The partition; by default it follows from the key.",
)
@click.option(
    "--by-key", is_flag=True, help="Choose partitions by key, not by the JSON lines' partition."
)
@schema_options(producing=True)
@click.option(
    "-t", "--transactional-id", help="Send all records in one transaction, or see --commit-every."
)
@click.option(
    "--commit-every",
    metavar="N",
    type=click.IntRange(1),
    help="Commit a transaction after every N records.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="The compression of batches.",
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="The acknowledgement to wait for: none, the leader's, or all replicas'.",
)
@connection_options
@json_option
def produce(
    connection: Connection,
    output: Output,
    topic: str,
    source: InputOptions,
    key: str | None,
    key_separator: str | None,
    headers: Sequence[tuple[str, str]],
    partition: int | None,
    by_key: bool,
    schemas: SchemaOptions,
    transactional_id: str | None,
    commit_every: int | None,
    compression: str,
    acks: str,
) -> None:
    """Write the lines of files or of standard input to a topic, a record each.

    A FILE named - is standard input. With --json the input is what `barnabas consume --json`
    prints, unless --input or a CSV file says otherwise, and the result is JSON. With
    --transactional-id read_committed readers see nothing until the input has ended; an error or
    Ctrl-C aborts the open transaction. Without it, the records before an error stay in the topic.
    """
    if commit_every is not None and transactional_id is None:
        raise click.UsageError("--commit-every needs --transactional-id")
    if transactional_id is not None and acks != "all":
        raise click.UsageError("a transaction needs --acks all")
    source.check(output.as_json, key, key_separator)
    shared = tuple((name, value.encode()) for name, value in headers)
    is_typed = STANDARD_INPUT in source.files and sys.stdin.isatty()
    if is_typed:
        note("each line is a record; Ctrl-D ends the input")
    _note_new_topic(connection, topic)
    with _explained(connection, topic), connection.admin() as client:
        producer = RecordProducer(
            client,
            topic,
            acks=-1 if acks == "all" else int(acks),
            codec=Codec[compression.upper()],
            transactional_id=transactional_id,
        )
        sender = RecordSender(producer, partition, shared)
        encoding = RecordEncoding(_encoders(schemas, connection, topic))
        values = source.values(
            output.as_json,
            None if key is None else key.encode(),
            key_separator,
            encoding.columns,
            sender.look,
        )
        records: Iterable[InputRecord] = map(encoding.record, values)
        if by_key:
            records = (record._replace(partition=None) for record in records)
        try:
            with progress("records", None, hidden=is_typed) as bar:
                if transactional_id is None:
                    sender.send(records, bar.advance)
                else:
                    sender.send_in_transactions(records, commit_every, bar.advance)
        except (KeyboardInterrupt, Exception):
            note(_unfinished(topic, sender, transactional_id), "warning")
            raise
    _show_result(output, topic, sender, transactional_id)


def _note_new_topic(connection: Connection, topic: str) -> None:
    """Say that the broker is going to create the topic: its name may be a mistake."""
    with connection.admin() as admin:
        (found,) = describe_topics(admin, [topic])
        if found.error_code != Code.UNKNOWN_TOPIC_OR_PARTITION:
            return
        known = [row.name or "" for row in describe_topics(admin)]
    near = get_close_matches(topic, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    note(f"there is no topic {topic!r} yet: it is created with the first record{hint}")


def _lack_of_room(connection: Connection) -> str:
    """Which brokers have no room for records; empty if all have, or if they do not say it."""
    from barnabas.cli.client.log_dirs import without_room

    try:
        with connection.admin() as admin:
            return without_room(admin)
    except Exception:  # the error of the producer is the one to show
        return ""


@contextmanager
def _explained(connection: Connection, topic: str) -> Iterator[None]:
    """Report what the producer's error does not say: that the disk of a broker is full, so that it
    waits in vain; or a missing permission to create the topic.

    A broker refuses a topic that the user may not write to in the same way as a topic that the user
    may not create. A user who may write to a topic may also describe it. So a request that
    describes the topic shows whether the topic is missing.

    Raises: CommandError.
    """
    try:
        yield
    except TimeoutOver as error:
        if not (reason := _lack_of_room(connection)):
            raise
        raise CommandError(f"{error}. The reason: {reason}") from error
    except Exception as error:
        if denied_kind(error) != "topic":
            raise
        with connection.admin() as admin:
            (found,) = describe_topics(admin, [topic])
        if found.error_code != Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        text = denied_by(error, topic, operation="create")
        raise CommandError(f"there is no topic {topic}, and {text}") from error


def _encoders(schemas: SchemaOptions, connection: Connection, topic: str) -> dict[str, Any]:
    """The encoders of keys and values that have a schema."""
    if not schemas.is_used():
        return {}
    from barnabas.cli.serde.serdes import Encoder

    registry = schemas.registry(connection)
    parts = {name: schemas.part(name) for name in (KEY, VALUE)}
    return {
        name: Encoder(part, topic, registry if part.source.is_registered else None, note)
        for name, part in parts.items()
        if part is not None
    }


def _unfinished(topic: str, sender: RecordSender, transactional_id: str | None) -> str:
    """The note about a command that ended early: how many records were acknowledged and
    committed.
    """
    text = f"{topic}: ended before all records were sent: {sender.acknowledged()}"
    if transactional_id is None:
        return text
    if not sender.committed:
        return f"{text}, none of them committed"
    transactions = count_text(sender.transactions, "transaction")
    return f"{text}, {sender.committed} of them committed in {transactions}"


def _show_result(
    output: Output, topic: str, sender: RecordSender, transactional_id: str | None
) -> None:
    """Print how many records were sent, and in how many transactions."""
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
