"""PySpark's daemon, which starts the Python processes of a session. This version does not print a
traceback for each process that Java ends.

Java ends a process that was idle for a minute by closing its socket. The process then still has the
last bytes of its last response in a buffer, since Java does not wait for them. TCP accepts such
bytes. A Unix domain socket rejects them, and PySpark's daemon prints a traceback. The launcher of
session.py runs this module in place of `pyspark.daemon`.
"""

from __future__ import annotations

import sys
from socket import socket

from pyspark import daemon

_run_worker = daemon.worker


def _ignore_broken_pipes() -> None:
    """Do not print a BrokenPipeError that nobody can catch.

    When the buffer is freed, Python tries once more to write its last bytes. Since Python 3.13 a
    failure of that is printed as "Exception ignored".
    """
    others = sys.unraisablehook

    def show(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is not BrokenPipeError:
            others(unraisable)

    sys.unraisablehook = show


def run_worker(sock: socket, authenticated: bool) -> int:
    """Run one task in this process. Gives: the exit status. If it is not 0, the process ends."""
    _ignore_broken_pipes()
    try:
        return int(_run_worker(sock, authenticated))
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = run_worker
    daemon.manager()
