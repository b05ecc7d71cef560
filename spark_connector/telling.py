"""How errors reach the user: PySpark puts a traceback through half of itself before what an
exception says, unless it is told not to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# PySpark's own; its setting spark.sql.execution.pyspark.udf.hideTraceback.enabled sets it for all
# errors.
_VARIABLE = "SPARK_HIDE_TRACEBACK"


def hide_traceback() -> None:
    """For the error that is about to be raised: a worker that reported one is given no other work,
    so it is not for the next.
    """
    os.environ[_VARIABLE] = "1"


@contextmanager
def plainly(*kinds: type[Exception]) -> Iterator[None]:
    """Errors of these kinds say all that there is to say."""
    try:
        yield
    except kinds:
        hide_traceback()
        raise
