"""`DatabaseSink`: from topics into a database. The offsets are stored with the rows, in one
transaction of the database; the broker stores none.

The group is used only to assign partitions. A row for each partition has the next offset, and a
batch is stored only if that is where the batch begins. So a writer that has lost a partition, and
does not know it yet, stores nothing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from barnabas.exactly_once.changelog import Topics
from barnabas.exactly_once.errors import ConfigurationError, HandlerError, StuckError
from barnabas.exactly_once.handlers import check_handler, check_result
from barnabas.exactly_once.hooks import Hooks, Step
from barnabas.exactly_once.reader import Reader
from barnabas.exactly_once.records import Place, Record
from barnabas.exactly_once.settings import Clients, GroupProtocol, Retry, Start, topics_of
from barnabas.exactly_once.stopping import Stopping

_LOG = logging.getLogger(__name__)
_PATIENCE_S = 60.0
_MOST_LOSSES = 10

BatchHandler: TypeAlias = Callable[[Any, Sequence[Record]], None]


class _Superseded(Exception):
    """Another writer has moved the offset of a partition."""


def _check_transactions(connection: Any) -> None:
    """Raises: ConfigurationError for a connection in autocommit mode: by the attribute that most
    drivers have, sqlite3 from Python 3.12 on, or by sqlite3's older one.
    """
    autocommit = getattr(connection, "autocommit", None)
    if not isinstance(autocommit, bool):
        autocommit = getattr(connection, "isolation_level", "") is None
    if autocommit:
        raise ConfigurationError(
            "connect() opens a connection in autocommit mode, so rows and offsets would be stored "
            "apart, and a crash between them would double rows: leave autocommit off"
        )


class DatabaseSink:
    """Reads topics, and calls a handler that stores each batch: each record exactly once.

    Takes:  servers, application, reads, instance, starts, group_protocol, client, consumer, hooks:
            as in `Pipeline`. connect, a function that opens a connection (PEP 249) that is not in
            autocommit mode. placeholder, the driver's mark of a parameter: "%s" (psycopg, MySQL) or
            "?" (sqlite3). table, for the offsets; it is created if there is none. positions, the
            name of this sink's rows in it (`application`). batch, how many records a transaction
            has at most. retry, how often a batch is tried.
    Raises: ConfigurationError for arguments that do not fit.
    """

    def __init__(
        self,
        servers: str,
        application: str,
        *,
        reads: str | list[str] | tuple[str, ...],
        connect: Callable[[], Any],
        placeholder: str = "%s",
        table: str = "consumer_offsets",
        positions: str | None = None,
        batch: int = 500,
        instance: str | None = None,
        retry: Retry = Retry(),  # noqa: B008 (a frozen value)
        starts: Start = "earliest",
        group_protocol: GroupProtocol = "classic",
        client: Mapping[str, Any] | None = None,
        consumer: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        if placeholder not in ("%s", "?"):
            raise ConfigurationError(f"placeholder={placeholder!r}: '%s' or '?'")
        if not table.replace("_", "").replace(".", "").isalnum():
            raise ConfigurationError(f"table={table!r}: use letters, digits, '_' and '.'")
        if batch < 1:
            raise ConfigurationError("batch must be at least 1")
        self._clients = Clients(
            servers,
            application,
            instance,
            "sink",
            group_protocol,
            client=client,
            consumer_settings=consumer,
        )
        self._positions, self._topics, self._starts = (
            positions or application,
            topics_of(reads),
            starts,
        )
        self._connect, self._mark, self._table = connect, placeholder, table
        self._batch, self._retry, self._hooks = batch, retry, hooks or Hooks()
        self._handler: Callable[[Any, Sequence[Record]], object] | None = None
        self._stopping = Stopping()
        self._connection: Any = None
        self._losses = 0
        self._reader: Reader
        self._opening: set[Place] = set()
        self._stored: dict[Place, int] = {}

    def each_batch(self, handler: BatchHandler) -> BatchHandler:
        """Decorate the handler: `handler(cursor, records)` stores rows with the cursor, and does
        not commit.

        Raises: ConfigurationError for a second handler, `async def`, and a generator.
        """
        check_handler(handler, self._handler, may_be_async=False)
        self._handler = handler
        return handler

    def stop(self) -> None:
        """End `run` after the batch that is being stored. May be called from any thread."""
        self._stopping.set()

    def run(self, *, until_end: bool = False) -> None:
        """Run until `stop`, SIGTERM or SIGINT.

        If the connection to the database is lost, it is opened again; the stored offsets show
        whether the last batch was stored.

        Takes:  until_end, whether to end when all assigned partitions are read to their ends.
        Raises: FencedError, FatalError, HandlerError, OffsetsDeletedError, StuckError,
                ConfigurationError, and what hooks raise. The database's transaction is rolled back.
        """
        if self._handler is None:
            raise ConfigurationError("the sink has no handler: decorate one with @each_batch")
        topics = Topics(self._clients.common())
        if missing := [topic for topic in self._topics if not topics.partitions(topic)]:
            raise ConfigurationError(f"no such topic: {', '.join(missing)}")
        settings = self._clients.consumer(range_assignor=False, until_end=until_end)
        self._reader = Reader(
            settings,
            self._topics,
            cooperative=self._clients.is_cooperative(settings),
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
        )
        try:
            with self._stopping.by_signals():
                self._reconnect()
                self._reader.subscribe()
                while not self._stopping.is_set():
                    self._turn()
                    if until_end and not self._opening and self._reader.all_read():
                        return
        finally:
            try:
                self._reader.close()
            finally:
                self._disconnect()

    def _on_assigned(self, places: list[Place]) -> None:
        self._hooks.on_assigned(places)
        self._opening |= set(places)

    def _on_revoked(self, places: list[Place], lost: bool) -> None:
        """Between two batches there is nothing to store."""
        self._hooks.on_revoked(places, lost=lost)
        self._opening -= set(places)
        for place in places:
            self._stored.pop(place, None)

    def _turn(self) -> None:
        """Store one batch. After a failure of the database, or if another writer was there, read
        from the stored offsets.
        """
        try:
            for place in list(self._opening):
                self._open(place)
            if not self._reader.poll(self._batch, 0.1):
                return
            records: list[Record] = []
            while len(records) < self._batch and (record := self._reader.next_record()):
                records.append(record)
            self._store(records)
        except _Superseded as error:
            _LOG.warning("%s", error)
            self._hooks.on_abort("rebalance", str(error))
            self._start_over()
        except self._lost_connection() as error:
            _LOG.warning("the database: %s", error)
            self._hooks.on_abort("error", f"the database: {error}")
            self._losses += 1
            if self._losses >= _MOST_LOSSES:
                raise StuckError(
                    f"the database failed {self._losses} times in a row: {error}"
                ) from error
            self._stopping.wait(0.05 * self._losses)
            self._reconnect()
            self._start_over()

    def _start_over(self) -> None:
        """Read all partitions from the stored offsets."""
        assigned = self._reader.assigned
        self._reader.close_partitions(assigned)
        self._opening = assigned
        self._stored.clear()

    def _open(self, place: Place) -> None:
        """Read a partition from the offset in the database."""
        stored = self._position(place)
        self._reader.open(place, stored if stored >= 0 else None, latest=self._starts == "latest")
        self._stored[place] = stored
        self._opening.discard(place)

    def _execute(self, cursor: Any, statement: str, *values: Any) -> None:
        cursor.execute(statement.replace("TABLE_", self._table).replace("%s", self._mark), values)

    def _position(self, place: Place) -> int:
        """The stored offset of a partition; -1 for none, which is stored first."""
        cursor = self._connection.cursor()
        key = (self._positions, *place)
        which = "application = %s AND topic = %s AND partition_number = %s"
        for attempt in range(3):
            self._execute(cursor, f"SELECT next_offset FROM TABLE_ WHERE {which}", *key)
            row = cursor.fetchone()
            if row is not None:
                self._connection.commit()
                return int(row[0])
            try:
                self._execute(cursor, "INSERT INTO TABLE_ VALUES (%s, %s, %s, -1)", *key)
                self._connection.commit()
            except self._connection.IntegrityError:
                # Another writer has stored it at the same time.
                self._connection.rollback()
                if attempt == 2:
                    raise
        return -1

    def _store(self, records: Sequence[Record]) -> None:
        """Store rows and offsets in one transaction.

        Raises: _Superseded; HandlerError; an error of the database, whose outcome may be unknown.
        """
        assert self._handler is not None
        began = time.monotonic()
        ends = {record.place: record.offset + 1 for record in records}
        for attempt in range(1, self._retry.attempts + 1):
            cursor = self._connection.cursor()
            self._hooks.on_step(Step.AFTER_BEGIN)
            try:
                result = self._handler(cursor, records)
                break
            except self._lost_connection():
                raise
            except Exception as error:
                self._connection.rollback()
                self._hooks.on_failure(records[0], error, attempt)
                if attempt == self._retry.attempts:
                    raise HandlerError(
                        f"the handler failed {attempt} time(s) on the records from {records[0]}: "
                        f"{error!r}. Nothing of the batch is stored: mend the handler and start "
                        "again"
                    ) from error
                self._stopping.wait(self._retry.wait_s(attempt))
        if result is not None:
            check_result(result)
        self._hooks.on_step(Step.BEFORE_OFFSETS)
        for place, end in sorted(ends.items()):
            self._execute(
                cursor,
                "UPDATE TABLE_ SET next_offset = %s WHERE application = %s AND topic = %s AND "
                "partition_number = %s AND next_offset = %s",
                *(end, self._positions, *place, self._stored[place]),
            )
            if cursor.rowcount != 1:
                self._connection.rollback()
                raise _Superseded(
                    f"{place} is not at offset {self._stored[place]} in the database any more: "
                    "another writer has stored these records"
                )
        self._hooks.on_step(Step.AFTER_OFFSETS)
        self._connection.commit()
        self._stored |= ends
        self._losses = 0
        self._hooks.on_step(Step.AFTER_COMMIT)
        self._hooks.on_commit(len(records), 0, time.monotonic() - began)

    # --- the connection

    def _lost_connection(self) -> tuple[type[Exception], ...]:
        """The driver's exceptions after which a new connection is needed."""
        if self._connection is None:
            return ()
        return (self._connection.OperationalError, self._connection.InterfaceError)

    def _reconnect(self) -> None:
        """Open a connection, and make the table. The database rolls back the lost one's work.

        Raises: StuckError if there is none within a minute; ConfigurationError if it commits each
                statement.
        """
        self._disconnect()
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._connection = self._connect()
                _check_transactions(self._connection)
                cursor = self._connection.cursor()
                try:
                    self._execute(
                        cursor,
                        "CREATE TABLE IF NOT EXISTS TABLE_ (application varchar(200) NOT NULL, "
                        "topic varchar(249) NOT NULL, partition_number int NOT NULL, "
                        "next_offset bigint NOT NULL, "
                        "PRIMARY KEY (application, topic, partition_number))",
                    )
                    self._connection.commit()
                except self._connection.IntegrityError:
                    self._connection.rollback()  # another writer makes it at the same time
                    continue
                return
            except ConfigurationError:
                raise
            except Exception as error:
                self._disconnect()
                if time.monotonic() > deadline or self._stopping.is_set():
                    raise StuckError(
                        f"no connection to the database within {_PATIENCE_S:.0f} s: {error}"
                    ) from error
                self._stopping.wait(0.1)

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.rollback()  # SQLite keeps the lock while a cursor lives
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None
