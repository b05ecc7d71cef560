"""A broker in a process of its own, for tests and scripts.

with barnabas.BrokerProcess() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType

_READY = re.compile(r"listens on (\S+):(\d+) ")


class BrokerProcess:
    """The daemon on a free port of 127.0.0.1, as a context manager.

    Takes:  data_dir, kept after the end where given, else a temporary one that goes with the
            process; settings by Kafka's names; port, 0 for a free one (a restart keeps it).
    Raises: RuntimeError with what the daemon said when it does not start.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        self._temporary = data_dir is None
        self.data_dir = (
            tempfile.mkdtemp(prefix="barnabas-") if data_dir is None else os.fspath(data_dir)
        )
        self.settings = dict(settings or {})
        self.port = port
        self.output: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def bootstrap_servers(self) -> str:
        """For a client's `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker does not run"
        return self.process.pid

    def start(self, timeout_s: float = 30.0) -> BrokerProcess:
        """Start the daemon and wait until it listens."""
        assert self.process is None, "the broker runs already"
        command = [
            sys.executable,
            "-P",
            "-m",
            "barnabas.broker.main",
            "start",
            "--port",
            str(self.port),
            "--data-dir",
            self.data_dir,
        ]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        environment = {**os.environ, "PYTHONPATH": _source_root(), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self.process, ready), daemon=True)
        self._reader.start()
        if not ready.wait(timeout_s) or self.process.poll() is not None:
            self.kill()
            raise RuntimeError("the broker did not start:\n" + "".join(self.output[-50:]))
        return self

    def _read(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.output.append(line)
            found = _READY.search(line)
            if found and not ready.is_set():
                self.port = int(found.group(2))
                ready.set()
        process.stdout.close()
        ready.set()

    def kill(self) -> None:
        """SIGKILL: what a crash of the process leaves is what the operating system has."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait for the clean end; gives the exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> BrokerProcess:
        """Start again on the same directory and port, after `kill` or `stop`."""
        return self.start()

    def _end(self, number: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        code = process.wait(timeout=60)
        if self._reader is not None:
            self._reader.join(timeout=10)
        return code

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)


def _source_root() -> str:
    """Where the packages are: an editable checkout is found by the child process too."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    inherited = os.environ.get("PYTHONPATH")
    return root + (os.pathsep + inherited if inherited else "")
