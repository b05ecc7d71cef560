"""The sink with tasks that fail on purpose: `format("faulty")`, with the option `faults`.

Faults are JSON: `[{"batch": 3, "task": 0, "does": "raise"}]`. A fault occurs only in the first
attempt of the task. It occurs at the end, when all rows are encoded and in the task's spool file.
This is the worst moment, since all output of the task exists and must be discarded.

    raise   the task fails with an exception
    die     the Python worker is killed by SIGKILL
    crash   the executor that runs the task is killed by SIGKILL, with all its tasks
    dawdle  the task sleeps for `seconds`, so that Spark starts a second copy of it
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from barnabas.spark_connector.source import BarnabasSource
from barnabas.spark_connector.write.sink import BATCH_ID, StreamWriter, TaskMessage


class FaultyWriter(StreamWriter):
    """The stream writer. After it has written the rows of a task, the task's fault occurs."""

    faults: list[dict[str, Any]]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows. If a fault names this batch and task, fail at the end of the first
        attempt.
        """
        message = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        place = {
            "batch": int(context.getLocalProperty(BATCH_ID) or -1),
            "task": context.partitionId(),
        }
        for fault in self.faults:
            if context.attemptNumber() == 0 and place.items() <= fault.items():
                does(fault)
        return message


def does(fault: dict[str, Any]) -> None:
    """Carry out the fault: raise an error, kill the worker or the executor, or sleep."""
    if fault["does"] == "raise":
        raise RuntimeError("failed on purpose")
    if fault["does"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault["does"] == "crash":
        os.kill(executor(), signal.SIGKILL)
    time.sleep(fault.get("seconds", 60))


def executor() -> int:
    """The process id of the executor's JVM, which is the parent of PySpark's daemon. The daemon is
    the parent of this worker.
    """
    state = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    return int(state[1])


class FaultySource(BarnabasSource):
    """The data source `barnabas` under another name, with the additional option `faults`."""

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyWriter:
        faults = json.loads(self.options["faults"])
        self.options = {
            name: value for name, value in self.options.items() if name.lower() != "faults"
        }
        plain = super().streamWriter(schema, overwrite)
        # Replace the writer by a FaultyWriter with the same attributes.
        writer = FaultyWriter.__new__(FaultyWriter)
        writer.__dict__.update(plain.__dict__, faults=faults)
        return writer
