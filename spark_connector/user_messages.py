"""Messages to users: the logger of warnings, and errors without PySpark's traceback.

Warnings go through `logging`, logger `barnabas.spark`. Without configuration Python prints them to
stderr: in the driver's reader process that is the driver's terminal, in a task the executor's log
(with master local[*] the same terminal).

PySpark puts a long traceback of its own code before an exception's message, unless this is
disabled.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("barnabas.spark")

# PySpark's own variable; its setting spark.sql.execution.pyspark.udf.hideTraceback.enabled sets it
# for all errors.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


def hide_traceback() -> None:
    """Let PySpark show the next error without its traceback.

    A worker that has reported an error gets no other work, so this does not affect later errors.
    """
    os.environ[_HIDE_TRACEBACK] = "1"


@contextmanager
def without_traceback(*kinds: type[Exception]) -> Iterator[None]:
    """Let PySpark show errors of these kinds without its traceback: their messages are complete."""
    try:
        yield
    except kinds:
        hide_traceback()
        raise
