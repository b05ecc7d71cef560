"""A disk on which exactly one operation fails: the n-th after the count was started."""

from __future__ import annotations

import errno
import os
from typing import Any

from barnabas.storage.disk import FailedFsync
from helpers.crash_images import ImagedDisk
from helpers.disk_broker import Worst
from helpers.full_disk import ALL


class Halves(Worst):
    """A random generator with which a failing write still writes half of its bytes."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return start // 2


class FailingDisk(ImagedDisk):
    """A disk on which one operation fails. `fails_at` is the number of operations before it. With
    ENOSPC only operations that need space are counted; with other error codes all changes and
    fsyncs are. `count` is the number of operations since `begin`.
    """

    def __init__(self, now_ms: Any) -> None:
        super().__init__(now_ms)
        self.code, self.fails_at, self.count, self.is_counting = errno.EIO, -1, 0, False

    def begin(self) -> None:
        """Begin to count operations. No images are taken."""
        self.is_counting = True

    def allow(self, operation: str) -> None:
        # An open that creates a file is a change, which `step` or `refuses` counts.
        if operation != "open":
            super().allow(operation)

    def refuses(self, operation: str) -> bool:
        """Whether this operation is the one that fails. With ENOSPC any change may fail, but no
        fsync. With another error code an fsync may fail here, and changes fail in `counts_down`.
        """
        if operation == "fsync":
            return self.code != errno.ENOSPC and self._is_next()
        if self.code == errno.ENOSPC and operation in ALL:
            return self._is_next()
        return False

    def counts_down(self) -> bool:
        """Whether this change is the one that fails, with an error code other than ENOSPC."""
        if self.code != errno.ENOSPC and self._is_next():
            return True
        return super().counts_down()

    def failure(self) -> BaseException:
        return OSError(self.code, os.strerror(self.code))

    def crash(self) -> BaseException:
        return self.failure()

    def _is_next(self) -> bool:
        """Count an operation, and return whether it is the one that fails. A failing write still
        writes half of its bytes.
        """
        if not self.is_counting:
            return False
        self.count += 1
        is_next = self.count == self.fails_at + 1
        if is_next:
            self.rng = Halves()
        return is_next

    def forget(self) -> None:
        """Stop failing. At a power loss, everything that was not made durable is lost."""
        self.is_counting, self.rng = False, Worst()


def is_of_the_disk(error: OSError) -> bool:
    """Whether the error came from the disk. Otherwise the broker raised it for another reason."""
    return isinstance(error, FailedFsync) or error.errno in (errno.EIO, errno.ENOSPC)
