"""`Pipeline`: reads records, handles them, and writes outputs, state and offsets in one
transaction."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
import traceback
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from barnabas.exactly_once.changelog import Restorer, Restoring, Topics, unlike_input
from barnabas.exactly_once.ending import Ending, Phase
from barnabas.exactly_once.errors import (
    AbortRequired,
    ConfigurationError,
    HandlerError,
    StuckError,
)
from barnabas.exactly_once.handlers import check_handler, check_result, is_async
from barnabas.exactly_once.hooks import Hooks, Step
from barnabas.exactly_once.progress import Progress
from barnabas.exactly_once.reader import Reader
from barnabas.exactly_once.records import Out, Output, Place, Record
from barnabas.exactly_once.settings import (
    Clients,
    Commit,
    GroupProtocol,
    Retry,
    Start,
    check_name,
    topics_of,
)
from barnabas.exactly_once.state import State, current_partition, key_bytes, to_json
from barnabas.exactly_once.stopping import Stopping
from barnabas.exactly_once.transaction import OutputError, Transaction

_LOG = logging.getLogger(__name__)
_BATCH = 500
_POLL_S = 0.1
_TURN_S = 0.1  # the group is served this often while records wait
_AHEAD_S = 0.005  # and this often while a transaction ends and there is nothing to read ahead
_CHECKPOINT_S = 30.0
_CHECKPOINT_CHANGES = 50_000
_MOST_ABORTS = 10  # in a row, of one kind that is no rebalance
_PATIENCE_S = 60.0
_HANGS_AFTER_S = 10.0  # more than the client needs to report that its time is over
_LAST_ABORT_S = 10.0
_TOLD_EVERY_S = 5.0

K = TypeVar("K")
V = TypeVar("V")
AsyncHandler: TypeAlias = Callable[[Record, Out], Awaitable[None]]
H = TypeVar("H", bound=Callable[[Record, Out], Any])


class _StatePart:
    """A partition of a state that is in use: its checkpoint and its place in the changelog."""

    def __init__(self, state: State[Any, Any], row: Restoring) -> None:
        self.state, self.row = state, row
        self.partition = state.partitions[row.partition] = row.state
        self.position = row.position
        self._written = time.monotonic()
        self._highest = -1

    def on_delivery(self, error: Any, message: Any) -> None:
        """Note the offset of a changelog record. Errors abort the transaction."""
        if error is None:
            self._highest = max(self._highest, message.offset())

    def commit(self, changes: Mapping[bytes, bytes | None]) -> None:
        """The transaction with these changes is committed."""
        self.partition.commit()
        checkpoint = self.row.checkpoint
        if not changes:
            return
        self.position = max(self.position, self._highest + 1)
        if checkpoint is not None:
            checkpoint.add(changes)
            now = time.monotonic()
            if now - self._written > _CHECKPOINT_S or checkpoint.pending > _CHECKPOINT_CHANGES:
                checkpoint.write(self.position)
                self._written = now

    def abort(self) -> None:
        self.partition.abort()
        self._highest = self.position - 1

    def close(self) -> None:
        """The partition goes: write the checkpoint."""
        self.state.partitions.pop(self.row.partition, None)
        if self.row.checkpoint is not None:
            self.row.checkpoint.close(self.position)


class Pipeline:
    """Reads topics, calls a handler for each record, and writes its outputs: each exactly once.

    Outputs, changes of state and the group's offsets are one transaction. Where the handler fails,
    the broker refuses, or the group moves partitions, the transaction is aborted and its records
    are read again. Readers of the outputs need isolation.level=read_committed.

    Takes:  servers, bootstrap servers "host:port,…". application, the name of the group, and the
            beginning of the names of the transactional id and of changelog topics; it must not
            change. reads, one or more input topics. commit, when to commit. instance, a name for
            this process that stays the same over restarts (static membership): a restarted process
            gets its partitions back at once, and ends its predecessor's transaction. retry, how
            often a record is tried. dead_letter, a topic for records whose handler fails; without
            one the pipeline ends. starts, where a group without offsets begins. group_protocol,
            "consumer" for KIP-848. state_dir, a directory for checkpoints of state; without one a
            restart reads whole changelogs. transaction_timeout_s, after which the broker aborts a
            dead process's transaction; a handler has to be quicker. concurrency, how many
            partitions an async handler works on at a time. client, consumer, producer: settings of
            librdkafka for all clients, or one. hooks, see `Hooks`.
    Raises: ConfigurationError for arguments that do not fit.
    Source: KIP-98, KIP-129 (state), KIP-447 (one producer for each process).
    """

    def __init__(
        self,
        servers: str,
        application: str,
        *,
        reads: str | list[str] | tuple[str, ...],
        commit: Commit = Commit(),  # noqa: B008 (a frozen value)
        instance: str | None = None,
        retry: Retry = Retry(),  # noqa: B008
        dead_letter: str | None = None,
        starts: Start = "earliest",
        group_protocol: GroupProtocol = "classic",
        state_dir: str | os.PathLike[str] | None = None,
        transaction_timeout_s: float = 10.0,
        concurrency: int = 16,
        client: Mapping[str, Any] | None = None,
        consumer: Mapping[str, Any] | None = None,
        producer: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._clients = Clients(
            servers,
            application,
            instance,
            uuid.uuid4().hex[:12],
            group_protocol,
            transaction_timeout_s,
            client,
            consumer,
            producer,
        )
        self._topics = topics_of(reads)
        if commit.seconds >= transaction_timeout_s:
            raise ConfigurationError(
                f"Commit(seconds={commit.seconds}) must be below "
                f"transaction_timeout_s={transaction_timeout_s}: the broker would abort every "
                "transaction"
            )
        if starts not in ("earliest", "latest"):
            raise ConfigurationError(f"starts={starts!r}: 'earliest' or 'latest'")
        if dead_letter in self._topics:
            raise ConfigurationError("the dead-letter topic is read by the pipeline itself")
        if concurrency < 1:
            raise ConfigurationError("concurrency must be at least 1")
        self._application = application
        self._retry, self._dead_letter, self._starts = retry, dead_letter, starts
        self._state_dir = None if state_dir is None else Path(state_dir) / application
        self._concurrency = concurrency
        self._hooks = hooks or Hooks()
        self._handler: Callable[[Record, Out], object] | None = None
        self._async_handler: AsyncHandler | None = None
        self._states: dict[str, State[Any, Any]] = {}
        self._stops = Stopping()
        self._patience_s = max(_PATIENCE_S, 2 * transaction_timeout_s)
        self._progress = Progress(commit)
        # The failures of records that are read again: how many, and the last one.
        self._failures: dict[tuple[Place, int], tuple[int, BaseException]] = {}
        self._aborts_in_a_row = 0
        self._opening: dict[int, set[Place]] = {}
        self._offsets: dict[Place, int | None] = {}
        self._restoring: dict[int, list[tuple[State[Any, Any], Restoring]]] = {}
        self._parts: dict[int, list[_StatePart]] = {}
        # What the transaction that is ending has changed in each of them.
        self._changes: list[tuple[_StatePart, dict[bytes, bytes | None]]] = []
        self._topic_ids: dict[str, str] = {}
        self._partitions = 0  # of each changelog
        self._told = 0.0
        self._admin: Topics
        self._reader: Reader
        self._transaction: Transaction
        self._restorer: Restorer | None = None
        self._ending: Ending | None = None
        self._loop: asyncio.Runner | None = None

    # --- declaring

    def each(self, handler: H) -> H:
        """Decorate the handler: `handler(record, out)`, or the same as `async def`.

        It may be called more than once for a record, so what it does outside of `out` and of state
        must bear repetition. Records of one partition are handled in order; an async handler works
        on several partitions at a time.

        Raises: ConfigurationError for a second handler, and for a generator.
        """
        check_handler(handler, self._handler or self._async_handler, may_be_async=True)
        if is_async(handler):
            self._async_handler = cast(AsyncHandler, handler)
        else:
            self._handler = handler
        return handler

    def state(
        self,
        name: str,
        *,
        default: Callable[[], V] | None = None,
        encoder: Callable[[V], bytes] = to_json,
        decoder: Callable[[bytes], V] = json.loads,
        key_encoder: Callable[[Any], bytes] = key_bytes,
        key_decoder: Callable[[bytes], Any] = bytes.decode,
    ) -> State[Any, V]:
        """A named mapping for handlers, kept in the compacted topic APPLICATION-NAME-changelog.

        The topic is created if there is none, with as many partitions as the input has.

        Takes:  default, makes the value of a key that has none: `default=int` for counts. encoder
                and decoder, of values (JSON). key_encoder and key_decoder (str and bytes; iterating
                gives str).
        Raises: ConfigurationError if the name is taken.
        """
        if check_name("state", name) in self._states:
            raise ConfigurationError(f"state {name!r} is declared twice")
        state: State[Any, V] = State(
            name,
            default=default,
            encoder=encoder,
            decoder=decoder,
            key_encoder=key_encoder,
            key_decoder=key_decoder,
        )
        self._states[name] = state
        return state

    # --- running

    def run(self, *, until_end: bool = False) -> None:
        """Run until `stop`, SIGTERM or SIGINT; then commit what was handled, and leave the group.

        Signals are caught if this is the main thread; a second one has its usual effect.

        Takes:  until_end, whether to end when all assigned partitions are read to their ends.
        Raises: FencedError, FatalError, HandlerError, OffsetsDeletedError, StuckError,
                ConfigurationError, StateError, and what hooks raise. The open transaction is
                aborted.
        """
        if self._handler is None and self._async_handler is None:
            raise ConfigurationError("the pipeline has no handler: decorate one with @each")
        with self._stops.by_signals(), contextlib.ExitStack() as stack:
            if self._async_handler is not None:
                self._loop = stack.enter_context(asyncio.Runner())
            self._prepare(until_end)
            try:
                # The predecessor's transaction ends before its offsets and its state are read.
                self._transaction.init()
                self._reader.subscribe()
                while not self._stops.is_set():
                    self._turn()
                    if until_end and self._is_at_end():
                        break
                self._commit_or_abort()
                self._close()
            except BaseException:
                self._close_after_failure()
                raise

    def _is_at_end(self) -> bool:
        """Whether all records are read and committed. Commits them, if they are read."""
        if self._opening or not self._reader.all_read():
            return False
        self._commit_or_abort()
        return self._reader.all_read()  # not after an abort

    def stop(self) -> None:
        """End `run` after the record that is being handled. May be called from any thread."""
        self._stops.set()

    def _prepare(self, until_end: bool) -> None:
        """Check the topics, make those of the states, and make the clients.

        Raises: ExactlyOnceError.
        """
        topics = self._admin = Topics(self._clients.common())
        counts = {topic: topics.partitions(topic) for topic in self._topics}
        if missing := [topic for topic, count in counts.items() if not count]:
            raise ConfigurationError(
                f"no such topic: {', '.join(missing)}. Create the input topics before the pipeline"
            )
        if self._states and len(set(counts.values())) > 1:
            raise ConfigurationError(
                f"the input topics have different numbers of partitions ({counts}). State needs "
                "the same number, so that a key has the same partition in all of them"
            )
        self._partitions = counts[self._topics[0]]
        for name in self._states:
            self._topic_ids[name] = topics.make_compacted(
                self._changelog(name), self._partitions, f"state {name!r}"
            )
        if self._states:
            self._restorer = Restorer(self._clients.restorer(), topics, self._wait_for)
        settings = self._clients.consumer(
            range_assignor=bool(self._states) and len(self._topics) > 1, until_end=until_end
        )
        self._transaction = self._new_transaction()
        self._reader = Reader(
            settings,
            self._topics,
            cooperative=self._clients.is_cooperative(settings),
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
        )

    def _new_transaction(self) -> Transaction:
        return Transaction(self._clients.producer(), self._patience_s)

    def _changelog(self, state: str) -> str:
        return f"{self._application}-{state}-changelog"

    def _wait_for(self, what: str) -> None:
        _LOG.warning("waiting: %s", what)
        self._hooks.on_waiting(what)

    def _turn(self) -> None:
        """Serve the group, handle records for a while, and commit if it is time. While a
        transaction ends, read ahead.
        """
        try:
            if self._ending is not None:
                if not self._reader.read_ahead() and self._ending is not None:
                    self._ending.wait(_AHEAD_S)
                self._go_on_committing(0)
                return
            is_restoring = self._open_partitions()
            now = time.monotonic()
            wait_s = 0.0 if is_restoring else 0.01 if self._opening else _POLL_S
            if self._transaction.is_open:
                wait_s = min(wait_s, self._progress.due_in_s(now))
            if self._reader.poll(_BATCH, wait_s):
                if self._loop is not None:
                    self._loop.run(self._handle_concurrently())
                else:
                    self._handle_in_order(time.monotonic() + _TURN_S)
            if self._transaction.is_open:
                self._transaction.poll()
                if self._progress.is_due(time.monotonic()):
                    self._begin_commit()
        except AbortRequired as error:
            self._abort(error)

    # --- handling records

    def _handle_in_order(self, until: float) -> None:
        """Handle waiting records until there is none, the transaction is due, or the time."""
        assert self._handler is not None
        while (record := self._reader.next_record()) is not None:
            self._begin(record)
            out, result = Out(record), None
            token = current_partition.set(record.partition)
            try:
                if self._is_given_up(record):
                    raise self._failures[record.place, record.offset][1]
                result = self._handler(record, out)
            except (Exception, asyncio.CancelledError) as error:
                self._on_failure(record, error, out)
            finally:
                current_partition.reset(token)
            if result is not None:
                check_result(result)
            self._finish(record, out)
            now = time.monotonic()
            if self._progress.is_due(now) or now >= until or self._stops.is_set():
                return

    async def _handle_concurrently(self) -> None:
        """Handle waiting records, those of each partition in order, until there is none, the
        transaction is due, or one fails. The others wait again.
        """
        lanes: dict[int, deque[Record]] = {}
        for _ in range(_BATCH):
            record = self._reader.next_record()
            if record is None:
                break
            # Topics with the same partition number share state.
            lanes.setdefault(record.partition, deque()).append(record)
        gate, failures = asyncio.Semaphore(self._concurrency), list[BaseException]()
        await asyncio.gather(*(self._handle_lane(lane, gate, failures) for lane in lanes.values()))
        self._reader.put_back([record for lane in lanes.values() for record in lane])
        # What ends the pipeline comes before what only aborts the transaction.
        for failure in sorted(failures, key=lambda each: isinstance(each, AbortRequired)):
            raise failure

    async def _handle_lane(
        self, lane: deque[Record], gate: asyncio.Semaphore, failures: list[BaseException]
    ) -> None:
        """Handle records of a partition. After: `lane` has those that were not begun."""
        current_partition.set(lane[0].partition)  # a task has its own context
        async with gate:
            try:
                while lane and not failures and not self._is_turn_over():
                    await self._handle_one(lane.popleft())
            except Exception as error:
                failures.append(error)

    def _is_turn_over(self) -> bool:
        """Whether an async handler is called no more before the transaction is committed."""
        return self._stops.is_set() or (
            self._transaction.is_open and self._progress.is_due(time.monotonic())
        )

    async def _handle_one(self, record: Record) -> None:
        assert self._async_handler is not None
        self._begin(record)
        out = Out(record)
        try:
            if self._is_given_up(record):
                raise self._failures[record.place, record.offset][1]
            await self._async_handler(record, out)
        except Exception as error:
            self._on_failure(record, error, out)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the pipeline's own loop is ending
            self._on_failure(record, error, out)
        self._finish(record, out)

    def _begin(self, record: Record) -> None:
        """The record belongs to the open transaction; begin one if there is none."""
        if not self._transaction.is_open:
            self._hooks.on_step(Step.BEFORE_BEGIN)
            self._transaction.begin()
            self._progress.begin(time.monotonic())
            self._hooks.on_step(Step.AFTER_BEGIN)
        self._progress.touch(record)

    def _finish(self, record: Record, out: Out) -> None:
        """Write a record's outputs in the transaction, and keep its changes of state."""
        size = 0
        if out.outputs:
            self._hooks.on_step(Step.BEFORE_PRODUCE)
            try:
                for output in out.outputs:
                    self._transaction.produce(output)
                    size += len(output.value or b"") + len(output.key or b"")
            except OutputError as error:
                if self._is_given_up(record):
                    raise self._lost_dead_letter(record, error) from error
                # Some outputs may be written: the next time, the record is given up at once.
                self._failures[record.place, record.offset] = (self._retry.attempts, error)
                self._hooks.on_failure(record, error, self._retry.attempts)
                if self._dead_letter is None:
                    raise self._handler_error(record, error) from error
                raise AbortRequired(f"{record}: {error}", "handler") from error
            self._hooks.on_step(Step.AFTER_PRODUCE)
        for part in self._parts.get(record.partition, ()):
            part.partition.keep_record()
        self._progress.add(record, len(out.outputs), size)
        if self._failures:
            self._failures.pop((record.place, record.offset), None)

    def _is_given_up(self, record: Record) -> bool:
        """Whether the record failed for the last time already."""
        if not self._failures:
            return False
        count, _ = self._failures.get((record.place, record.offset), (0, None))
        return count >= self._retry.attempts

    def _on_failure(self, record: Record, error: BaseException, out: Out) -> None:
        """The handler failed. Undo what it did; then repeat, write a dead letter, or end.

        Raises: AbortRequired to repeat it; HandlerError if that was its last attempt, and there is
                no dead-letter topic.
        """
        for part in self._parts.get(record.partition, ()):
            part.partition.undo_record()
        out.outputs.clear()
        where = (record.place, record.offset)
        count, _ = self._failures.get(where, (0, None))
        if count < self._retry.attempts:
            count += 1
            self._failures[where] = (count, error)
            self._hooks.on_failure(record, error, count)
        if count < self._retry.attempts:
            raise AbortRequired(f"the handler failed on {record}: {error!r}", "handler") from error
        if self._dead_letter is None:
            raise self._handler_error(record, error) from error
        _LOG.warning("%s goes to %s: %r", record, self._dead_letter, error)
        self._hooks.on_dead_letter(record, error)
        out.outputs.append(dead_letter_of(self._dead_letter, record, error, count))

    def _handler_error(self, record: Record, error: BaseException) -> HandlerError:
        return HandlerError(
            f"the handler failed on {record} after {self._retry.attempts} attempt(s): {error!r}. "
            "Nothing of its transaction is committed. Mend the handler and start again, or give "
            "the pipeline a dead_letter topic, to which such records go"
        )

    def _lost_dead_letter(self, record: Record, error: OutputError) -> HandlerError:
        _, failure = self._failures[record.place, record.offset]
        return HandlerError(
            f"the handler failed on {record}: {failure!r}, and its dead letter cannot be written "
            f"to {self._dead_letter}: {error}. It has the record's key and value, and headers: "
            "raise message.max.bytes of the producer, and max.message.bytes of the topic"
        )

    # --- ending transactions

    def _begin_commit(self) -> None:
        """Write the changelog, and begin to add the offsets.

        Raises: AbortRequired; ExactlyOnceError.
        After:  `_go_on_committing` does the rest.
        """
        ending = Ending(time.monotonic(), self._patience_s + _HANGS_AFTER_S)
        step = self._hooks.on_step
        self._changes = [(part, part.partition.changes()) for part in self._all_parts()]
        if any(changes for _, changes in self._changes):
            step(Step.BEFORE_CHANGELOG)
            for part, changes in self._changes:
                self._write_changes(part, changes)
            step(Step.AFTER_CHANGELOG)
        step(Step.BEFORE_OFFSETS)
        ends, membership = self._progress.ends, self._reader.membership()
        ending.start(Phase.OFFSETS, lambda: self._transaction.send_offsets(ends, membership))
        self._ending = ending

    def _go_on_committing(self, timeout_s: float | None = None) -> None:
        """Do the next steps of a transaction's end, as far as the broker has answered.

        Takes:  timeout_s, how long to wait for each answer; None for as long as it takes.
        Raises: AbortRequired; ExactlyOnceError.
        """
        step, progress = self._hooks.on_step, self._progress
        while (ending := self._ending) is not None and ending.wait(timeout_s):
            self._ending = None
            ending.check()
            if ending.phase is Phase.OFFSETS:
                step(Step.AFTER_OFFSETS)
                step(Step.BEFORE_COMMIT)
                ending.start(Phase.DECISION, self._transaction.commit)
                self._ending = ending
                continue
            for part, changes in self._changes:
                part.commit(changes)
            self._changes = []
            records, outputs = progress.records, progress.outputs
            progress.clear()
            self._aborts_in_a_row = 0
            step(Step.AFTER_COMMIT)
            self._hooks.on_commit(records, outputs, time.monotonic() - ending.began)

    def _write_changes(self, part: _StatePart, changes: Mapping[bytes, bytes | None]) -> None:
        """Write the changes of a partition of a state to its changelog."""
        topic = self._changelog(part.state.name)
        for key, value in changes.items():
            output = Output(topic, value, key, partition=part.row.partition)
            try:
                self._transaction.produce(output, part.on_delivery)
            except OutputError as error:
                raise StuckError(
                    f"state {part.state.name!r}, key {key!r}: {error}. Keep smaller values, or "
                    "raise message.max.bytes of the producer, and max.message.bytes of the topic"
                ) from error

    def _commit_or_abort(self, places: Iterable[Place] = ()) -> None:
        """End the open transaction, before these partitions go.

        Raises: ExactlyOnceError.
        """
        try:
            if self._ending is None and self._transaction.is_open:
                self._begin_commit()
            self._go_on_committing()
        except AbortRequired as error:
            self._abort(error, places)

    def _abort(self, reason: AbortRequired, gone: Iterable[Place] = ()) -> None:
        """Abort the open transaction, undo the changes of state, and read its records again.

        Takes:  gone, partitions whose records another instance will read.
        Raises: StuckError if nothing but aborts happens; ConfigurationError if an output topic does
                not exist; ExactlyOnceError.
        """
        _LOG.warning("aborting (%s): %s", reason.kind, reason)
        self._hooks.on_abort(reason.kind, str(reason))
        if reason.undelivered:
            self._admin.check(reason.undelivered)
        begins = self._progress.without(gone)
        self._hooks.on_step(Step.BEFORE_ABORT)
        self._transaction.abort()
        for part in self._all_parts():
            part.abort()
        self._reader.rewind(begins)
        self._progress.clear()
        self._hooks.on_step(Step.AFTER_ABORT)
        if reason.kind == "handler":
            self._back_off()
        elif reason.kind == "error":
            self._aborts_in_a_row += 1
            if self._aborts_in_a_row >= _MOST_ABORTS:
                raise StuckError(
                    f"{self._aborts_in_a_row} transactions in a row were aborted; the last one: "
                    f"{reason}. Look at the brokers and the settings of the output topics (a "
                    "record may be larger than max.message.bytes)"
                )
            time.sleep(min(1.0, 0.05 * 2**self._aborts_in_a_row))

    def _back_off(self) -> None:
        """Wait before failed records are tried again. No transaction is open meanwhile."""
        counts = [count for count, _ in self._failures.values() if count < self._retry.attempts]
        if not counts:
            return
        until = time.monotonic() + self._retry.wait_s(max(counts))
        while not self._stops.is_set() and (left := until - time.monotonic()) > 0:
            self._stops.wait(min(left, _POLL_S))

    def _all_parts(self) -> Iterable[_StatePart]:
        return [part for parts in self._parts.values() for part in parts]

    # --- partitions that come and go

    def _on_assigned(self, places: list[Place]) -> None:
        if places:
            _LOG.info("assigned: %s", ", ".join(map(str, places)))
        self._hooks.on_assigned(places)
        for place in places:
            self._opening.setdefault(place.partition, set()).add(place)

    def _on_revoked(self, places: list[Place], lost: bool) -> None:
        """End the open transaction while the partitions are still ours. If they are lost, another
        instance may have them already: abort.
        """
        self._hooks.on_step(Step.BEFORE_REVOKE)
        _LOG.info("%s: %s", "lost" if lost else "revoked", ", ".join(map(str, places)))
        self._hooks.on_revoked(places, lost=lost)
        gone = {place.partition for place in places}
        try:
            # A commit that was begun before decides by itself: the group refuses its offsets if
            # another instance has the partitions.
            if lost and self._transaction.is_open and self._ending is None:
                self._abort(AbortRequired("partitions were lost", "lost"), places)
            else:
                self._commit_or_abort(places)
        finally:
            for place in places:
                self._offsets.pop(place, None)
                self._failures = {
                    key: value for key, value in self._failures.items() if key[0] != place
                }
                self._opening.get(place.partition, set()).discard(place)
            for number in gone:
                self._close_state(number)
        siblings = {each for each in self._reader.assigned if each.partition in gone} - set(places)
        if self._states and siblings:
            # Their state has gone; they continue when all topics have this partition again.
            self._reader.close_partitions(siblings)
            for place in siblings:
                self._opening.setdefault(place.partition, set()).add(place)
        for number in gone:
            if not self._opening.get(number):
                self._opening.pop(number, None)
        self._hooks.on_step(Step.AFTER_REVOKE)

    def _close_state(self, number: int) -> None:
        """Let a partition of all states go."""
        for part in self._parts.pop(number, ()):
            part.close()
        for _, row in self._restoring.pop(number, ()):
            assert self._restorer is not None
            self._restorer.drop(row)

    def _open_partitions(self) -> bool:
        """Do a step for partitions that are assigned and not read yet: ask for their offsets, wait
        until these are stable, restore their state, then read them.

        Gives:  whether there is more to do at once.
        Raises: ExactlyOnceError.
        """
        if not self._opening:
            if self._restorer is not None:
                self._restorer.close()
            return False
        self._ask_for_offsets()
        is_restoring = self._restorer is not None and self._restorer.step()
        for number, places in list(self._opening.items()):
            if any(place not in self._offsets for place in places):
                continue
            if self._states and not self._is_restored(number):
                continue
            for place in places:
                self._reader.open(place, self._offsets.pop(place), latest=self._starts == "latest")
            del self._opening[number]
        return is_restoring

    def _ask_for_offsets(self) -> None:
        unknown = [
            place
            for places in self._opening.values()
            for place in places
            if place not in self._offsets
        ]
        if not unknown:
            return
        found = self._reader.committed(unknown)
        if found is not None:
            self._offsets |= found
            return
        now = time.monotonic()
        if now - self._told > _TOLD_EVERY_S:
            if self._told:
                self._wait_for(
                    f"the group's offsets of {', '.join(map(str, unknown[:5]))} are in a "
                    "transaction that has not ended, or the coordinator does not answer. The "
                    "transaction of an instance that was killed ends at its transaction_timeout_s; "
                    "with the argument `instance` it ends when that instance starts again"
                )
            self._told = now

    def _is_restored(self, number: int) -> bool:
        """Whether the partition's states are ready; begin to restore them if all input topics have
        the partition.
        """
        assert self._restorer is not None
        places = {Place(topic, number) for topic in self._topics}
        if not places <= self._reader.assigned:
            return False
        rows = self._restoring.get(number)
        if rows is None:
            self._hooks.on_step(Step.BEFORE_RESTORE)
            rows = self._restoring[number] = [
                (state, self._begin_restoring(state, number)) for state in self._states.values()
            ]
            return False
        if not all(row.done for _, row in rows):
            return False
        del self._restoring[number]
        for state, row in rows:
            seconds = time.monotonic() - row.began
            _LOG.info(
                "state %s-%d: %d entries, %d records of the changelog read in %.1f s",
                *(state.name, number, len(row.state.entries), row.records, seconds),
            )
            self._hooks.on_restored(state.name, number, row.records, seconds)
        self._parts[number] = [_StatePart(state, row) for state, row in rows]
        self._hooks.on_step(Step.AFTER_RESTORE)
        return True

    def _begin_restoring(self, state: State[Any, Any], number: int) -> Restoring:
        assert self._restorer is not None
        if number >= self._partitions:
            topic = self._changelog(state.name)
            raise unlike_input(f"state {state.name!r}", topic, self._partitions, number + 1)
        path = None if self._state_dir is None else self._state_dir / f"{state.name}-{number}.db"
        return self._restorer.begin(
            self._changelog(state.name), self._topic_ids[state.name], number, path
        )

    # --- the end

    def _close(self) -> None:
        """Leave the group, and close clients and files."""
        try:
            self._reader.close()
        finally:
            for number in list(self._parts) + list(self._restoring):
                self._close_state(number)
            if self._restorer is not None:
                self._restorer.close()
            self._transaction.close()
            self._opening.clear()

    def _close_after_failure(self) -> None:
        """Abort what is open and close, without hiding the failure that is being raised."""
        if self._ending is not None:
            with contextlib.suppress(StuckError):
                self._ending.wait(_LAST_ABORT_S)
            self._ending = None
        try:
            self._transaction.abort(_LAST_ABORT_S)
        except Exception as error:
            _LOG.warning("the broker aborts the transaction at its timeout: %s", error)
            self._transaction.is_open = False
        for part in self._all_parts():
            part.abort()
        self._progress.clear()
        try:
            self._close()
        except Exception as error:
            _LOG.warning("closing: %s", error)


def dead_letter_of(topic: str, record: Record, error: BaseException, attempts: int) -> Output:
    """The record as it was, with headers that say where it is from and why it failed."""
    last = traceback.format_exception_only(error)[-1].strip()
    told = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "attempts": str(attempts),
        "exception": type(error).__qualname__,
        "message": last[:1000],
    }
    headers = [(f"dead-letter.{name}", text.encode()) for name, text in told.items()]
    return Output(
        topic,
        record.value,
        record.key,
        [*record.headers, *headers],
        timestamp_ms=max(0, record.timestamp_ms),
    )
