"""The state of a Python process of Spark, which runs tasks or steps of the driver, one after the
other.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.spark_connector.client import Client
from barnabas.spark_connector.options import ClientOptions

MOST_CLIENTS = 4  # clients that a process keeps, one for each configuration
KEPT_BUFFER_BYTES = 1 << 20  # buffer of each kept connection
FREEZES = 4  # only the first calls exempt objects: the first tasks load modules and their caches


class _Process:
    """The state that a process keeps from one task to the next."""

    def __init__(self) -> None:
        self.freezes = 0
        self.clients: dict[ClientOptions, Client] = {}


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


@contextmanager
def task_client(options: ClientOptions) -> Iterator[Client]:
    """A task's client, over connections that an earlier task of this process has left open.

    Connecting and negotiating versions are most of the requests of a task with few rows. Answers to
    an earlier task are not reused. After a failed task no connection is kept.
    """
    client = _process.clients.pop(options, None) or Client(options)
    client.renew(KEPT_BUFFER_BYTES)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    client.renew(KEPT_BUFFER_BYTES)
    if len(_process.clients) >= MOST_CLIENTS:
        _process.clients.pop(next(iter(_process.clients))).close()
    _process.clients[options] = client
