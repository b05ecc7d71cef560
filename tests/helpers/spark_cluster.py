"""A Spark standalone cluster on this machine. It has a master and workers, each in its own process
and with its own address in 127.0.0.0/8.

Each worker needs its own address, because Spark does not start the speculative copy of a task on
the host that already runs the task.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from helpers.ports import free_port
from helpers.spark_queries import kill_session, spark_environment

MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


class Cluster:
    """A cluster that runs while the context lasts. At the end all its processes are killed,
    including executors.
    """

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        self.worker_count = workers
        self.port = free_port()
        self.workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def __enter__(self) -> Cluster:
        try:
            self._master = self._start("master", MASTER, "127.0.0.1", "--port", str(self.port))
            self._await_master(self._master)
            for number in range(1, self.worker_count + 1):
                work = str(self.directory / f"work-{number}")
                limits = ["--cores", "1", "--memory", "1g", "--work-dir", work, self.url]
                self.workers.append(
                    self._start(f"worker-{number}", WORKER, f"127.0.0.{number}", *limits)
                )
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def kill_worker(self, number: int) -> None:
        """Kill the worker and its executors, as if its machine had failed."""
        kill_session(self.workers[number])

    def said(self) -> str:
        """The last lines of all logs, for the messages of failed assertions."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.directory.glob("*.log"))
        )

    def _start(self, name: str, main: str, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a process of the cluster, with its output in a log."""
        home = spark_home()
        command = [
            str(home / "bin" / "spark-class"),
            main,
            "--host",
            host,
            "--webui-port",
            "0",
            *arguments,
        ]
        more = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}
        with (self.directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command,
                env={**spark_environment(), **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await_master(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the master listens."""
        deadline = time.monotonic() + 600
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, (
                    f"the master does not run:\n{self.said()}"
                )
                time.sleep(0.1)

    def _end(self) -> None:
        for process in [*self.workers, *([self._master] if self._master else [])]:
            kill_session(process)


def spark_home() -> Path:
    """The directory of Spark: that in SPARK_HOME, or else the one that pip installed."""
    given = os.environ.get("SPARK_HOME")
    if given:
        return Path(given)
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent
