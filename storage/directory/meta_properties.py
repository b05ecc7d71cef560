"""`meta.properties`, which names the owner of a data directory, in the format of Apache Kafka 3.9.

version=1
node.id=<number>         the broker's id; a broker with another id cannot use the directory
cluster.id=<id>          assigned once
directory.id=<id>        assigned once
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import (
    META_PROPERTIES_NAME,
    CorruptCheckpoint,
    decode_properties,
    encode_properties,
)
from barnabas.storage.log.log_directory import LogDirectoryError


class MetaProperties(NamedTuple):
    """The ids of a data directory. An id that is not assigned is None."""

    node_id: int
    cluster_id: str | None
    directory_id: str | None


def take_directory(disk: Disk, data_dir: str, ids: MetaProperties) -> MetaProperties:
    """Read the ids of the directory. Of the ids that it lacks, store those in `ids`.

    Raises: LogDirectoryError for another node's directory or an unreadable file; OSError.
    """
    path = f"{data_dir}/{META_PROPERTIES_NAME}"
    try:
        properties = decode_properties(disk.read(path))
    except FileNotFoundError:
        properties = {}
    except CorruptCheckpoint as error:
        raise LogDirectoryError(
            f"{path} cannot be read ({error}): restore it, or remove it to create a new one"
        ) from error
    node_id = properties.get("node.id", str(ids.node_id))
    if node_id != str(ids.node_id):
        raise LogDirectoryError(
            f"{path} says that the directory belongs to node {node_id}, not to node "
            f"{ids.node_id}: set node.id={node_id}, restore the file, or give another log.dirs"
        )
    cluster_id = properties.get("cluster.id", ids.cluster_id)
    directory_id = properties.get("directory.id", ids.directory_id)
    complete = {
        "node.id": node_id,
        "directory.id": directory_id,
        "version": "1",
        "cluster.id": cluster_id,
    }
    complete |= {key: value for key, value in properties.items() if key not in complete}
    texts = {key: value for key, value in complete.items() if value is not None}
    if texts != properties:
        disk.write_atomic(path, encode_properties(texts))
    return MetaProperties(ids.node_id, cluster_id, directory_id)
