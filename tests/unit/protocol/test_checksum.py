"""The checksum: CRC-32C by its specification, computed with and without the optional package."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import PathFinder

import pytest

from barnabas.protocol import checksum

# RFC 3720, B.4
VECTORS = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_the_checksum_is_crc_32c(data: bytes, expected: int) -> None:
    assert checksum.crc32c(data) == expected
    assert checksum.crc32c(memoryview(data)[20:], checksum.crc32c(data[:20])) == expected


def test_the_package_is_used_if_its_compiled_module_is_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "crc32c._crc32c", raising=False)
    monkeypatch.setattr(PathFinder, "find_spec", lambda *_: None)
    assert checksum._compiled_module() is None
    monkeypatch.undo()
    monkeypatch.setattr(checksum, "_compiled_module", lambda: None)
    assert checksum._load()(bytes(32)) == 0x8A9136AA


def test_the_package_can_be_imported_after_its_compiled_module() -> None:
    """The product loads the compiled module of the package crc32c without the package."""
    code = (
        "import sys; from barnabas.protocol.checksum import crc32c; "
        "assert 'crc32c' not in sys.modules; import crc32c as package; "
        "assert package.crc32c(b'x') == crc32c(b'x')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
