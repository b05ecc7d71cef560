"""The checkpoint directory of a query: the files in it that the sink reads, and the one that it
writes.

    <checkpoint>/metadata               Spark's: the id of the query
    <checkpoint>/offsets/<batch id>     Spark's: written before the batch begins, and never changed;
                                        the latest hundred are kept
    <checkpoint>/barnabas-published     the sink's: the trail, JSON; written before each batch that
                                        is published, and by the first batch of each run
    <checkpoint>/barnabas-published-*   the trails of writes in foreachBatch, one for each writeId
                                        and target; * is a digest of these

    {"version": 2, "group": "barnabas-spark-...", "run": "...", "begun": [7, "a plan"],
     "after": [5, "a plan"]}

deduplication.py describes the purpose of the trail. Version 1 was written only with the first batch
of a query, {"version": 1, "group": ..., "batch": 3, "state": "done"}, and has no information on
later batches. A trail that is made from version 1 has "complete": false until a batch is published.

It is an error if a file is missing or cannot be read: either the directory is not Spark's
checkpoint, or Arrow cannot reach it. Without an error the query would silently lose its protection.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import uuid
from typing import Any, NamedTuple

import pyarrow.fs as arrow_fs

from barnabas.spark_connector.write.deduplication import Lineage, PlannedBatch, Trail
from barnabas.spark_connector.write.spool import RENAMING, SpoolError, join_uri, open_file_system
from barnabas.spark_connector.write.spool_directory import NAME as SPOOL

VERSION = 2
NAME = "barnabas-published"
TROUBLE = (OSError, SpoolError)
SAY_WHERE = (
    "Give the option checkpointLocation as a URI that Spark and Arrow read alike (file:///path, "
    "hdfs://host/path, s3://bucket/path …; an object store's keys and endpoint in the "
    "environment), or set compareCheckpoint=false: then a copied or restored checkpoint is not "
    "detected."
)


def trail_of_write(group: str, target: str) -> str:
    """Return the name of the file with the trail of the writes in foreachBatch to one target.

    Takes:  group, the group of the write's writeId.
    """
    digest = hashlib.sha256(f"{group}\n{target}".encode()).hexdigest()
    return f"{NAME}-{digest[:16]}"


class CheckpointError(Exception):
    """A file of a checkpoint is missing, or cannot be read or written."""


class CheckpointPlace(NamedTuple):
    """What a task knows about the location of the checkpoint.

    location: the checkpoint's directory. root: the directory in
    spark.sql.streaming.checkpointLocation, where Spark creates a directory with a random name for a
    query without a location. Both are empty if Spark does not provide them.
    """

    location: str = ""
    root: str = ""


class Checkpoint:
    """The checkpoint directory of one query."""

    def __init__(self, location: str, query_id: str, trail_name: str = NAME) -> None:
        """Takes: query_id, which is empty if it is unknown; trail_name, the name of the file with
        the trail.
        """
        self._location, self._query_id, self._trail_name = location, query_id, trail_name

    @classmethod
    def at(cls, place: CheckpointPlace, query_id: str) -> Checkpoint:
        """Return the checkpoint at a place. If only the root is known, return the checkpoint in it
        that has the query's id.

        Raises: CheckpointError.
        """
        if place.location:
            return cls(place.location, query_id)
        if not place.root:
            raise CheckpointError(
                "this Spark does not pass the checkpoint's location to its tasks. Give the "
                "option checkpointLocation"
            )
        try:
            file_system, path = open_file_system(place.root)
            infos = file_system.get_file_info(arrow_fs.FileSelector(path))
        except TROUBLE as error:
            raise _unreadable(place.root, error) from error
        # The latest checkpoint is tried first. It is the query's, unless other queries were started
        # since.
        for info in sorted(infos, key=lambda info: info.mtime_ns or 0, reverse=True):
            found = cls(join_uri(place.root, info.base_name), query_id)
            if info.base_name != SPOOL and found.id() == query_id:
                return found
        raise CheckpointError(
            f"no directory in {place.root} is the checkpoint of query {query_id}. {SAY_WHERE}"
        )

    def plan_of_batch(self, batch_id: int, *, check_id: bool) -> str:
        """Return the plan of the current batch, a digest of the file that Spark wrote before the
        batch began.

        Takes:  check_id, whether the query id in the checkpoint is checked as well.
        Raises: CheckpointError if Spark's files of this query are missing.
        """
        if check_id:
            self._check_id()
        plan = self.plan_of(batch_id)
        if not plan:
            raise CheckpointError(
                f"the checkpoint at {self._location} has no file offsets/{batch_id}, which Spark "
                f"writes before the batch begins. {SAY_WHERE}"
            )
        return plan

    def _check_id(self) -> None:
        """Check that the checkpoint is the query's. If the query's id is unknown, check only that
        it is a query's.
        """
        found = self.id()
        if found and found == (self._query_id or found):
            return
        problem = (
            f"belongs to query {found}" if found else "has no file metadata of Spark's with an id"
        )
        wanted = f"query {self._query_id}" if self._query_id else "the query"
        raise CheckpointError(
            f"the checkpoint at {self._location} {problem}, where that of {wanted} should be. "
            f"{SAY_WHERE}"
        )

    def plan_of(self, batch_id: int) -> str:
        """Return the plan of an earlier batch, or an empty text if Spark has deleted its file.

        Raises: CheckpointError if the file cannot be read.
        """
        data = self._read("offsets", str(batch_id))
        return "" if data is None else hashlib.sha256(data).hexdigest()[:16]

    def trail(self) -> Trail:
        """Read the trail, which records the batches that were published with this checkpoint.

        Raises: CheckpointError.
        """
        data = self._read(self._trail_name)
        if data is None:
            return Trail()
        try:
            return _parse_trail(json.loads(data))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"the file {self._trail_name} in the checkpoint at {self._location} is damaged. "
                "Restore the "
                "checkpoint whole; if its last batch is the last one in the topic, delete the file "
                "and set onUncertainBatch for one start"
            ) from error

    def lineage(self) -> Lineage:
        """Return the batches that were run with this checkpoint. Raises: CheckpointError."""
        return Lineage(self.trail(), self.plan_of)

    def write(self, trail: Trail) -> None:
        """Write the trail. Raises: CheckpointError."""
        values: dict[str, Any] = {"version": VERSION, "group": trail.group, "run": trail.run}
        values |= {
            name: list(batch)
            for name, batch in (("begun", trail.begun), ("after", trail.after))
            if batch is not None
        }
        if not trail.is_complete:
            values["complete"] = False
        try:
            self._write(json.dumps(values).encode())
        except TROUBLE as error:
            raise CheckpointError(
                f"the file {self._trail_name} cannot be written into the checkpoint at "
                f"{self._location}: {error}. {SAY_WHERE}"
            ) from error

    def id(self) -> str:
        """Return the query's id in Spark's file metadata; an empty text if there is none."""
        data = self._read("metadata")
        try:
            return str(json.loads(data)["id"]) if data is not None else ""
        except (ValueError, KeyError, TypeError):
            return ""

    def _read(self, *names: str) -> bytes | None:
        """The content of a file in the checkpoint; None if it does not exist. Raises:
        CheckpointError.
        """
        uri = join_uri(self._location, *names)
        try:
            file_system, path = open_file_system(uri)
            if file_system.get_file_info(path).type == arrow_fs.FileType.NotFound:
                return None
            with file_system.open_input_stream(path, compression=None) as stream:
                return bytes(stream.read())
        except FileNotFoundError:  # Spark has deleted the file since the check
            return None
        except TROUBLE as error:
            raise _unreadable(uri, error) from error

    def _write(self, data: bytes) -> None:
        """Replace the file of the trail. If the file system can rename files, readers never see a
        partially written file.
        """
        file_system, path = open_file_system(join_uri(self._location, self._trail_name))
        renames = file_system.type_name in RENAMING
        # The name is unique, since a driver that Spark considers dead may write at the same time.
        partial = f"{posixpath.dirname(path)}/.{self._trail_name}.{uuid.uuid4().hex[:8]}.partial"
        written = partial if renames else path
        with file_system.open_output_stream(written, compression=None) as stream:
            stream.write(data)
        if renames:
            file_system.move(written, path)


def _unreadable(uri: str, error: Exception) -> CheckpointError:
    words = str(error).partition("\n")[0].rstrip(". ")
    return CheckpointError(f"{uri} of the checkpoint cannot be read: {words}. {SAY_WHERE}")


def _parse_trail(values: dict[str, Any]) -> Trail:
    """The trail in a file. Version 1 had neither the plans of batches nor the run."""
    if values["version"] == 1:
        batch = PlannedBatch(int(values["batch"]), "")
        return Trail(group=str(values["group"]), begun=batch, is_complete=False)
    begun, after = (
        PlannedBatch(int(each[0]), str(each[1])) if (each := values.get(name)) else None
        for name in ("begun", "after")
    )
    is_complete = bool(values.get("complete", True))
    return Trail(str(values["group"]), str(values["run"]), begun, after, is_complete)
