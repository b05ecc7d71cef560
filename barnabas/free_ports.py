"""Ports for brokers of tests, none of which another broker had shortly before.

A client that outlives its test connects again to the port that it knows. The operating system may
give this port to the next broker, which would then get the requests of another test. So a port that
this process has used comes back after thousands of brokers, and the processes of pytest-xdist take
theirs from separate shares of the ports.
"""

from __future__ import annotations

import os
import socket
import threading

_KEPT = 6000  # ports that are not used again; the system gives about 14,000 of one parity
_MOST_TRIES = 1000

_lock = threading.Lock()
_used: dict[int, None] = {}  # the oldest first


def new_ports(count: int) -> list[int]:
    """Free ports of 127.0.0.1, which this process has not used before. Another process may take one
    before its broker does.
    """
    index, processes = _share()
    refused: list[socket.socket] = []
    ports: list[int] = []
    with _lock:
        while len(_used) > _KEPT // processes:
            del _used[next(iter(_used))]
        try:
            while len(ports) < count:
                sock = socket.socket()
                # until the end, so that the system gives other ones
                refused.append(sock)
                sock.bind(("127.0.0.1", 0))
                port = sock.getsockname()[1]
                # half of the port: a system may give only even ones
                is_ours = port // 2 % processes == index and port not in _used
                if is_ours or len(refused) > _MOST_TRIES:
                    _used[port] = None
                    ports.append(port)
        finally:
            for sock in refused:
                sock.close()
    return ports


def _share() -> tuple[int, int]:
    """Which share of the ports this process takes: its index, and the number of processes."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    count = os.environ.get("PYTEST_XDIST_WORKER_COUNT", "")
    if worker.isdecimal() and count.isdecimal() and int(worker) < int(count):
        return int(worker), int(count)
    return 0, 1
