"""The state of a Python process of Spark, which runs tasks or steps of the driver, one after the
other.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.spark_connector.client import Client
from barnabas.spark_connector.options import ClientOptions

if TYPE_CHECKING:
    from barnabas.spark_connector.publishing import Publisher, PublishSettings

MOST_CLIENTS = 4  # clients that a process keeps, one for each configuration
MOST_PUBLISHERS = 4  # publishers that a process keeps, one for each transactional id
KEPT_BUFFER_BYTES = 1 << 20  # buffer of each kept connection
FREEZES = 4  # only the first calls exempt objects: the first tasks load modules and their caches


class _Kept(Protocol):
    """Something with connections, for one task or step after the other."""

    def renew(self, buffer_bytes: int) -> None:
        """Close all connections but idle ones with small buffers."""

    def close(self) -> None:
        """Close all connections."""


Key = TypeVar("Key", bound=Hashable)
K = TypeVar("K", bound=_Kept)


class _Process:
    """The state that a process keeps from one task to the next."""

    def __init__(self) -> None:
        self.freezes = 0
        self.clients: dict[ClientOptions, Client] = {}
        self.publishers: dict[tuple[ClientOptions, PublishSettings, str], Publisher] = {}


_process = _Process()


def exempt_modules_from_collection() -> None:
    """Exclude all present objects from Python's garbage collections, at the beginning of each of a
    process's first tasks.

    PySpark runs a collection after each task, which traverses every function and class of every
    module: 15 to 30 ms of CPU, in each process that plans, reads, writes and commits a micro-batch,
    which is most of the Python time for a batch with few rows. The first call is made before most
    modules are imported, the later ones after such a collection, so that almost no garbage is
    excluded. An excluded object is still freed with its last reference; only cycles among these
    objects would stay.
    """
    if _process.freezes < FREEZES:
        _process.freezes += 1
        gc.freeze()


def task_client(options: ClientOptions) -> AbstractContextManager[Client]:
    """A task's client, over connections that an earlier task of this process has left open.

    Connecting and negotiating versions are most of the requests of a task with few rows. Answers to
    an earlier task are not reused. After a failed task no connection is kept.
    """
    return _kept(_process.clients, MOST_CLIENTS, options, lambda: Client(options))


def driver_publisher(
    options: ClientOptions, settings: PublishSettings, transactional_id: str
) -> AbstractContextManager[Publisher]:
    """The publisher of a transactional id, over connections that its last batch in this process has
    left open, to the coordinators and leaders that were found then.

    To find and to reach them are half of the requests of a batch with few rows. If one has moved,
    the attempt fails, and the next one looks for it. After a batch that failed nothing is kept.
    """
    from barnabas.spark_connector.publishing import Publisher  # only the driver's steps publish

    key = (options, settings, transactional_id)
    return _kept(_process.publishers, MOST_PUBLISHERS, key, lambda: Publisher(options, settings))


@contextmanager
def _kept(kept: dict[Key, K], most: int, key: Key, make: Callable[[], K]) -> Iterator[K]:
    """The one that was kept under the key, else a new one; afterwards it is kept as the last of
    `most`, unless there was an error.
    """
    used = kept.pop(key, None) or make()
    used.renew(KEPT_BUFFER_BYTES)
    try:
        yield used
    except BaseException:
        used.close()
        raise
    used.renew(KEPT_BUFFER_BYTES)
    if len(kept) >= most:
        kept.pop(next(iter(kept))).close()
    kept[key] = used
