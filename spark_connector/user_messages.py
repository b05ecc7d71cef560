"""Messages to users: the logger of warnings, and errors without PySpark's traceback.

Warnings go through `logging`, logger `barnabas.spark`. If logging is not configured, Python prints
them to stderr. The stderr of the driver's reader process is the driver's terminal. That of a task
is the executor's log (with master local[*] the same terminal).

PySpark puts a long traceback of its own code before an exception's message, unless this is
disabled. Spark itself logs the end of a stream with a long trace of Java, which cannot be disabled,
so a stream's errors also have a line of their own.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("barnabas.spark")
NOTICE_S = 3  # after which the log says why a request takes so long

# An environment variable of PySpark. The setting
# spark.sql.execution.pyspark.udf.hideTraceback.enabled sets it for all errors.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


def hide_traceback() -> None:
    """Make PySpark show the next error without its traceback.

    Later errors are not affected, since a worker that has reported an error gets no further work.
    """
    os.environ[_HIDE_TRACEBACK] = "1"


@contextmanager
def without_traceback(*kinds: type[Exception]) -> Iterator[None]:
    """Make PySpark show errors of these kinds without its traceback. Their messages are complete
    without it.
    """
    try:
        yield
    except kinds:
        hide_traceback()
        raise


@contextmanager
def errors_of_a_stream(*kinds: type[Exception]) -> Iterator[None]:
    """Make PySpark show errors of these kinds without its traceback, and write them to the log."""
    with without_traceback(*kinds):
        try:
            yield
        except kinds as error:
            logger.error("barnabas: %s", error)
            raise


class RetryNotice:
    """Says once in the log that a request has been failing for some seconds and is repeated, so
    that nobody waits for a minute without a word.
    """

    def __init__(self, limit_ms: float) -> None:
        """Takes: limit_ms, how long the request is repeated."""
        self._limit_s = limit_ms / 1000
        self._first_failure: float | None = None
        self._is_said = False

    def failed(self, what: str, *, since: float | None = None) -> None:
        """Call this after each failure. Takes: since, when the request was first sent, if it is
        known, by time.monotonic().
        """
        now = time.monotonic()
        if self._first_failure is None:
            self._first_failure = now if since is None else since
        if not self._is_said and now - self._first_failure >= NOTICE_S:
            self._is_said = True
            logger.warning("barnabas: %s; it is tried again for %.0f s", what, self._limit_s)
