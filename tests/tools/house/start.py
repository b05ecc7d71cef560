"""The modules that the daemon loads from its start to its first response to Metadata.

Nearly all of the start's CPU time is spent on loading them. `make bench` measures the time.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from helpers.e2e_clients import eventually
from helpers.our_messages import read_answer, request_frame

from barnabas.protocol.messages.metadata import MetadataRequest

ROOT = Path(__file__).resolve().parents[3]
METADATA_VERSION = 4
START = """
import sys
from barnabas.daemon import main
status = main.main(sys.argv[1:])
print("LOADED", *sys.modules)
sys.exit(status)
"""


def report() -> Iterator[str]:
    """The number of modules, and the sizes of those of each folder."""
    loaded = modules_of_a_start()
    files = {name: ROOT / f"{name.replace('.', '/')}.py" for name in loaded}
    sizes = {
        name: path.stat().st_size
        for name, path in files.items()
        if name.startswith("barnabas.") and path.is_file()
    }
    yield (
        f"{len(loaded)} modules, {len(sizes)} of them ours, with {sum(sizes.values()) / 1000:.0f} "
        "KB of source"
    )
    folders: Counter[str] = Counter()
    for name, size in sizes.items():
        folders["/".join(name.split(".")[1:-1]) or "barnabas"] += size
    yield from (f"{size / 1000:6.0f} KB {folder}" for folder, size in folders.most_common())


def modules_of_a_start() -> set[str]:
    """The modules that are loaded when the daemon ends, after it answered a Metadata request."""
    with tempfile.TemporaryDirectory(prefix="barnabas-house-") as directory:
        ready = Path(directory, "ready")
        with subprocess.Popen(
            [sys.executable, "-c", START, "start", "--port", "0", "--data-dir",
             f"{directory}/data", "--stop-at-end-of-input", "--ready-file", str(ready)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        ) as daemon:  # fmt: skip
            try:
                eventually(ready.exists, what="the daemon listens")
                _ask_for_metadata(int(ready.read_text().rpartition(":")[2]))
                output, _ = daemon.communicate(timeout=60)
            finally:
                daemon.kill()
    (line,) = [line for line in output.splitlines() if line.startswith("LOADED ")]
    return set(line.split()[1:])


def _ask_for_metadata(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        frame = request_frame(MetadataRequest(), METADATA_VERSION, 1)
        sock.sendall(struct.pack(">i", len(frame)) + frame)
        with sock.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            assert read_answer(stream.read(size), MetadataRequest, METADATA_VERSION).brokers
