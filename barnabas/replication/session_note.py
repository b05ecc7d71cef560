"""The file `barnabas-lease-session`, called the note. It contains the id of the last process of
this node that led from this directory.

With the note, a restarted node does not have to wait until the lease of its previous process ends.
The reader of the note has the directory's lock, so the process that wrote the note has ended.
`RunNote` shows that this process ran on this machine, that the machine has not been restarted
since, and that the directory is not a copy of a directory whose process may still run. The note is
not replicated.
"""

from __future__ import annotations

from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import LEASE_SESSION_NAME
from barnabas.storage.opening.last_run import RunNote


def read_session(disk: Disk, data_dir: str) -> str:
    """The session of the process that last led from this directory; empty unless that process has
    certainly ended.
    """
    if not RunNote(disk, data_dir).is_same_run():
        return ""
    try:
        return disk.read(f"{data_dir}/{LEASE_SESSION_NAME}").decode("ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


def write_session(disk: Disk, data_dir: str, session: str) -> None:
    """Write a note that this process leads from this directory. The note does not have to survive a
    power loss.
    """
    disk.write_atomic(f"{data_dir}/{LEASE_SESSION_NAME}", f"{session}\n".encode(), sync=False)
