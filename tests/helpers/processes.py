"""The environment of processes that tests start from this checkout, and the memory use of
processes.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """The environment of a process that imports this checkout and its tests."""
    inherited = os.environ.get("PYTHONPATH")
    paths = [
        str(ROOT),
        str(ROOT / "tests" / "tools"),
        str(ROOT / "tests"),
        *([inherited] if inherited else []),
    ]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def rss_mb(pid: int) -> float:
    """The resident memory of a process in MB, or 0 if the process has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
