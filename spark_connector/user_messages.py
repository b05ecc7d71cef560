"""Messages to users: the logger of warnings, and errors without PySpark's traceback.

Warnings go through `logging`, logger `barnabas.spark`. If logging is not configured, Python prints
them to stderr. The stderr of the driver's reader process is the driver's terminal. That of a task
is the executor's log (with master local[*] the same terminal).

PySpark puts a long traceback of its own code before an exception's message, unless this is
disabled. Spark itself logs the end of a stream with a long trace of Java, which cannot be disabled,
so a stream's errors also have a line of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.client.notices import logger

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
