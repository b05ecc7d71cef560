"""Directories that are deleted after the tests. They are in a file system in memory if the machine
has one, since each start of a broker syncs many files.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from barnabas.storage.disk import OsDisk

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class SamePlaceDisk(OsDisk):
    """A disk on which every directory seems to be on the same mount.

    A broker that starts on a copy of a directory then takes it for a directory that a killed broker
    left. Otherwise it would take it for a copy, in which unflushed data may be missing.
    """

    def mount_id(self, path: str) -> str:
        return "same-place"


def scratch_directory() -> str:
    """A new directory, which is deleted when the process ends."""
    path = tempfile.mkdtemp(prefix="barnabas-test-", dir=IN_MEMORY)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
