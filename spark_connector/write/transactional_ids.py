"""The transactional ids of tasks. Each machine has a pool of unused ids, from which later batches
take ids again.

An id belongs to one task attempt at a time. Since no other attempt sends a request with it, a
zombie cannot abort the transaction of another task. A successful attempt puts its id back when it
has received all responses. A failed or killed attempt does not, since one of its requests may still
be in flight. Its id is never used again.

    <temporary directory>/barnabas-ids-<user's id>/<digest of driver and run>/<batch>.<name>

The directory is private (mode 0700), and the files are empty. A process takes an id by unlinking
its file, and only one process can succeed in that. Only ids of earlier batches are taken, and only
if their transaction has ended. If the directory cannot be used, each attempt has a new id.
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

from barnabas.spark_connector.write.spool import SpoolError
from barnabas.spark_connector.write.spool_directory import make_private_directory
from barnabas.spark_connector.write.task_transactions import first_of

NAME = "barnabas-ids"
NAME_BYTES = 6  # the number of random bytes in an id, enough that two ids of a run are never equal
KEPT_S = 7 * 86400  # how long brokers remember an id (transactional.id.expiration.ms)


class TransactionalIds:
    """The pool of the transactional ids of one driver's run on this machine."""

    def __init__(self, driver_id: str, run: str, root: str | None = None) -> None:
        """Takes: root, the directory for unused ids. The default is a directory of this user in the
        temporary directory.
        """
        self._first = first_of(driver_id, run)
        self._root = Path(root or os.path.join(tempfile.gettempdir(), f"{NAME}-{os.getuid()}"))
        digest = hashlib.sha256(self._first.encode()).hexdigest()[:16]
        self._directory = self._root / digest

    def take(self, batch_id: int) -> Iterator[str]:
        """Yield ids of earlier batches. Each yielded id belongs to the caller from then on."""
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
            except OSError:  # another task has taken the id
                continue
            yield self._first + name

    def new(self) -> str:
        """Make an id that no other attempt has or ever had."""
        return self._first + secrets.token_urlsafe(NAME_BYTES)

    def put_back(self, transactional_id: str, batch_id: int) -> None:
        """Put an id back for later batches. All its requests must have been answered."""
        name = transactional_id.removeprefix(self._first)
        try:
            if not self._directory.is_dir():
                make_private_directory(str(self._root))
                self._forget_old()
                self._directory.mkdir(mode=0o700, exist_ok=True)
            (self._directory / f"{batch_id}.{name}").touch()
        except (OSError, SpoolError):
            pass  # the id is not used again in this case

    def _forget_old(self) -> None:
        """Delete the pools of runs that have put no id back for a long time."""
        for directory in self._root.iterdir():
            if time.time() - directory.stat().st_mtime > KEPT_S:
                shutil.rmtree(directory, ignore_errors=True)
