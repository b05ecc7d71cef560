"""The logs of a directory that Apache Kafka 3.9 wrote, opened by our storage engine.

The expected contents of `txn-0` come from Kafka's own tool (`dumps/`, `expected.json`):

    segments            begin at 0, 3, 28 and 31; the log ends at 49
    open transaction    of producer 8, from offset 48 on
    aborted             of producer 7: 16 to 19, 40 to 43, 44 to 47
"""

from __future__ import annotations

import shutil
from pathlib import Path

from barnabas.storage.disk import OsDisk
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_directory import LogDirectory
from barnabas.storage.log_config import LogConfig
from barnabas.storage.opening.last_run import LastRun
from barnabas.storage.opening.log_loader import Opening
from barnabas.storage.opening.recovery import load_log
from helpers.storage_logs import NOW_MS

KAFKA = Path(__file__).parent.parent / "fixtures" / "kafka-logdir" / "logdir"
TXN_BASES = [0, 3, 28, 31]
TXN_END = 49
TXN_ABORTED = [(7, 16, 19), (7, 40, 43), (7, 44, 47)]


def kafka_directory(path: Path) -> LogDirectory:
    """A copy of the directory that Kafka wrote."""
    shutil.copytree(KAFKA, path, dirs_exist_ok=True)
    return LogDirectory(OsDisk(), str(path))


def kafka_log(
    path: Path, topic: str = "txn", last_run: LastRun = LastRun.CLEAN, **config: object
) -> Log:
    """Partition 0 of one of Kafka's topics, opened in a copy of the directory."""
    settings = LogConfig(**({"segment_bytes": 2048} | config))  # type: ignore[arg-type]
    return load_log(
        kafka_directory(path),
        topic,
        0,
        settings,
        Opening(last_run, NOW_MS),
        recovery_point=None,
        log_start_offset=None,
    )
