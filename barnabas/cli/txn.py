"""`barnabas txn`: list, describe, abort, commit, why-stuck."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from barnabas.cli.client import transactions as requests
from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.transactions import Transaction
from barnabas.cli.cluster import Connection
from barnabas.cli.completing import complete_topic, complete_transactional_id
from barnabas.cli.errors import NOT_GOOD, OK, CommandError
from barnabas.cli.options import (
    TOPIC_PARTITION,
    confirm,
    connection_options,
    ending,
    json_option,
    yes_option,
)
from barnabas.cli.output import Column, Output, note
from barnabas.cli.why_stuck import (
    StuckPartition,
    find_open_transactions,
    gather,
    owner_text,
    state_text,
    stuck_partitions,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import NO_TIMEOUT_MS, count_text, duration_text, time_text
from barnabas.why_stuck import ONGOING, OpenTransaction, as_data, sentence, transaction_data

OPEN_STATES = (ONGOING, "PrepareCommit", "PrepareAbort")
MARKER_PATIENCE_S = 10.0
SESSION_TIMEOUT_MS = 60_000


def _now_ms() -> int:
    return round(time.time() * 1000)


@click.group()
def txn() -> None:
    """Transactions: list, describe, abort, commit, and why a partition is stuck."""


@txn.command("list", epilog=ending("barnabas txn list", "barnabas txn list --open --json"))
@click.option("--open", "only_open", is_flag=True, help="Only transactions that are not complete.")
@click.option(
    "--state", "states", multiple=True, help="Only transactions in this state, such as Ongoing."
)
@connection_options
@json_option
def list_transactions(
    connection: Connection, output: Output, only_open: bool, states: Sequence[str]
) -> None:
    """List transactional ids with their states, and how long their transactions have been open."""
    wanted = {state.lower() for state in (*states, *(OPEN_STATES if only_open else ()))}
    with connection.admin() as admin:
        listed = [
            row
            for row in requests.list_transactions(admin)
            if not wanted or row.state.lower() in wanted
        ]
        open_ids = [row.transactional_id for row in listed if row.state in OPEN_STATES]
        described = requests.describe_transactions(admin, open_ids, missing_ok=True)
    now_ms = _now_ms()
    rows: list[dict[str, Any]] = []
    for row in listed:
        found = described.get(row.transactional_id)
        began_ms = -1 if found is None or found.state not in OPEN_STATES else found.started_ms
        rows.append(
            {
                "transactional_id": row.transactional_id,
                "producer_id": row.producer_id,
                "state": row.state,
                "start_time_ms": began_ms,
                "age_ms": max(now_ms - began_ms, 0) if began_ms >= 0 else None,
                "timeout_ms": None if found is None else found.timeout_ms,
            }
        )
    if output.as_json:
        output.data(rows)
        return
    for shown in rows:
        age_ms, timeout_ms = shown["age_ms"], shown["timeout_ms"]
        shown["age"] = None if age_ms is None else duration_text(age_ms)
        shown["timeout"] = None if timeout_ms is None else _timeout_text(timeout_ms)
    columns = [
        Column("transactional_id", "TRANSACTIONAL ID", "name"),
        Column("producer_id", "PRODUCER"),
        Column("state", "STATE"),
        Column("age", "OPEN FOR"),
        Column("timeout", "TIMEOUT"),
    ]
    output.table(rows, columns, "no transactions")


@txn.command("describe", epilog=ending("barnabas txn describe payments"))
@click.argument(
    "names",
    metavar="TRANSACTIONAL-ID...",
    nargs=-1,
    required=True,
    shell_complete=complete_transactional_id,
)
@connection_options
@json_option
def describe(connection: Connection, output: Output, names: Sequence[str]) -> None:
    """Describe transactions.

    Shows state, producer and epoch, start time, timeout, partitions, coordinator.
    """
    now_ms = _now_ms()
    with connection.admin() as admin:
        described = requests.describe_transactions(admin, names)
    rows = [_description(described[name]) for name in names]
    if output.as_json:
        output.data(rows)
        return
    for row in rows:
        output.heading(row["transactional_id"])
        pairs = [("state", row["state"]), ("producer", row["producer_id"])]
        pairs += [("epoch", row["producer_epoch"])]
        if row["start_time_ms"] >= 0 and row["state"] in OPEN_STATES:
            pairs += [("open since", time_text(row["start_time_ms"]))]
            pairs += [("open for", duration_text(max(now_ms - row["start_time_ms"], 0)))]
        pairs += [("timeout", _timeout_text(row["timeout_ms"])), ("partitions", row["partitions"])]
        output.fields([*pairs, ("coordinator", row["coordinator_id"])])


def _timeout_text(timeout_ms: int) -> str:
    return "none: two-phase commit" if timeout_ms == NO_TIMEOUT_MS else duration_text(timeout_ms)


def _description(transaction: Transaction) -> dict[str, Any]:
    """A transaction as a row of `describe`."""
    return {
        "transactional_id": transaction.transactional_id,
        "coordinator_id": transaction.coordinator_id,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "start_time_ms": transaction.started_ms,
        "timeout_ms": transaction.timeout_ms,
        "partitions": sorted(map(str, transaction.partitions)),
    }


@txn.command(
    "why-stuck",
    epilog=ending(
        "barnabas txn why-stuck",
        "barnabas txn why-stuck orders-0",
        "barnabas txn why-stuck orders-0 --json",
        not_good="stuck",
    ),
)
@click.argument("name", metavar="[TOPIC-PARTITION]", required=False, shell_complete=complete_topic)
@connection_options
@json_option
def why_stuck(connection: Connection, output: Output, name: str | None) -> int:
    """Explain why a partition is stuck; without a name, list all stuck partitions.

    The answer names the transaction that holds back the last stable offset, its producer, its age
    and its state, what will end it and when, and which groups wait for it. Exit code 3 if a
    partition is stuck, 0 if none is.
    """
    if name is None:
        return _list_stuck(connection, output)
    with connection.admin() as admin:
        answer = gather(admin, name, _now_ms())
    if output.as_json:
        output.data(as_data(answer))
    else:
        output.line(sentence(answer), "" if answer.is_stuck else "good")
    return NOT_GOOD if answer.is_stuck else OK


def _list_stuck(connection: Connection, output: Output) -> int:
    """List all stuck partitions. Gives: the exit code."""
    with connection.admin() as admin:
        stuck = stuck_partitions(admin)
    now_ms = _now_ms()
    if output.as_json:
        output.data([_stuck_data(row, now_ms) for row in stuck])
        return NOT_GOOD if stuck else OK
    if not stuck:
        output.line("no partition is stuck", "good")
        return OK
    rows = [
        {
            "partition": str(row.partition),
            "last_stable_offset": row.last_stable_offset,
            "held": row.held,
            "owner": owner_text(row.holder),
            "state": state_text(row.holder),
            "age": duration_text(row.age_ms(now_ms)),
        }
        for row in stuck
    ]
    columns = [
        Column("partition", "PARTITION", "name"),
        Column("last_stable_offset", "STUCK AT"),
        Column("held", "HELD BACK"),
        Column("owner", "OWNER"),
        Column("state", "STATE"),
        Column("age", "OPEN FOR"),
    ]
    output.table(rows, columns)
    note(
        f"`barnabas txn why-stuck {rows[0]['partition']}` says what will end it, and which "
        "groups wait"
    )
    return NOT_GOOD


def _stuck_data(row: StuckPartition, now_ms: int) -> dict[str, Any]:
    """A stuck partition for JSON."""
    holder = row.holder
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "last_stable_offset": row.last_stable_offset,
        "high_watermark": row.high_watermark,
        "age_ms": row.age_ms(now_ms),
        "transaction": None if holder is None else transaction_data(holder),
    }


@txn.command(
    "abort",
    epilog=ending(
        "barnabas txn abort orders-0", "barnabas txn abort --transactional-id payments --yes"
    ),
)
@click.argument("partition", metavar="[TOPIC-PARTITION]", type=TOPIC_PARTITION, required=False)
@click.option(
    "--start-offset",
    type=click.IntRange(0),
    help="The offset where the transaction begins; by default the first hanging one.",
)
@click.option(
    "--transactional-id",
    shell_complete=complete_transactional_id,
    help="Abort its open transaction, and fence its producer.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Abort the transaction even if its coordinator would still end it.",
)
@yes_option
@connection_options
@json_option
def abort(
    connection: Connection,
    output: Output,
    partition: TopicPartition | None,
    start_offset: int | None,
    transactional_id: str | None,
    force: bool,
    yes: bool,
) -> None:
    """Abort a transaction.

    TOPIC-PARTITION selects a hanging transaction of that partition, which no coordinator will end:
    the command writes the missing marker. --transactional-id selects the open transaction of that
    id on all partitions: the command becomes a new producer of the id, which aborts the transaction
    and fences the old producer.
    """
    if (partition is None) == (transactional_id is None):
        raise click.UsageError("give either TOPIC-PARTITION or --transactional-id")
    if transactional_id is not None:
        _fence(connection, output, transactional_id, yes=yes)
        return
    assert partition is not None
    transaction = _abort_on(connection, partition, start_offset, force=force, yes=yes)
    done = {
        **partition._asdict(),
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "start_offset": transaction.start_offset,
        "aborted": True,
    }
    if output.as_json:
        output.data(done)
    else:
        output.line(
            f"{partition}: aborted the transaction of producer {transaction.producer_id} that "
            f"began at offset {transaction.start_offset}"
        )


def _abort_on(
    connection: Connection,
    partition: TopicPartition,
    start_offset: int | None,
    *,
    force: bool,
    yes: bool,
) -> OpenTransaction:
    """Write the missing marker of a hanging transaction. Gives: the transaction that was
    aborted.
    """
    with connection.admin() as admin:
        transaction = _choose(find_open_transactions(admin, partition), partition, start_offset)
        if not transaction.is_hanging and not force:
            raise CommandError(
                f"the transaction of {transaction.transactional_id!r} at offset "
                f"{transaction.start_offset} does not hang: its coordinator has it in state "
                f"{transaction.state}. Abort it on all its partitions with `barnabas txn abort "
                f"--transactional-id {transaction.transactional_id}`; --force writes the marker "
                "here alone"
            )
        confirm(
            f"Abort the transaction of producer {transaction.producer_id} epoch "
            f"{transaction.producer_epoch} at offset {transaction.start_offset} of {partition}?",
            yes=yes,
        )
        requests.write_abort_marker(
            admin,
            partition,
            transaction.producer_id,
            transaction.producer_epoch,
            max(transaction.coordinator_epoch, 0),
        )
        _wait_until_closed(admin, partition, transaction)
    return transaction


def _choose(
    transactions: Sequence[OpenTransaction], partition: TopicPartition, start_offset: int | None
) -> OpenTransaction:
    """The transaction to abort: the one that begins at `start_offset`, if it is given, else the
    first hanging transaction, else the first open one. Raises: CommandError.
    """
    if not transactions:
        raise CommandError(f"no transaction is open on {partition}")
    if start_offset is None:
        hanging = [row for row in transactions if row.is_hanging]
        return (hanging or list(transactions))[0]
    chosen = [row for row in transactions if row.start_offset == start_offset]
    if not chosen:
        offsets = ", ".join(str(row.start_offset) for row in transactions)
        raise CommandError(
            f"no open transaction begins at offset {start_offset} of {partition}; there are: "
            f"{offsets}"
        )
    return chosen[0]


def _wait_until_closed(
    admin: ClusterClient, partition: TopicPartition, transaction: OpenTransaction
) -> None:
    """Wait until the marker has ended the transaction. Raises: CommandError if the transaction is
    still open after MARKER_PATIENCE_S.
    """
    deadline = time.monotonic() + MARKER_PATIENCE_S
    while any(
        row.producer_id == transaction.producer_id and row.start_offset == transaction.start_offset
        for row in find_open_transactions(admin, partition)
    ):
        if time.monotonic() > deadline:
            raise CommandError(
                f"the marker was written, and the transaction is still open on {partition}: try "
                "again"
            )
        time.sleep(0.1)


def _fence(connection: Connection, output: Output, name: str, *, yes: bool) -> None:
    """Send InitProducerId. The coordinator then aborts the open transaction, and raises the
    epoch.
    """
    with connection.admin() as admin:
        description = requests.describe_transactions(admin, [name])[name]
    partitions = count_text(len(description.partitions), "partition")
    confirm(
        f"Abort the open transaction of {name!r} ({description.state}, {partitions}), "
        "and fence its producer?",
        yes=yes,
    )
    timeout_ms = description.timeout_ms
    # The producer of the open transaction uses two-phase commit, without a timeout. The session
    # that this command begins needs a timeout.
    if timeout_ms == NO_TIMEOUT_MS:
        timeout_ms = SESSION_TIMEOUT_MS
    with connection.admin() as admin:
        requests.init_producer(admin, name, timeout_ms)
        after = requests.describe_transactions(admin, [name])[name]
    done = {
        "transactional_id": name,
        "aborted": description.state == ONGOING,
        "state_before": description.state,
        "state": after.state,
        "producer_id": after.producer_id,
        "producer_epoch": after.producer_epoch,
    }
    if output.as_json:
        output.data(done)
        return
    what = "aborted its open transaction" if done["aborted"] else "nothing was open"
    output.line(f"{name}: {what}; a producer with an epoch below {after.producer_epoch} is fenced")


@txn.command("commit", epilog=ending("barnabas txn commit payments --state 42:7"))
@click.argument("name", metavar="TRANSACTIONAL-ID", shell_complete=complete_transactional_id)
@click.option(
    "--state",
    metavar="PRODUCER:EPOCH",
    required=True,
    help="The state of the prepared transaction, as the other system stores it.",
)
@yes_option
@connection_options
@json_option
def commit(connection: Connection, output: Output, name: str, state: str, yes: bool) -> None:
    """Commit an abandoned transaction that two-phase commit has prepared.

    It is committed only if its state is the given one; otherwise nothing changes. Its producer is
    fenced. To abort one instead: `barnabas txn abort --transactional-id`.
    """
    with connection.admin() as admin:
        description = requests.describe_transactions(admin, [name])[name]
    opened = f"{description.producer_id}:{description.producer_epoch}"
    if description.state != ONGOING or opened != state:
        what = f"the one of {opened} is" if description.state == ONGOING else "nothing is"
        raise CommandError(f"{name!r} has no open transaction {state}: {what} open")
    partitions = count_text(len(description.partitions), "partition")
    confirm(f"Commit the transaction {state} of {name!r} ({partitions})?", yes=yes)
    try:
        with connection.two_phase_producer(name) as producer:
            prepared_state = connection.waiting.call("recover", producer.recover)
            is_committed = prepared_state == state and connection.waiting.call(
                "the commit", producer.complete, state
            )
    except CommandError:
        raise
    except ValueError as error:  # a setting is wrong
        raise CommandError(str(error)) from error
    except Exception as error:
        raise CommandError(f"{name!r}: {error}") from error
    if not is_committed:
        raise CommandError(f"{name!r}: another transaction was begun meanwhile; it is left open")
    if output.as_json:
        output.data({"transactional_id": name, "state": state, "committed": True})
    else:
        output.line(f"{name}: committed the transaction {state}; its producer is fenced")
