"""`Ingest`: from a source outside of Kafka into topics. The source's position is written in the
same transaction as the outputs, and is read back at the start.

The source itself cannot take part in the transaction. So after a crash it is read again from the
last committed position, and what was written after it is aborted: each item is in the topics once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from barnabas.exactly_once.changelog import Restorer, Topics
from barnabas.exactly_once.errors import (
    AbortRequired,
    ConfigurationError,
    HandlerError,
    StuckError,
)
from barnabas.exactly_once.handlers import check_handler, check_result
from barnabas.exactly_once.hooks import Hooks, Step
from barnabas.exactly_once.records import Out, Output
from barnabas.exactly_once.settings import Clients, Commit, Retry, check_name
from barnabas.exactly_once.state import to_json
from barnabas.exactly_once.stopping import Stopping
from barnabas.exactly_once.transaction import OutputError, Transaction

_LOG = logging.getLogger(__name__)
_PATIENCE_S = 60.0
_LAST_ABORT_S = 10.0
_MOST_ABORTS = 10

P = TypeVar("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[P, T_co]):
    """What is read: anything that can begin after a position.

    The position is a value that JSON has: a number, a string, a list, or a dict with strings as
    keys.
    """

    def read(self, after: P | None) -> Iterable[tuple[P, T_co] | None]:
        """Each item with its position, after this one (None: from the beginning).

        It yields None when there is nothing to read now, at least every 0.1 s: then a transaction
        can be committed in time. It returns at the end of the source.
        """
        ...


class Ingest(Generic[P, T]):
    """Reads a source, calls a handler for each item, and writes its outputs: each exactly once.

    Takes:  servers, bootstrap servers. application, a name that must not change. source. split, the
            name of the part of the source that this process reads: one process for each split, and
            a second one for the same split fences the first. commit, retry, transaction_timeout_s,
            client, producer, hooks: as in `Pipeline`.
    Raises: ConfigurationError for arguments that do not fit.
    Source: KIP-98; KIP-618 does the same for connectors.
    """

    def __init__(
        self,
        servers: str,
        application: str,
        source: Source[P, T],
        *,
        split: str = "0",
        commit: Commit = Commit(),  # noqa: B008 (a frozen value)
        retry: Retry = Retry(),  # noqa: B008
        transaction_timeout_s: float = 10.0,
        client: Mapping[str, Any] | None = None,
        producer: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._clients = Clients(
            servers,
            application,
            check_name("split", split),
            "",
            transaction_timeout_s=transaction_timeout_s,
            client=client,
            producer_settings=producer,
        )
        if commit.seconds >= transaction_timeout_s:
            raise ConfigurationError("commit.seconds must be below transaction_timeout_s")
        self._topic = f"{application}-positions"
        self._source, self._split, self._commit, self._retry = source, split, commit, retry
        self._hooks = hooks or Hooks()
        self._handler: Callable[[T, Out], object] | None = None
        self._stopping = Stopping()
        self._admin: Topics
        self._transaction: Transaction
        self._position: P | None = None
        self._failures = self._aborts = 0

    def each(self, handler: Callable[[T, Out], None]) -> Callable[[T, Out], None]:
        """Decorate the handler: `handler(item, out)`. It may be called more than once for an
        item.

        Raises: ConfigurationError for a second handler, `async def`, and a generator.
        """
        check_handler(handler, self._handler, may_be_async=False)
        self._handler = handler
        return handler

    def stop(self) -> None:
        """End `run` after the item that is being handled. May be called from any thread."""
        self._stopping.set()

    @property
    def position(self) -> P | None:
        """The committed position: of this run, or the one that was read at its start."""
        return self._position

    def run(self) -> None:
        """Run until the source ends, or until `stop`, SIGTERM or SIGINT.

        Raises: FencedError, FatalError, HandlerError, StuckError, ConfigurationError, and what the
                source or a hook raises. The open transaction is aborted.
        """
        if self._handler is None:
            raise ConfigurationError("the ingest has no handler: decorate one with @each")
        topics = self._admin = Topics(self._clients.common())
        topics.make_compacted(self._topic, 1, "positions of sources")
        patience_s = max(_PATIENCE_S, 2 * self._clients.transaction_timeout_s)
        self._transaction = Transaction(self._clients.producer(), patience_s)
        try:
            with self._stopping.by_signals():
                self._transaction.init()
                self._position = self._read_position(topics)
                while not self._stopping.is_set():
                    try:
                        self._read()
                        return
                    except AbortRequired as error:
                        self._abort(error)
        except BaseException:
            with contextlib.suppress(Exception):
                self._transaction.abort(_LAST_ABORT_S)
            raise
        finally:
            self._transaction.close()

    def _read_position(self, topics: Topics) -> P | None:
        """The committed position of the split.

        The predecessor's transaction has ended, but one of another split may be open before its
        record: it is waited for.
        """
        restorer = Restorer(self._clients.restorer(), topics, self._wait_for)
        row = restorer.begin(self._topic, "", 0, None)
        try:
            while not row.done:
                restorer.step()
                if self._stopping.is_set():
                    return None
                if row.end is None:
                    time.sleep(0.1)
        finally:
            restorer.close()
        found = row.state.entries.get(self._split.encode())
        position: P | None = None if found is None else json.loads(found)
        return position

    def _wait_for(self, what: str) -> None:
        _LOG.warning("waiting: %s", what)
        self._hooks.on_waiting(what)

    def _read(self) -> None:
        """Read the source from the committed position to its end.

        Raises: AbortRequired; ExactlyOnceError; what the source raises.
        """
        assert self._handler is not None
        began, records, outputs, size = 0.0, 0, 0, 0
        position = self._position
        for item in self._source.read(position):
            if item is not None:
                position, content = item
                if not self._transaction.is_open:
                    self._hooks.on_step(Step.BEFORE_BEGIN)
                    self._transaction.begin()
                    self._hooks.on_step(Step.AFTER_BEGIN)
                    began, records, outputs, size = time.monotonic(), 0, 0, 0
                count, written = self._handle(content)
                records, outputs, size = records + 1, outputs + count, size + written
            if self._transaction.is_open:
                self._transaction.poll()
                if (
                    time.monotonic() - began >= self._commit.seconds
                    or records >= self._commit.records
                    or size >= self._commit.bytes
                ):
                    self._store(position, records, outputs)
            if self._stopping.is_set():
                break
        if self._transaction.is_open:
            self._store(position, records, outputs)

    def _handle(self, content: T) -> tuple[int, int]:
        """Call the handler, and write its outputs.

        Gives:  how many outputs, and their bytes.
        Raises: AbortRequired to repeat; HandlerError.
        """
        assert self._handler is not None
        out = Out()
        size = 0
        try:
            result = self._handler(content, out)
            if result is not None:
                check_result(result)
            self._hooks.on_step(Step.BEFORE_PRODUCE)
            for output in out.outputs:
                self._transaction.produce(output)
                size += len(output.value or b"") + len(output.key or b"")
            self._hooks.on_step(Step.AFTER_PRODUCE)
        except (AbortRequired, ConfigurationError):
            raise
        except OutputError as error:
            raise HandlerError(f"{error}: {content!r:.200}") from error
        except Exception as error:
            self._failures += 1
            if self._failures >= self._retry.attempts:
                raise HandlerError(
                    f"the handler failed {self._failures} time(s), on {content!r:.200}: {error!r}. "
                    "Nothing of its transaction is committed: mend the handler and start again"
                ) from error
            raise AbortRequired(f"the handler failed: {error!r}", "handler") from error
        return len(out.outputs), size

    def _store(self, position: P | None, records: int, outputs: int) -> None:
        """Write the position in the transaction, and commit it.

        Raises: AbortRequired; ExactlyOnceError.
        """
        began = time.monotonic()
        self._hooks.on_step(Step.BEFORE_OFFSETS)
        self._transaction.produce(Output(self._topic, to_json(position), self._split.encode()))
        self._hooks.on_step(Step.AFTER_OFFSETS)
        self._hooks.on_step(Step.BEFORE_COMMIT)
        self._transaction.commit()
        self._position = position
        self._failures = self._aborts = 0
        self._hooks.on_step(Step.AFTER_COMMIT)
        self._hooks.on_commit(records, outputs, time.monotonic() - began)

    def _abort(self, reason: AbortRequired) -> None:
        """Abort, and wait before the source is read again."""
        _LOG.warning("aborting (%s): %s", reason.kind, reason)
        self._hooks.on_abort(reason.kind, str(reason))
        if reason.undelivered:
            self._admin.check(reason.undelivered)
        self._hooks.on_step(Step.BEFORE_ABORT)
        self._transaction.abort()
        self._hooks.on_step(Step.AFTER_ABORT)
        self._aborts += 1
        if self._aborts >= max(_MOST_ABORTS, self._retry.attempts):
            raise StuckError(f"{self._aborts} transactions in a row were aborted: {reason}")
        self._stopping.wait(self._retry.wait_s(self._aborts))
