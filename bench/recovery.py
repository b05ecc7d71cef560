"""The time of a start after a kill: with a thousand partitions, 10 GB of segments and 200,000
producers at full scale.

A child process fills a data directory through the real broker, with logs, checkpoints and indexes
as after ten minutes of work. Then it kills itself, so that nothing is closed, and each log has data
since its last checkpoint. The daemon is started on this directory three times: after that kill,
after a second kill, and after a clean stop.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas import LocalBroker
from bench.common import Row, cpu_seconds, rss_mb
from bench.start import metadata_answer

PARTITIONS, TOTAL_BYTES, PRODUCERS = 1000, 10 << 30, 200_000
SEGMENT_BYTES = 4 << 20
BATCH_BYTES = 16 * 1024
RECORDS = 16
FILLED_IN_MS = 600_000
KEPT_MS = -1


def fill(directory: str, scale: float) -> None:
    """Write the directory as a killed broker leaves it. No file is closed."""
    from barnabas.broker.rim.system_ids import SystemIds
    from barnabas.broker.settings.config import BrokerConfig
    from barnabas.daemon.opening import open_broker
    from barnabas.protocol.records import NewRecord, encode_batch

    partitions = max(1, int(PARTITIONS * scale))
    producers = max(1, int(PRODUCERS * scale / partitions))
    rounds = max(1, int(TOTAL_BYTES * scale / partitions / BATCH_BYTES))
    now_ms = time.time_ns() // 1_000_000
    broker = open_broker(
        BrokerConfig.from_properties({"log.dirs": directory}), SystemIds(), now_ms=now_ms
    )
    configs = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": str(KEPT_MS)}
    broker.topics.create_topic("many", partitions, configs, now_ms=now_ms)
    logs: list[Any] = broker.topics.partitions_of("many")
    content = random.Random(1).randbytes(BATCH_BYTES // RECORDS - 20)
    sequences: dict[int, int] = {}
    for number in range(rounds):
        for index, log in enumerate(logs):
            producer_id = index * producers + number % producers
            sequence = sequences.get(producer_id, 0)
            records = [NewRecord(None, content, now_ms)] * RECORDS
            log.append(
                encode_batch(
                    records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
                ),
                now_ms=now_ms,
            )
            sequences[producer_id] = sequence + RECORDS
        now_ms += FILLED_IN_MS // rounds
        while (deadline_ms := broker.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            broker.on_tick(now_ms)
    without_checkpoint = sum(log.unread_bytes for log in broker.logs.logs.values())
    print(f"    killed with {without_checkpoint >> 20} MB that no checkpoint knows", flush=True)
    # as a kill does: no file is closed, and no checkpoint is written
    os._exit(0)


def started(broker: LocalBroker) -> tuple[float, float, float, list[str]]:
    """Start the broker.

    Gives:  the wall and CPU seconds until the first response, the memory in MB, and the log lines
            about progress.
    """
    began = time.perf_counter()
    broker.start(timeout_s=600)
    metadata_answer(broker.port)
    wall_s = time.perf_counter() - began
    progress = [line.strip() for line in broker.output if "opened " in line]
    return wall_s, cpu_seconds(broker.pid), rss_mb(broker.pid), progress


def run(scale: float = 1.0) -> list[Row]:
    """Measure three starts: after a kill, after a second kill, and after a clean stop."""
    directory = tempfile.mkdtemp(prefix="barnabas-bench-", dir=os.environ.get("BENCH_DIR"))
    amount = (
        f"{int(PARTITIONS * scale)} partitions, {10 * scale:.1f} GB, "
        f"{int(PRODUCERS * scale)} producers"
    )
    rows = []
    try:
        subprocess.run([sys.executable, __file__, directory, str(scale)], check=True)
        broker = LocalBroker(directory)
        for what in ("after a kill", "after that, killed at once", "after a clean stop"):
            wall_s, cpu_s, memory_mb, progress = started(broker)
            for line in progress:
                print(f"    {line}", flush=True)
            rows.append(
                Row(
                    f"start {what}: {amount}",
                    f"{cpu_s:.2f} s, {memory_mb:.0f} MB",
                    f"{wall_s:.2f} s",
                    "-",
                    "-",
                )
            )
            if what == "after a kill":
                broker.kill()
            else:
                broker.stop()
        return rows
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    fill(sys.argv[1], float(sys.argv[2]))
