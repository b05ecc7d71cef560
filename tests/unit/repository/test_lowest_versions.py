"""The lower bounds of dependencies. Each dependency has a lower bound that excludes versions with
known flaws.
"""

from __future__ import annotations

import pytest
from lowest import EXTRAS, is_own, lowest, pins, project

TABLE = project()
OF_EXTRAS = TABLE["optional-dependencies"]
ALL = sorted(
    {one for group in (TABLE["dependencies"], *OF_EXTRAS.values()) for one in group}
    - {one for group in OF_EXTRAS.values() for one in group if is_own(one)}
)
# For each package, the first version without known flaws, according to the advisories of October
# 2026.
WITHOUT_KNOWN_FLAWS = {
    "anyio": (4, 14, 2),  # CVE-2026-63374
    "cryptography": (50,),  # CVE-2026-69247
    "msgpack": (1, 2, 3),  # CVE-2026-114613, reachable before a login
    "protobuf": (6, 33, 5),
    "pyjwt": (2, 15),  # CVE-2024-53861 (issuers), CVE-2026-32597 (crit), CVE-2026-101918 and others
}
# For each package, the first version with which the tests pass.
THAT_WORK = {"click": (8, 4), "confluent-kafka": (2, 12), "cramjam": (2, 14)}


@pytest.mark.parametrize("requirement", ALL)
def test_every_dependency_has_a_lower_bound_that_is_right(requirement: str) -> None:
    name, version = lowest(requirement)
    known = WITHOUT_KNOWN_FLAWS | THAT_WORK
    bound = tuple(int(part) for part in version.split("."))
    assert bound >= known.get(name.partition("[")[0], (0,))


def test_the_lowest_versions_are_those_of_the_broker_its_extras_and_the_tests() -> None:
    table = {
        "dependencies": ["a>=1.2"],
        "optional-dependencies": {
            "cli": ["kafka-python>=3.0.12,<3.1"], "tls": ["b[c]>=2"],
            "dev": ["barnabas[cli]", "kafka-python[lz4]>=3.0.12,<3.1", "pytest>=8.2", "ruff>=1"],
            "demo": [],
        },
    }  # fmt: skip
    assert pins(table, ("cli", "tls")) == [
        "a==1.2", "b[c]==2", "kafka-python[lz4]==3.0.12", "pytest==8.2",
    ]  # fmt: skip
    assert set(EXTRAS) < set(OF_EXTRAS)
    assert len(pins(TABLE)) > 12
    with pytest.raises(ValueError, match="nothing has no lower bound"):
        lowest("nothing")
