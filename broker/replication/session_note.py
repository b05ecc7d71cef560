"""The note `barnabas-lease-session`: of the node's process that led last from this directory.

A node that is started again need not wait for the end of a lease that its own dead process holds.
That the process is dead follows from the directory's lock, which whoever reads the note has; that
it was a process of this very directory, from `RunNote`: the machine has not been down, and this is
no copy of the directory, whose process may live. It is not replicated.
"""

from __future__ import annotations

from barnabas.storage.directory.last_run import RunNote
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import LEASE_SESSION_NAME


def read_session(disk: Disk, data_dir: str) -> str:
    """The session of the process that led last from here, and is certainly gone; else empty."""
    if not RunNote(disk, data_dir).is_same_run():
        return ""
    try:
        return disk.read(f"{data_dir}/{LEASE_SESSION_NAME}").decode("ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


def write_session(disk: Disk, data_dir: str, session: str) -> None:
    """This process leads from here. Its note need not outlive a power loss."""
    disk.write_atomic(f"{data_dir}/{LEASE_SESSION_NAME}", f"{session}\n".encode(), sync=False)
