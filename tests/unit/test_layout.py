"""The layout of the repository: what the benchmarks and the tests take from each other, and which
modules have a test of their name.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES_OF_TESTS = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
MODULES_OF_TESTS = {path.stem for path in (ROOT / "tests").glob("*.py")}


def imported_by(path: Path) -> set[str]:
    """The first names of all that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module.partition(".")[0])
    return names


def test_benchmarks_import_nothing_of_the_tests() -> None:
    of_tests = (PACKAGES_OF_TESTS | MODULES_OF_TESTS | {"tests"}) - {"examples"}
    importing = {
        path.name: names
        for path in (ROOT / "bench").rglob("*.py")
        if (names := imported_by(path) & of_tests)
    }
    assert importing == {}


def test_no_tests_but_those_of_the_benchmarks_import_them() -> None:
    importing = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if "bench" in imported_by(path) and not path.name.startswith("test_bench_")
    }
    assert importing == set()


# --- a test for each module ---------------------------------------------------------------------

# How the tests of a package are called: `broker/core.py` has `test_broker_core.py`.
PREFIXES = {
    "barnabas": "",
    "broker": "broker_",
    "broker/control": "broker_control_",
    "broker/handlers": "broker_handlers_",
    "coordinator": "coordinator_",
    "protocol": "protocol_",
    "spark_connector": "spark_",
    "storage": "storage_",
}
# Modules that are a part of something, which is tested as a whole, and where.
TESTED_AS_A_PART = {
    "barnabas/control.py": "e2e/test_local_broker.py",
    "barnabas/spark.py": "unit/test_spark_query_lag.py",
    "barnabas/texts.py": "unit/test_cli_parsing.py",
    "barnabas/version.py": "e2e/test_distributions.py",
    "broker/control/endpoint.py": "e2e/test_local_broker.py",
    "broker/control/observed.py": "e2e/test_local_broker.py",
    "broker/refusals.py": "unit/test_broker_control_faults.py",
    "broker/control/server.py": "e2e/test_local_broker.py",
    "broker/coordinator_edge.py": "unit/test_broker_failover.py",
    "broker/coordinator_runtime.py": "unit/test_broker_core.py",
    "broker/transaction_recovery.py": "unit/test_broker_decisions.py",
    "broker/group_topics.py": "unit/test_broker_group_configs.py",
    "coordinator/consumer_group.py": "unit/test_coordinator_consumer_groups.py",
    "coordinator/consumer_group_settings.py": "unit/test_coordinator_consumer_groups.py",
    "coordinator/consumer_group_change.py": "unit/test_coordinator_consumer_groups.py",
    "coordinator/group_conversion.py": "unit/test_coordinator_classic_members.py",
    "coordinator/group_timers.py": "unit/test_coordinator_consumer_groups.py",
    "coordinator/internal_topics.py": "unit/test_broker_handlers_topics.py",
    "protocol/records.py": "property/test_storage_record_walk.py",
}


def name_of_test(module: str) -> str:
    """The name that a module's test has, or has with an "s" behind it."""
    folder, _, name = module.removesuffix(".py").rpartition("/")
    return f"test_{PREFIXES[folder]}{name}"


def test_every_module_has_a_test_of_its_name_or_says_which_tests_it() -> None:
    """`barnabas/cli` is tested by command instead: `test_cli_*.py`."""
    modules = {
        f"{folder}/{path.name}"
        for folder in PREFIXES
        for path in (ROOT / folder).glob("*.py")
        if not path.name.startswith("__")
    }
    tests = {path.stem for path in (ROOT / "tests").glob("*/test_*.py")}
    without = {
        name for name in modules if not tests & {name_of_test(name), name_of_test(name) + "s"}
    }
    assert without - TESTED_AS_A_PART.keys() == set(), (
        "add a test of this name, or say in TESTED_AS_A_PART which test has it as a part"
    )
    assert TESTED_AS_A_PART.keys() - modules == set(), "these modules are gone"
    missing = {test for test in TESTED_AS_A_PART.values() if not (ROOT / "tests" / test).is_file()}
    assert missing == set()
