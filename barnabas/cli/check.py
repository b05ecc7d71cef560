"""`barnabas check`: is a broker healthy, which versions does it have, does a transaction work?"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from typing import Any

import click

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.groups import list_groups
from barnabas.cli.client.log_dirs import LOG_DIRS, log_dirs
from barnabas.cli.client.transactions import list_transactions
from barnabas.cli.cluster import Connection
from barnabas.cli.denied import CHECK_PREFIX, denied_kind
from barnabas.cli.errors import NOT_GOOD, OK, CommandError, explain
from barnabas.cli.group_rows import describe_groups, is_waited_for
from barnabas.cli.offsets import describe_topics, list_offsets
from barnabas.cli.options import connection_options, ending, json_option
from barnabas.cli.output import Column, Output
from barnabas.cli.why_stuck import owner_text, stuck_partitions
from barnabas.protocol.api_table import APIS
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import count_text, duration_text, size_text

ABORTED = b"aborted"
COMMITTED = b"committed"
NAMED_MOST = 10  # the maximum number of partitions, or groups, that one message lists
MAY_BE_DENIED = ("disk", "groups")  # the steps that need rights which a client may lack
GROUPS_MOST = 200  # the maximum number of groups that are described, with some requests for each


class CheckError(Exception):
    """A step of the check has failed."""


class SkipStep(Exception):
    """A step of the check cannot be made with this broker, or this user."""


@click.command(
    epilog=ending(
        "barnabas check",
        "barnabas check kafka-1:9092 --read-only",
        "barnabas check 127.0.0.1:9092 --apis",
        not_good="not healthy",
    )
)
@click.argument("address", required=False)
@click.option("--read-only", is_flag=True, help="Leave out the transaction, which creates a topic.")
@click.option(
    "--stuck-after",
    "stuck_after_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="How long a transaction may be open before its partitions count as not healthy.",
)
@click.option("--apis", is_flag=True, help="List the supported requests, with their versions.")
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
    """Check a broker: can it be reached, which versions does it support, is each partition served,
    has its disk room for records, does a transaction block a partition, what do groups wait for,
    and does a transaction work?

    The transaction uses a topic of its own (barnabas-check-…): it commits a record, aborts another,
    reads with both levels of isolation, and deletes the topic. Exit code 3 if a step fails.
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
    """A run of the check's steps.

    steps: the results so far. apis: the versions of each API that the broker supports.
    """

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
        """Run the steps; stop at a failure after which later steps cannot succeed."""
        with contextlib.ExitStack() as stack:
            clients: list[ClusterClient] = []

            def connect() -> str:
                clients.append(stack.enter_context(self.connection.admin()))
                return "connected" + (", logged in" if self.connection.has_login() else "")

            if not self._step("connection", connect):
                return
            (admin,) = clients
            self._step("protocol", lambda: self._list_apis(admin))
            self._step("cluster", lambda: _cluster(admin))
            self._step("partitions", lambda: _partitions(admin))
            self._step("disk", lambda: _disk(admin))
            self._step("stuck", lambda: _stuck(admin, self.stuck_after_s))
            self._step("groups", lambda: _groups(admin))
            if self.read_only:
                self._skip("transaction", "--read-only")
            elif self._step("transaction", lambda: _transact(admin)):
                self._step("coordinators", lambda: _coordinators(admin))

    def _step(self, name: str, do: Callable[[], str]) -> bool:
        """Run a step, and record its result and duration. Gives: whether it succeeded. An error of
        the broker or the connection fails the step; any other exception is a defect of our own code
        and is raised.
        """
        began = time.monotonic()
        try:
            result, is_good = do(), True
        except SkipStep as skipped:
            self._skip(name, str(skipped))
            return True
        except Exception as error:
            if name in MAY_BE_DENIED and denied_kind(error):
                self._skip(name, explain(error))
                return True
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

    def _list_apis(self, admin: ClusterClient) -> str:
        """Store the requests that the broker supports, with their versions, for --apis."""
        names = {api.key: api.name for api in APIS}
        self.apis = [
            {"key": key, "api": names.get(key, "?"), "min_version": low, "max_version": high}
            for key, (low, high) in sorted(admin.api_versions().items())
        ]
        return count_text(len(self.apis), "kind of request", "kinds of requests")


def _transact(admin: ClusterClient) -> str:
    """Commit one record and abort another; check the records that readers get."""
    from barnabas.cli.client.records import Transactions, read_records
    from barnabas.cli.client.topic_changes import create_topics, delete_topics

    name = CHECK_PREFIX + uuid.uuid4().hex[:8]
    partition = TopicPartition(name, 0)
    if (error := create_topics(admin, [name], 1, -1, {})[name]) is not None:
        raise error
    try:
        now_ms = round(time.time() * 1000)
        transactions = Transactions(admin, name, partition)
        transactions.write(ABORTED, commit=False, timestamp=now_ms)
        transactions.write(COMMITTED, commit=True, timestamp=now_ms)
        end = list_offsets(admin, [partition])[partition]["last_stable_offset"]
        committed, everything = (
            [row.value for row in read_records(admin, partition, 0, end, read_committed=only)]
            for only in (True, False)
        )
    finally:
        delete_topics(admin, [name])
    if committed != [COMMITTED]:
        raise CheckError(f"read_committed gave {committed}, not only the committed record")
    if everything != [ABORTED, COMMITTED]:
        raise CheckError(f"read_uncommitted gave {everything}, not both records")
    return "one committed, one aborted; read_committed gives only the committed record"


def _is_expected(error: Exception) -> bool:
    """Whether an error comes from the broker or the connection, not from a defect in our code."""
    from barnabas.cli.root import is_client_error

    return isinstance(error, CheckError | CommandError) or is_client_error(error)


def _cluster(admin: ClusterClient) -> str:
    """The id, brokers and controller of the cluster. Raises: CheckError if the metadata name no
    broker.
    """
    admin.refresh([])
    brokers = ", ".join(f"{row.node_id} at {row.host}:{row.port}" for row in admin.brokers.values())
    if not brokers:
        raise CheckError("the metadata name no broker")
    return f"id {admin.cluster_id}; brokers: {brokers}; controller {admin.controller_id}"


def _partitions(admin: ClusterClient) -> str:
    """The number of topics and partitions. Raises: CheckError if a partition has no leader or a
    replica that is not in sync.
    """
    topics = describe_topics(admin)
    rows = [(topic.name, row) for topic in topics for row in topic.partitions]
    offline = [f"{name}-{row.partition_index}" for name, row in rows if row.leader_id < 0]
    behind = [
        f"{name}-{row.partition_index}"
        for name, row in rows
        if len(row.isr_nodes) < len(row.replica_nodes)
    ]
    total = f"{count_text(len(topics), 'topic')}, {count_text(len(rows), 'partition')}"
    if offline:
        raise CheckError(
            f"{total}; without a leader: {', '.join(offline[:10])} (the broker's log says why; "
            "`barnabas log verify` checks its directory)"
        )
    if behind:
        raise CheckError(f"{total}; with replicas out of sync: {', '.join(behind[:10])}")
    return f"{total}, each with a leader"


def _disk(admin: ClusterClient) -> str:
    """The room for records on each broker. Raises: CheckError if a broker has none."""
    if not admin.speaks(LOG_DIRS):
        raise SkipStep("the broker does not say how much room it has")
    rows = log_dirs(admin)
    texts = [
        f"broker {row.node_id} has no room for records in {row.path}"
        for row in rows
        if not row.has_room
    ]
    if texts:
        raise CheckError(
            f"{', '.join(texts[:NAMED_MOST])}: writes are refused; free some space, or shorten "
            "retention (the broker's log says how much is missing)"
        )
    known = [(row.node_id, row.usable_bytes) for row in rows if row.usable_bytes is not None]
    if not known:
        raise SkipStep("the broker does not say how much room it has")
    return ", ".join(f"{size_text(room)} usable on broker {node_id}" for node_id, room in known)


def _stuck(admin: ClusterClient, stuck_after_s: float) -> str:
    """Fail if a transaction has blocked a partition for too long."""
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


def _groups(admin: ClusterClient) -> str:
    """What the groups wait for. A group that is behind is no fault of the broker: the step fails
    only if the groups cannot be described.
    """
    listed = list_groups(admin)
    total = count_text(len(listed), "group")
    names = [row.group for row in listed[:GROUPS_MOST]]
    rows = [row for row in describe_groups(admin, names, missing_ok=True) if is_waited_for(row)]
    if len(listed) > GROUPS_MOST:
        total += f", {GROUPS_MOST} of them described"
    if not rows:
        return f"{total}, none behind"
    rows.sort(key=lambda row: -row["lag"])
    texts = [f"{row['group']}: {row['status']}" for row in rows[:NAMED_MOST]]
    more = len(rows) - len(texts)
    return f"{total}; {'; '.join(texts)}" + (f"; and {more} more" if more else "")


def _coordinators(admin: ClusterClient) -> str:
    """The numbers of groups, transactional ids and open transactions; the step succeeds if all
    coordinators answer.
    """
    listed, groups = list_transactions(admin), list_groups(admin)
    open_states = ("Ongoing", "PrepareCommit", "PrepareAbort")
    open_count = sum(row.state in open_states for row in listed)
    return (
        f"{count_text(len(groups), 'group')}, {count_text(len(listed), 'transactional id')}, "
        f"{count_text(open_count, 'open transaction')}"
    )
