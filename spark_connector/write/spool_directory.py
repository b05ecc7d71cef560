"""The directory of spool files if the option spoolDirectory is not set. A batch write uses a
private directory of the user, a stream a directory in the checkpoint. Before a task writes a file,
it checks that the driver has access to the same directory.

    write     directory                                 the task compares
    batch     <temporary>/barnabas-spool-<user's id>    machine, device and inode of <temporary>
    stream    <checkpoint>/barnabas-spool               whether Spark's file `metadata` exists, if
                                                        the checkpoint is on the machine's own disk

The private directory has mode 0700, which keeps other users from reading the rows.
"""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from barnabas.spark_connector.write.spool import SpoolError, is_local

NAME = "barnabas-spool"
ADVICE = (
    "Set the option spoolDirectory to a directory that the driver and all executors see (on "
    "HDFS, in an object store or on a shared disk), raise inlineBytes, or let tasks write their "
    "rows (sinkMode)."
)


def private_directory() -> str:
    """The path of this user's directory in the temporary directory. The directory may not exist."""
    return os.path.join(tempfile.gettempdir(), f"{NAME}-{os.getuid()}")


def make_private_directory(path: str) -> None:
    """Make the directory with mode 0700, or use the existing one if it belongs to this user.

    Raises: SpoolError if the path belongs to another user, or is not a directory.
    """
    try:
        Path(path).mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise SpoolError(
            f"The directory {path} for spool files cannot be created: {error.strerror}. Set "
            "the option spoolDirectory, or the variable TMPDIR of driver and executors."
        ) from error
    found = os.lstat(path)  # a link may point to the directory of another user
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise SpoolError(
            f"{path}, the directory of spool files, belongs to another user or is not a "
            "directory: remove it, or set the option spoolDirectory."
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.chmod(path, 0o700)


def identity_of_temporary_directory() -> str:
    """A text that differs between the temporary directories of two machines or containers."""
    found = os.stat(tempfile.gettempdir())
    return f"{_machine()} {found.st_dev}:{found.st_ino}"


def _machine() -> str:
    """An identifier of this machine: the boot id of Linux, which changes at each boot, or else the
    host name.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return socket.gethostname()


def check_temporary_directory(of_driver: str) -> None:
    """Check that the driver has the same temporary directory as this task.

    Takes:  of_driver, the driver's result of `identity_of_temporary_directory`.
    Raises: SpoolError.
    """
    if identity_of_temporary_directory() != of_driver:
        raise SpoolError(
            f"a task on {socket.gethostname()} has more than inlineBytes of records, and passes "
            f"them by a file in the temporary directory {tempfile.gettempdir()}; the driver has "
            f"another one, on another machine or in another container. {ADVICE}"
        )


def check_checkpoint(location: str, file: str = "") -> None:
    """Check that this task sees the driver's checkpoint, if it is on a machine's own file system.

    Takes:  location, the checkpoint or the directory in which Spark creates it; file, the name of a
            file that Spark has in that directory, if known.
    Raises: SpoolError.
    """
    if not is_local(location):
        return
    path = location if os.path.isabs(location) else unquote(urlsplit(location).path)
    if not os.path.exists(os.path.join(path, file)):
        raise SpoolError(
            f"a task on {socket.gethostname()} has more than inlineBytes of records, which go to "
            f"the driver by a file in the checkpoint {location}, and does not have that directory: "
            f"it is on the driver's own disk. {ADVICE}"
        )
