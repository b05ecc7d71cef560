"""PySpark's daemon, which starts the Python processes of a session. This version does not print a
traceback for each process that Java ends.

Java ends a process that was idle for a minute by closing its socket. The process then still has the
last bytes of its last response in a buffer, since Java does not wait for them. TCP accepts such
bytes. A Unix domain socket rejects them, and PySpark's daemon prints a traceback. The launcher of
session.py runs this module in place of `pyspark.daemon`.
"""

from __future__ import annotations

from socket import socket

from pyspark import daemon

_run_worker = daemon.worker


def run_worker(sock: socket, authenticated: bool) -> int:
    """Run one task in this process. Gives: the exit status. If it is not 0, the process ends."""
    try:
        return int(_run_worker(sock, authenticated))
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = run_worker
    daemon.manager()
