"""A partition of a state on the local disk, so that a restart reads only the changelog's tail.

A SQLite file with the entries, and one row that says of which changelog and up to which offset they
are. Only committed changes are written. It is a cache: a file that does not fit, or cannot be read,
is made again from the changelog.

Two processes may use the same file one after the other. Each change checks that the position is
still the one that this process wrote, so that one which has lost its partition changes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path

_LOG = logging.getLogger(__name__)
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS state (
        one INTEGER PRIMARY KEY CHECK (one = 1), changelog TEXT, position INTEGER, written_s REAL
    );
"""
_MOST_AGE_S = 12 * 3600.0
"""Older files are not used: the changelog may have dropped tombstones (delete.retention.ms, a day)
that the file has not seen.
"""


class Checkpoint:
    """The file of one partition.

    Takes:  path; changelog, the id of the changelog topic, so that a file of a topic that was
            deleted and created again is not used.
    """

    def __init__(self, path: Path, changelog: str) -> None:
        self._path, self._changelog = path, changelog
        self._connection: sqlite3.Connection | None = None
        self._position: int | None = None
        self._pending: dict[bytes, bytes | None] = {}

    def load(self) -> tuple[dict[bytes, bytes], int]:
        """The entries and the changelog's offset from which to continue.

        Gives:  ({}, 0) if there is no usable file.
        """
        try:
            return self._load()
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            _LOG.warning("%s is made again from the changelog: %s", self._path, error)
            self._remove()
            try:
                return self._load()
            except (sqlite3.Error, OSError) as again:
                self._give_up(again)
                return {}, 0

    def _load(self) -> tuple[dict[bytes, bytes], int]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=1.0, isolation_level=None)
        self._connection = connection
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.executescript(_SCHEMA)
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute("SELECT changelog, position, written_s FROM state").fetchone()
        age_s = 0.0 if row is None else time.time() - row[2]
        if row is None or row[0] != self._changelog or not -60 <= age_s < _MOST_AGE_S:
            connection.execute("DELETE FROM entries")
            connection.execute(
                "INSERT OR REPLACE INTO state VALUES (1, ?, 0, ?)", (self._changelog, time.time())
            )
            entries, self._position = {}, 0
        else:
            entries = dict(connection.execute("SELECT key, value FROM entries"))
            self._position = int(row[1])
        connection.execute("COMMIT")
        return entries, self._position

    def forget(self) -> None:
        """Use no entry: the changelog is shorter than the position. After: an empty file."""
        self._close()
        self._remove()
        self.load()

    def add(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Remember committed changes until the next `write`."""
        self._pending.update(changes)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def write(self, position: int) -> None:
        """Write the pending changes.

        Takes:  position, the changelog's offset after them.
        After:  if another process has changed the file, this one uses it no longer.
        """
        if self._connection is None or position == self._position:
            self._pending.clear()
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            changed = self._connection.execute(
                "UPDATE state SET position = ?, written_s = ? WHERE position = ? AND changelog = ?",
                (position, time.time(), self._position, self._changelog),
            ).rowcount
            if changed != 1:
                self._connection.execute("ROLLBACK")
                self._close()
                _LOG.info("%s is used by another process now", self._path)
                return
            self._connection.executemany(
                "INSERT OR REPLACE INTO entries VALUES (?, ?)",
                [(key, value) for key, value in self._pending.items() if value is not None],
            )
            self._connection.executemany(
                "DELETE FROM entries WHERE key = ?",
                [(key,) for key, value in self._pending.items() if value is None],
            )
            self._connection.execute("COMMIT")
            self._position = position
            self._pending.clear()
        except sqlite3.Error as error:
            self._give_up(error)

    def close(self, position: int | None) -> None:
        """Write what is pending (if the position is known), and close the file."""
        if position is not None:
            self.write(position)
        self._close()

    def _give_up(self, error: Exception) -> None:
        """Continue without a file; the next start reads the changelog from where the file ends."""
        _LOG.warning("%s is not written any more: %s", self._path, error)
        self._close()

    def _close(self) -> None:
        self._pending.clear()
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _remove(self) -> None:
        self._close()
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
