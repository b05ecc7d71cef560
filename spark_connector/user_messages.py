"""Messages to users: the logger of warnings, and errors without PySpark's traceback.

Warnings go through `logging`, logger `barnabas.spark`. If logging is not configured, Python prints
them to stderr: in the driver's reader process that is the driver's terminal, in a task the
executor's log (with master local[*] the same terminal).

PySpark puts a long traceback of its own code before an exception's message, unless this is
disabled.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("barnabas.spark")

# A variable of PySpark, which its setting spark.sql.execution.pyspark.udf.hideTraceback.enabled
# sets for all errors.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


def hide_traceback() -> None:
    """Make PySpark show the next error without its traceback.

    A worker that has reported an error gets no further work, so this does not affect later errors.
    """
    os.environ[_HIDE_TRACEBACK] = "1"


@contextmanager
def without_traceback(*kinds: type[Exception]) -> Iterator[None]:
    """Make PySpark show errors of these kinds without its traceback, since their messages are
    complete.
    """
    try:
        yield
    except kinds:
        hide_traceback()
        raise
