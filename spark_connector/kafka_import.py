"""`import kafka` without kafka-python's clients, which take most of its import and which the
connector does not use.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any


def enter_kafka_without_clients() -> None:
    """Put a package `kafka` into sys.modules whose own code runs when an attribute that it lacks is
    asked for.
    """
    if "kafka" in sys.modules:
        return
    spec = importlib.util.find_spec("kafka")
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        raise ImportError(
            "kafka-python is missing: install it with `pip install 'kafka-python>=3.0.12'`"
        )
    package = types.ModuleType("kafka")
    package.__spec__, package.__loader__, package.__file__ = spec, spec.loader, spec.origin
    package.__path__ = list(spec.submodule_search_locations)
    loader = spec.loader

    def load_all(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        del package.__dict__["__getattr__"]
        loader.exec_module(package)
        return getattr(package, name)

    package.__dict__["__getattr__"] = load_all
    sys.modules["kafka"] = package
