"""The lowest versions of the dependencies that pyproject.toml allows, and tests with these
versions.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
EXTRAS = ("cli", "metrics", "tls", "oauth", "schemas")
TESTS_NEED = (
    "aiokafka",
    "confluent-kafka",
    "hypothesis",
    "kafka-python",
    "pytest",
    "pytest-xdist",
)
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?P<extras>\[[^]]+\])?(?P<bounds>.*)")
_LOWEST = re.compile(r">=([0-9][0-9A-Za-z.]*)")


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def lowest(requirement: str) -> tuple[str, str]:
    """The name of a requirement, with its extras, and the lowest version that it allows.

    Raises: ValueError if the requirement has no lower bound.
    """
    match = _REQUIREMENT.fullmatch(requirement)
    bound = None if match is None else _LOWEST.search(match["bounds"])
    if match is None or bound is None:
        raise ValueError(f"{requirement} has no lower bound")
    return match["name"] + (match["extras"] or ""), bound[1]


def is_own(requirement: str) -> bool:
    """Whether the requirement is an extra of this project."""
    return requirement.startswith("barnabas[")


def pins(table: Mapping[str, Any], extras: Iterable[str] = EXTRAS) -> list[str]:
    """The requirements for pip, each in its lowest version. They are the dependencies of the
    broker, of its extras, and of the tests.
    """
    optional = table["optional-dependencies"]
    wanted = [*table["dependencies"], *(one for extra in extras for one in optional[extra])]
    found = dict(lowest(one) for one in wanted)
    for group in ("dev", "demo", "exactly-once"):
        for one in filter(lambda one: not is_own(one), optional.get(group, ())):
            name, version = lowest(one)
            if name.partition("[")[0] in TESTS_NEED:
                found.pop(name.partition("[")[0], None)
                found[name] = version
    return [f"{name}=={version}" for name, version in found.items()]
