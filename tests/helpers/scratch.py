"""Directories for files that need not outlive the tests: in memory, if the machine has a file
system for that, since each start syncs many files.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from barnabas.storage.disk import OsDisk

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class SamePlaceDisk(OsDisk):
    """A disk on which every directory looks like the same mount.

    So a broker that starts on a copy of a directory treats it as left by a killed broker, not as a
    copy, in which unflushed data may be missing.
    """

    def mount_id(self, path: str) -> str:
        return "same-place"


def scratch_directory() -> str:
    """A new directory, gone when the process ends."""
    path = tempfile.mkdtemp(prefix="barnabas-test-", dir=IN_MEMORY)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
