"""The CRC-32C of record batches and of the broker's own files, from the package `crc32c`.

When this package is imported, it looks up its own version. For this it parses its metadata with the
standard library's mail parser, which takes a sixth of the instructions of a broker's start. Only
the package's compiled module is therefore loaded here. If it has none, the package is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType

_NAME = "crc32c._crc32c"


def _compiled_module() -> ModuleType | None:
    """Load the package's compiled module without the package. Return None if it has none."""
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    package = PathFinder.find_spec("crc32c")
    if package is None or package.submodule_search_locations is None:
        return None
    spec = PathFinder.find_spec(_NAME, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return None
    module = spec.loader.create_module(spec)
    if module is None:
        return None
    spec.loader.exec_module(module)
    sys.modules[_NAME] = module  # a later import of the package uses this module
    return module


def _load() -> Callable[..., int]:
    compiled = _compiled_module() or import_module("crc32c")
    checksum: Callable[..., int] = compiled.crc32c
    return checksum


crc32c = _load()
"""crc32c(data, value=0): the CRC-32C of the data; with `value`, the CRC of some bytes, that of
these bytes followed by the data."""
