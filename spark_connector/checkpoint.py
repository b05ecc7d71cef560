"""A query's checkpoint directory: what the sink reads in it, and the one file that it keeps there.

    <checkpoint>/offsets/<batch id>     Spark's: written before the batch begins, and never changed
    <checkpoint>/barnabas-published     the sink's: that the query has published, JSON, written with
                                        its first batch that has rows

The file outlives what the broker forgets. It is written before the first transaction ("begun") and
after it ("done"): where only the former is there, the driver may have died in between, and the same
batch is simply tried again.

    {"version": 1, "group": "barnabas-spark-...", "batch": 3, "state": "done"}

A checkpoint on a file system that Arrow does not know gives no plan and keeps no file: what they
protect against is then warned of, not refused.
"""

from __future__ import annotations

import hashlib
import json
import posixpath

import pyarrow.fs as arrow_fs

from barnabas.spark_connector.spool import RENAMING, SpoolError, join_uri, open_file_system
from barnabas.spark_connector.user_messages import logger

VERSION = 1
NAME = "barnabas-published"
BEGUN, DONE = "begun", "done"
TROUBLE = (OSError, SpoolError)


class Checkpoint:
    """The checkpoint directory of one query; None where the sink is not told where it is."""

    def __init__(self, location: str | None) -> None:
        self._location = location

    def plan_of(self, batch_id: int) -> str:
        """A digest of what Spark wrote about the batch before it began, or empty.

        Empty where that cannot be read.
        """
        data = self._read("offsets", str(batch_id))
        return "" if data is None else hashlib.sha256(data).hexdigest()[:16]

    def published_before(self, batch_id: int) -> str:
        """The words that tell that the query published before; empty where nothing tells so."""
        data = self._read(NAME)
        if data is None:
            return ""
        try:
            mark = json.loads(data)
            first, state, group = int(mark["batch"]), mark["state"], mark["group"]
        except (ValueError, KeyError, TypeError):
            return "this query published before"  # it was cut off, so somebody wrote it
        if state == BEGUN and first == batch_id:
            return ""
        return f"this query published batches from {first} on, as group {group!r}"

    def note(self, state: str, group_id: str, batch_id: int) -> None:
        """Write the state into the file.

        A failure is warned of, since it only makes later doubts less likely to be seen.
        """
        text = json.dumps(
            {"version": VERSION, "group": group_id, "batch": batch_id, "state": state}
        )
        try:
            self._write(text.encode())
        except TROUBLE as error:
            logger.warning(
                "barnabas: the file %s cannot be kept in the checkpoint: %s", NAME, error
            )

    def _read(self, *names: str) -> bytes | None:
        if self._location is None:
            return None
        try:
            file_system, path = open_file_system(join_uri(self._location, *names))
            if file_system.get_file_info(path).type == arrow_fs.FileType.NotFound:
                return None
            with file_system.open_input_stream(path, compression=None) as stream:
                return bytes(stream.read())
        except TROUBLE as error:
            logger.info("barnabas: %s of the checkpoint cannot be read: %s", "/".join(names), error)
            return None

    def _write(self, data: bytes) -> None:
        if self._location is None:
            return
        file_system, path = open_file_system(join_uri(self._location, NAME))
        renames = file_system.type_name in RENAMING
        written = f"{posixpath.dirname(path)}/.{NAME}.partial" if renames else path
        with file_system.open_output_stream(written, compression=None) as stream:
            stream.write(data)
        if renames:
            file_system.move(written, path)
