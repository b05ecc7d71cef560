"""The transactional ids of tasks: a pool on each machine, so that batches reuse ids.

An id belongs to one task attempt at a time: no other attempt sends a request with it, so that a
zombie cannot abort the transaction of another task. A successful attempt, whose requests are all
answered, puts its id back; a failed or killed one does not, since a request may be in flight, and
its id is never used again.

    <temporary directory>/barnabas-ids-<user's id>/<digest of driver and run>/<batch>.<name>

The directory is private (mode 0700), a file is empty. A process takes an id by unlinking its file,
which only one process can do. Only ids of earlier batches are taken, and only if their transaction
has ended. Without such a directory each attempt has a new id.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from barnabas.spark_connector.spool import SpoolError
from barnabas.spark_connector.spool_directory import make_private_directory
from barnabas.spark_connector.task_transactions import first_of

NAME = "barnabas-ids"
NAME_BYTES = 6  # random bytes in an id: two ids of a run are never equal
KEPT_S = 7 * 86400  # the time for which brokers know an id (transactional.id.expiration.ms)


class TransactionalIds:
    """The pool of one driver's run on this machine."""

    def __init__(self, driver_id: str, run: str, root: str | None = None) -> None:
        self._first = first_of(driver_id, run)
        self._root = Path(root or os.path.join(tempfile.gettempdir(), f"{NAME}-{os.getuid()}"))
        digest = hashlib.sha256(self._first.encode()).hexdigest()[:16]
        self._directory = self._root / digest

    def take(self, batch_id: int) -> Iterator[str]:
        """Ids of earlier batches, each of which belongs to the caller from then on."""
        try:
            files = sorted(self._directory.iterdir())
        except OSError:
            files = []
        for file in files:
            number, _, name = file.name.partition(".")
            if not number.isdigit() or int(number) >= batch_id:
                continue
            try:
                file.unlink()
            except OSError:  # another task was faster
                continue
            yield self._first + name

    def new(self) -> str:
        """An id that no other attempt has or ever had."""
        return self._first + secrets.token_urlsafe(NAME_BYTES)

    def put_back(self, transactional_id: str, batch_id: int) -> None:
        """Put an id back for later batches, after all its requests are answered."""
        name = transactional_id.removeprefix(self._first)
        try:
            if not self._directory.is_dir():
                make_private_directory(str(self._root))
                self._forget_old()
                self._directory.mkdir(mode=0o700, exist_ok=True)
            (self._directory / f"{batch_id}.{name}").touch()
        except (OSError, SpoolError):
            pass  # then the id is not used again

    def _forget_old(self) -> None:
        """Delete the pools of runs that have not put an id back for long."""
        for directory in self._root.iterdir():
            if time.time() - directory.stat().st_mtime > KEPT_S:
                shutil.rmtree(directory, ignore_errors=True)
