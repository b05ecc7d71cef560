"""The tasks' transactions in the commit of a batch: their description for a publisher, and the
steps of a commit attempt that read, hold and end them.

    the attempt                                   what is done here
    takes the query's id, reads the notes         finish: commits what the last note lists
    decides that the batch is skipped             skip: aborts its tasks' transactions
    decides that the batch is written             note: puts the list of transactions into it
    has sent the records in the tasks' messages   prepare: holds them, and what is to be aborted
    has committed number and note                 end: commits them, and aborts the others

A note is the metadata of the committed offset that stores a batch's number (CommitNote).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from barnabas.client.notices import logger
from barnabas.spark_connector.write.deduplication import CommitNote, GroupState
from barnabas.spark_connector.write.task_transactions import (
    AbortedPartError,
    Coordinators,
    Ends,
    NotedTransactions,
    TaskTransaction,
    of_note,
    to_note,
)
from barnabas.spark_connector.write.transactional_producer import TransactionalProducer


class TaskParts(NamedTuple):
    """The transactions that tasks of a batch wrote.

    note: the batch's note, which contains their list. run: the driver's run; if it is empty, the
    driver's earlier batches are unknown. topics, and counts of records and bytes: those of the
    tasks' output. timeout_ms: the timeout of the transactions. looks_for_open: whether to search in
    any case for transactions that other drivers left open, as each start does. target: for a batch
    write, the target whose notes belong to this driver. tolerates_aborts: whether to continue if
    brokers have aborted transactions although the decision was to commit them.
    """

    note: CommitNote = CommitNote()
    run: str = ""
    transactions: tuple[TaskTransaction, ...] = ()
    topics: frozenset[str] = frozenset()
    counts: tuple[int, int] = (0, 0)
    timeout_ms: int = 0
    looks_for_open: bool = False
    target: str | None = None
    tolerates_aborts: bool = False

    def noted_in(self, state: GroupState, driver_id: str) -> tuple[int, NotedTransactions]:
        """The number of the driver's last batch, or -1 if it has none, and the list of transactions
        in that batch's note.

        Raises: ClientError if the note cannot be read.
        """
        own = [
            each
            for each in state.committed.values()
            if each.is_committed and self.target in (None, each.note.target)
        ]
        last = max((each.next_batch_id for each in own), default=0)
        texts = [(each.note.parts, *each.more) for each in own if each.next_batch_id == last]
        return last - 1, of_note(driver_id, max(texts, key=len, default=()))


NO_PARTS = TaskParts()
NO_RUN = "0"  # the run in the transactional ids of a batch write


def run_token(run: str) -> str:
    """The part of a query's run id that is used in transactional ids and notes."""
    return run[:8]


class PartEndings:
    """Ends tasks' transactions in one attempt to commit a batch.

    If no transaction is to be ended, no request is sent.
    """

    def __init__(
        self,
        parts: TaskParts,
        driver_id: str,
        coordinators: Callable[[], Coordinators],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.parts, self._driver_id = parts, driver_id
        self._coordinators, self._now_ms = coordinators, now_ms
        self._noted = NotedTransactions()
        self._ends: Ends | None = None

    @property
    def _run(self) -> str:
        return self.parts.run or NO_RUN

    def _ends_now(self) -> Ends:
        if self._ends is None:
            self._ends = Ends(self._coordinators(), self._driver_id, self._run)
        return self._ends

    @property
    def _has_any(self) -> bool:
        """Whether there may be transactions that have to be ended."""
        return bool(
            self.parts.transactions or self.parts.looks_for_open or self._noted.transactions
        )

    def finish(self, state: GroupState, batch_id: int) -> None:
        """Commit the open transactions of the last note, unless this run has already done so.

        Spark begins a batch only after the commit of the previous batch has returned. All
        transactions of the previous batch are ended by then.

        Raises: AbortedPartError; FencedError; ClientError.
        """
        last, self._noted = self.parts.noted_in(state, self._driver_id)
        is_ended = last < batch_id and self._noted.run == self.parts.run != ""
        if not self._noted.transactions or is_ended:
            return
        try:
            self._ends_now().finish(self._noted)
        except AbortedPartError as error:
            if not self.parts.tolerates_aborts:
                raise
            logger.warning("barnabas: the query continues, as onUncertainBatch says: %s", error)

    def skip(self, producer: TransactionalProducer) -> None:
        """Abort the open transactions that are in no note. Called if the attempt has decided not to
        commit the batch's number.
        """
        if self._has_any:
            self._abort_others(producer, all_runs=True)

    @property
    def has_open(self) -> bool:
        """Whether brokers list open transactions of this run.

        Raises: ClientError.
        """
        return self._ends_now().has_open

    def abort_undecided(self, state: GroupState) -> None:
        """Abort the batch's transactions, unless the last note lists them.

        Called when this driver can no longer make a decision.
        """
        _, noted = self.parts.noted_in(state, self._driver_id)
        decided = {(each.transactional_id, each.producer) for each in noted.transactions}
        mine = [
            each
            for each in self.parts.transactions
            if (each.transactional_id, each.producer) not in decided
        ]
        if mine:
            self._ends_now().abort(mine)

    def abandon(self, producer: TransactionalProducer) -> None:
        """Abort the open transactions of this run, after a failed attempt."""
        self._abort_others(producer, all_runs=False)

    def _abort_others(self, producer: TransactionalProducer, *, all_runs: bool) -> None:
        """Abort the open transactions of this driver's tasks. Those that the last note lists have
        ended (`finish`), so an open one of the same id belongs to a later attempt. The session is
        checked first, so that a replaced driver aborts nothing.
        """
        ends = self._ends_now()
        ends.set_aside((), all_runs=all_runs)
        producer.check_session()
        ends.abort_held()

    def note(self, metadata: str, *, sends: bool) -> tuple[str, list[str]]:
        """The note to commit, and the rest of the list, for the metadata of the next partitions."""
        if not sends or not self.parts.transactions:
            return metadata, []
        first, *more = to_note(self.parts.transactions, self._run)
        return replace(self.parts.note, parts=first).to_text(), more

    def prepare(self, *, sends: bool) -> None:
        """Hold the batch's transactions, and those that will be aborted.

        Raises: LostPartError; ClientError.
        """
        if sends and self.parts.transactions:
            self._ends_now().prepare(
                self.parts.transactions,
                now_ms=self._now_ms(),
                timeout_ms=self.parts.timeout_ms,
                all_runs=True,
            )
        elif self._has_any:
            self._ends_now().set_aside((), all_runs=True)

    def end(self) -> None:
        """Commit the batch's transactions and abort the others, once the number is committed.

        Raises: ClientError. In that case, `finish` of the next attempt ends the remaining
        transactions.
        """
        if self._ends is not None and self._has_any:
            self._ends.commit()
            self._ends.abort_held()
