"""The Python process of Spark's that runs one task, or one step of the driver, after the other."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.spark_connector.client import Client
from barnabas.spark_connector.options import ClientOptions

MOST_CLIENTS = 4  # that a process keeps, one for each way to brokers
KEPT_BUFFER_BYTES = 1 << 20  # of each connection
FREEZES = 4  # so many first calls exempt: modules and what they cache come with the first tasks


class _Process:
    """What a process remembers from one task to the next."""

    def __init__(self) -> None:
        self.freezes = 0
        self.clients: dict[ClientOptions, Client] = {}


_process = _Process()


def exempt_modules_from_collection() -> None:
    """Take all objects that there are by now out of Python's garbage collections, at the beginning
    of each of a process's first tasks.

    PySpark collects after each task, and looks at every function and class of every module each
    time: 15 to 30 ms of CPU, in each of the processes that plan, read, write and commit a
    micro-batch, which is most of what one with few rows costs in Python. The first call comes
    before most modules are imported, the later ones after such a collection, so that next to no
    garbage is exempt with them. What is exempt is still freed when its last reference goes; only
    cycles among what is there now would stay.
    """
    if _process.freezes < FREEZES:
        _process.freezes += 1
        gc.freeze()


@contextmanager
def task_client(options: ClientOptions) -> Iterator[Client]:
    """A task's client, over connections that an earlier task of this process has left open.

    To connect and to agree on versions is most of what a task with few rows asks of a broker. What
    brokers said to an earlier task is not used again. After a task that failed nothing is kept.
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
