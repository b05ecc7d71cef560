"""The state that a Python process of Spark keeps between the tasks, or the steps of the driver,
that it runs one after the other.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

from barnabas.client.cluster_reader import ClusterReader
from barnabas.client.options import ClientOptions

MOST_CLIENTS = 4  # the number of clients that a process keeps, one for each configuration
MOST_RUNS = 100  # the number of drivers whose last run a process remembers
MOST_PUBLISHERS = 4  # the number of publishers that a process keeps, one for each transactional id
KEPT_BUFFER_BYTES = 1 << 20  # the maximum buffer size of a connection that is kept
# The number of calls that exempt objects: the first tasks load modules and fill their caches, later
# ones do not.
FREEZES = 4


class _Kept(Protocol):
    """An object with connections that is used by several tasks or steps in turn."""

    def renew(self, buffer_bytes: int) -> None:
        """Close all connections, except idle ones with small buffers."""

    def close(self) -> None:
        """Close all connections."""


Key = TypeVar("Key", bound=Hashable)
K = TypeVar("K", bound=_Kept)


class _Process:
    """The state that a process keeps from one task to the next."""

    def __init__(self) -> None:
        self.freezes = 0
        self.clients: dict[ClientOptions, ClusterReader] = {}
        self.runs: dict[str, str] = {}
        self.publishers: dict[Hashable, Any] = {}


_process = _Process()


def exempt_modules_from_collection() -> None:
    """Exclude all present objects from Python's garbage collection.

    The function is called at the beginning of each task, and has an effect in a process's first
    tasks. PySpark runs a collection after each task, which traverses every function and class of
    every module. That takes 15 to 30 ms of CPU in each process that plans, reads, writes and
    commits a micro-batch, which is most of the Python time for a batch with few rows.

    The first call is made before most modules are imported, the later ones after such a collection.
    Hardly any garbage is therefore excluded. An excluded object is still freed with its last
    reference. Only reference cycles among these objects would remain.
    """
    if _process.freezes < FREEZES:
        _process.freezes += 1
        gc.freeze()


def task_client(options: ClientOptions) -> AbstractContextManager[ClusterReader]:
    """A task's client, which uses connections that an earlier task of this process has left open.

    Without them, most requests of a task with few rows would only connect and negotiate versions.
    Responses to an earlier task are not used again. After a failed task no connection is kept.
    """
    return _kept(_process.clients, MOST_CLIENTS, options, lambda: ClusterReader(options))


def is_first_of_run(driver_id: str, run: str) -> bool:
    """Whether this process has not published for this run of the driver yet. A write without a run
    is always the first.
    """
    is_first = not run or _process.runs.pop(driver_id, "") != run
    _process.runs[driver_id] = run
    if len(_process.runs) > MOST_RUNS:
        _process.runs.pop(next(iter(_process.runs)))
    return is_first


def kept_publisher(key: Hashable, make: Callable[[], K]) -> AbstractContextManager[K]:
    """The publisher that the driver keeps under a key from one batch to the next; `make` makes a
    new one.

    The connections lead to the coordinators and leaders of the last batch. To find and reach them
    takes half of the requests of a batch with few rows. If a coordinator or leader has moved, the
    attempt fails, and the next attempt looks it up again. After a failed batch no connection is
    kept.
    """
    return _kept(_process.publishers, MOST_PUBLISHERS, key, make)


@contextmanager
def _kept(kept: dict[Key, K], most: int, key: Key, make: Callable[[], K]) -> Iterator[K]:
    """Yield the object that is kept under the key, or a new one, and keep it afterwards.

    At most `most` objects are kept, namely the last used ones. After an error the object is closed.
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
