"""Where tests keep what need not outlive them: in memory, where the machine has a file system for that, since each start syncs many files."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def scratch_directory() -> str:
    """A new directory, gone when the process ends."""
    path = tempfile.mkdtemp(prefix="barnabas-test-", dir=IN_MEMORY)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
