"""The file behind a descriptor that the process inherited, as in `barnabas start 2>> broker.log`.

It is opened again after a program such as logrotate has renamed it.
"""

from __future__ import annotations

import os
import stat

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


class LogFile:
    """The file to which a descriptor writes.

    path: its path when this object was made; empty if the descriptor is no file, but a pipe, a
    terminal or a socket, which need not be opened again.
    """

    def __init__(self, descriptor: int = STANDARD_ERROR) -> None:
        self._descriptor = descriptor
        self.path = ""
        try:
            status = os.fstat(descriptor)
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # the descriptor is closed, or there is no /proc
            return
        if stat.S_ISREG(status.st_mode) and os.path.exists(path):
            self.path, self._mode = path, stat.S_IMODE(status.st_mode)

    def reopen(self) -> None:
        """Let the descriptor write to the file that now has the path, which is created if there is
        none. Standard output follows if it was the same file.

        Raises: OSError, after which the descriptor is unchanged.
        """
        if not self.path:
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        new = os.open(self.path, flags, self._mode)
        try:
            also_output = _is_same_file(STANDARD_OUTPUT, self._descriptor)
            os.dup2(new, self._descriptor)
            if also_output:
                os.dup2(new, STANDARD_OUTPUT)
        finally:
            os.close(new)


def _is_same_file(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False
