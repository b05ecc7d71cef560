"""Where tests keep what need not outlive them: in memory, where the machine has a file system for
that, since each start syncs many files.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from barnabas.storage.disk import OsDisk

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class SamePlaceDisk(OsDisk):
    """A disk whose directories are all in the same place.

    A broker that starts on a copy of a directory takes it for what a killed broker left there, and
    not for a copy, which lacks what was not flushed.
    """

    def mount_id(self, path: str) -> str:
        return "same-place"


def scratch_directory() -> str:
    """A new directory, gone when the process ends."""
    path = tempfile.mkdtemp(prefix="barnabas-test-", dir=IN_MEMORY)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
