"""`barnabas check`: is a broker healthy, which versions does it have, does a transaction work?"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import click

from barnabas.cli.cluster import Connection
from barnabas.cli.errors import NOT_GOOD, OK, CommandError, explain
from barnabas.cli.offsets import client_partitions
from barnabas.cli.options import connection_options, examples, json_option
from barnabas.cli.output import Column, Output
from barnabas.cli.why_stuck import owner_text, stuck_partitions
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import count_text, duration_text

ABORTED = b"aborted"
COMMITTED = b"committed"
PREFIX = "barnabas-check-"
NAMED_MOST = 10  # partitions named in a line


class CheckError(Exception):
    """A step of the check has a bad answer."""


@click.command(
    epilog=examples(
        "barnabas check",
        "barnabas check kafka-1:9092 --read-only",
        "barnabas check 127.0.0.1:9092 --apis",
    )
)
@click.argument("address", required=False)
@click.option("--read-only", is_flag=True, help="Leave out the transaction, which makes a topic.")
@click.option(
    "--stuck-after",
    "stuck_after_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="A partition behind a transaction that is open for longer is not healthy.",
)
@click.option("--apis", is_flag=True, help="List the requests that it speaks, with versions.")
@connection_options
@json_option
def check(
    connection: Connection,
    output: Output,
    address: str | None,
    read_only: bool,
    stuck_after_s: float,
    apis: bool,
) -> int:
    """Check a broker: can it be reached, which versions does it have, is each partition served, is
    none stuck behind a transaction, and does a transaction work?

    The transaction uses a topic of its own (barnabas-check-…): it commits a record, aborts another,
    reads with both levels of isolation, and deletes the topic. Exit code 3 where a step fails.
    """
    if address is not None:
        connection.bootstrap_servers = address
    run = _Run(connection, read_only=read_only, stuck_after_s=stuck_after_s)
    run.all()
    if output.as_json:
        output.data(
            {
                "address": connection.bootstrap_servers,
                "healthy": run.is_healthy,
                "steps": run.steps,
                "apis": run.apis,
            }
        )
    else:
        _print(output, run, apis=apis)
    return OK if run.is_healthy else NOT_GOOD


def _print(output: Output, run: _Run, *, apis: bool) -> None:
    for step in run.steps:
        mark = {True: "ok", False: "FAILED", None: "skipped"}[step["ok"]]
        took = f"  {step['took_ms']} ms" if step["ok"] is not None else ""
        style = {True: "", False: "bad", None: "dim"}[step["ok"]]
        output.line(f"{mark:<8}{step['step']:<13} {step['result']}{took}", style)
    if apis:
        columns = [Column("key", "KEY"), Column("api", "REQUEST", "name")]
        columns += [Column("min_version", "FROM"), Column("max_version", "TO")]
        output.table(run.apis, columns)
    address = run.connection.bootstrap_servers
    if run.is_healthy:
        output.line(f"{address} is healthy", "good")
    else:
        output.line(f"{address} is not healthy", "bad")


class _Run:
    """One check. steps: their results; apis: the versions of requests."""

    def __init__(self, connection: Connection, *, read_only: bool, stuck_after_s: float) -> None:
        self.connection = connection
        self.read_only = read_only
        self.stuck_after_s = stuck_after_s
        self.steps: list[dict[str, Any]] = []
        self.apis: list[dict[str, Any]] = []

    @property
    def is_healthy(self) -> bool:
        """Whether no step failed."""
        return all(step["ok"] is not False for step in self.steps)

    def all(self) -> None:
        """Run the steps; stop at a failure that makes the later steps pointless."""
        if not self._step("connection", self._connect):
            return
        try:
            with self.connection.admin() as admin:
                self._step("protocol", lambda: self._speak(admin))
                self._step("cluster", lambda: _cluster(admin))
                self._step("partitions", lambda: _partitions(admin))
                self._step("stuck", lambda: _stuck(admin, self.stuck_after_s))
                if self.read_only:
                    self._skip("transaction", "--read-only")
                elif self._step("transaction", lambda: self._transact(admin)):
                    self._step("coordinators", lambda: _coordinators(admin))
        except Exception as error:
            if not _is_expected(error):
                raise
            self._add("protocol", False, explain(error), 0)

    def _step(self, name: str, do: Callable[[], str]) -> bool:
        began = time.monotonic()
        try:
            result, is_good = do(), True
        except Exception as error:
            if not _is_expected(error):
                raise
            is_expected = isinstance(error, CheckError | CommandError)
            result, is_good = str(error) if is_expected else explain(error), False
        self._add(name, is_good, result, round((time.monotonic() - began) * 1000))
        return is_good

    def _skip(self, name: str, why: str) -> None:
        self._add(name, None, why, 0)

    def _add(self, name: str, is_good: bool | None, result: str, took_ms: int) -> None:
        self.steps.append({"step": name, "ok": is_good, "result": result, "took_ms": took_ms})

    def _connect(self) -> str:
        self.connection.try_connect()
        return "a TCP connection is accepted"

    def _speak(self, admin: Any) -> str:
        spoken = admin.api_versions()
        self.apis = [
            {"key": int(key), "api": key.name, "min_version": low, "max_version": high}
            for key, (low, high) in sorted(spoken.items())
        ]
        return count_text(len(self.apis), "kind of request", "kinds of requests")

    def _transact(self, admin: Any) -> str:
        """Commit one record and abort another; see that readers get what they should."""
        name = PREFIX + uuid.uuid4().hex[:8]
        admin.create_topics({name: {"num_partitions": 1}}, wait_for_metadata=True)
        try:
            with self.connection.producer(transactional_id=name) as producer:
                producer.init_transactions()
                for value, end in (
                    (ABORTED, producer.abort_transaction),
                    (COMMITTED, producer.commit_transaction),
                ):
                    producer.begin_transaction()
                    producer.send(name, value).get(timeout=self.connection.timeout_s)
                    end()
            committed = self._read(name, "read_committed", 1)
            everything = self._read(name, "read_uncommitted", 2)
        finally:
            admin.delete_topics([name])
        if committed != [COMMITTED]:
            raise CheckError(f"read_committed gave {committed}, not only the committed record")
        if everything != [ABORTED, COMMITTED]:
            raise CheckError(f"read_uncommitted gave {everything}, not both records")
        return "one committed, one aborted; read_committed sees the committed record alone"

    def _read(self, topic: str, isolation_level: str, count: int) -> list[bytes]:
        """The values of a topic, in order, once there are so many."""
        (key,) = client_partitions([TopicPartition(topic, 0)])
        values: list[bytes] = []
        with self.connection.consumer(isolation_level=isolation_level) as consumer:
            consumer.assign([key])
            consumer.seek_to_beginning(key)
            deadline = time.monotonic() + self.connection.timeout_s
            end = consumer.end_offsets([key])[key]
            while time.monotonic() < deadline:
                for rows in consumer.poll(timeout_ms=200).values():
                    values += [row.value for row in rows]
                if len(values) >= count and consumer.position(key) >= end:
                    break
        return values


def _is_expected(error: Exception) -> bool:
    """Whether the cause is the broker or the connection, not our code."""
    from barnabas.cli.root import is_client_error

    return isinstance(error, CheckError | CommandError) or is_client_error(error)


def _cluster(admin: Any) -> str:
    cluster = admin.describe_cluster()
    brokers = ", ".join(
        f"{row['broker_id']} at {row['host']}:{row['port']}" for row in cluster["brokers"]
    )
    if not cluster["brokers"]:
        raise CheckError("it names no broker")
    return f"id {cluster['cluster_id']}; brokers: {brokers}; controller {cluster['controller_id']}"


def _partitions(admin: Any) -> str:
    topics = admin.describe_topics()
    rows = [(topic["name"], row) for topic in topics for row in topic["partitions"]]
    offline = [f"{name}-{row['partition_index']}" for name, row in rows if row["leader_id"] < 0]
    behind = [
        f"{name}-{row['partition_index']}"
        for name, row in rows
        if len(row["isr_nodes"]) < len(row["replica_nodes"])
    ]
    total = f"{count_text(len(topics), 'topic')}, {count_text(len(rows), 'partition')}"
    if offline:
        raise CheckError(
            f"{total}; without a leader: {', '.join(offline[:10])} (the broker's log says why; "
            "`barnabas log verify` looks into its directory)"
        )
    if behind:
        raise CheckError(f"{total}; with replicas out of sync: {', '.join(behind[:10])}")
    return f"{total}, each with a leader"


def _stuck(admin: Any, stuck_after_s: float) -> str:
    """Refuse partitions that a transaction has held for too long."""
    now_ms = round(time.time() * 1000)
    stuck = stuck_partitions(admin)
    if not stuck:
        return "no partition is behind an open transaction"
    texts = [
        f"{row.partition} for {duration_text(row.age_ms(now_ms))} by {owner_text(row.holder)}"
        for row in sorted(stuck, key=lambda row: -row.age_ms(now_ms))[:NAMED_MOST]
    ]
    more = len(stuck) - len(texts)
    total = count_text(len(stuck), "partition")
    text = f"{total} behind an open transaction: {', '.join(texts)}"
    text += f" and {more} more" if more else ""
    if max(row.age_ms(now_ms) for row in stuck) >= stuck_after_s * 1000:
        raise CheckError(f"{text} (`barnabas txn why-stuck` says why)")
    return text


def _coordinators(admin: Any) -> str:
    listed = [row for rows in admin.list_transactions().values() for row in rows]
    groups = admin.list_groups()
    open_states = ("Ongoing", "PrepareCommit", "PrepareAbort")
    open_count = sum(row.state.value in open_states for row in listed)
    return (
        f"{count_text(len(groups), 'group')}, {count_text(len(listed), 'transactional id')}, "
        f"{count_text(open_count, 'open transaction')}"
    )
