"""The layout of the repository: imports between benchmarks and tests, a test for each module, and
the length of functions.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from setuptools import find_packages

ROOT = Path(__file__).resolve().parents[2]
PACKAGES_OF_TESTS = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
MODULES_OF_TESTS = {path.stem for path in (ROOT / "tests").glob("*.py")}


def imported_by(path: Path) -> set[str]:
    """The top-level names of all imports in a file, including those inside functions."""
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


def test_only_tests_of_benchmarks_import_benchmarks() -> None:
    """The only exception is the torture test that runs a benchmark under observation."""
    importing = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if not path.name.startswith("test_bench_")
        and "bench" in path.read_text()  # most files lack the word, so they are not parsed
        and "bench" in imported_by(path)
    }
    assert importing == {"tests/torture/scale.py"}


# --- installed files -----------------------------------------------------------------------------


def test_every_package_except_the_message_generator_is_installed() -> None:
    find = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    packages = find_packages(str(ROOT), find["find"]["exclude"], find["find"]["include"])
    folders = {
        path.parent.relative_to(ROOT)
        for top in ("barnabas", "broker", "coordinator", "protocol", "spark_connector", "storage")
        for path in (ROOT / top).rglob("__init__.py")
    }
    names = {
        ".".join(("barnabas", *folder.parts)).replace("barnabas.barnabas", "barnabas")
        for folder in folders
    }
    assert set(packages) == names - {"barnabas.protocol.generator"}


# --- a test for each module ---------------------------------------------------------------------

# The prefix of the test files of each package: `test_broker_core.py` tests `broker/core.py`. A
# folder in a package has the prefix of the package unless it is listed itself.
PREFIXES = {
    "barnabas": "",
    "broker": "broker_",
    "broker/console": "broker_console_",
    "broker/control": "broker_control_",
    "broker/graduation": "broker_graduation_",
    "broker/handlers": "broker_handlers_",
    "coordinator": "coordinator_",
    "protocol": "protocol_",
    "spark_connector": "spark_",
    "storage": "storage_",
}
PACKAGES = ("barnabas", "broker", "coordinator", "protocol", "spark_connector", "storage")
# Folders whose modules are generated, or whose tests are named differently (see tests/README.md).
TESTED_BY_OTHER_NAMES = (
    "barnabas/cli", "broker/metrics", "broker/quotas", "broker/replication", "broker/security",
    "protocol/generator", "protocol/messages",
)  # fmt: skip
# Modules without a test file of their own, and the file that tests each of them as a part.
TESTED_AS_A_PART = {
    "broker/brokers/led_partitions.py": "unit/test_broker_handlers_metadata.py",
    "broker/logs/durable_size.py": "unit/test_broker_metadata.py",
    "broker/logs/journal_file.py": "unit/test_broker_metadata.py",
    "broker/console/rim/registry_check.py": "unit/test_broker_exposure.py",
    "broker/rim/acceptor.py": "unit/test_broker_server.py",
    "broker/rim/closing_lines.py": "unit/test_broker_server.py",
    "broker/rim/connection.py": "unit/test_broker_server.py",
    "broker/rim/daemon/announcing.py": "unit/test_broker_announcement.py",
    "broker/rim/daemon/arguments.py": "unit/test_broker_main.py",
    "broker/rim/daemon/configure.py": "unit/test_broker_exposure.py",
    "broker/rim/daemon/listening.py": "e2e/test_listeners.py",
    "broker/rim/daemon/modes.py": "e2e/test_starting_and_stopping.py",
    "broker/rim/daemon/serving.py": "e2e/test_starting_and_stopping.py",
    "broker/rim/daemon/signals.py": "unit/test_broker_main.py",
    "broker/rim/system_ids.py": "e2e/test_starting_and_stopping.py",
    "spark_connector/byte_pieces.py": "unit/test_spark_encoding.py",
    "spark_connector/task_parts.py": "property/test_spark_lineage.py",
    "spark_connector/task_producer.py": "e2e/test_task_transactions.py",
    "spark_connector/transaction_coordinators.py": "e2e/test_task_transactions.py",
    "barnabas/control.py": "e2e/test_local_broker.py",
    "broker/logs/unwritten_work.py": "unit/test_broker_full_disk.py",
    "broker/requests/without_space.py": "unit/test_broker_full_disk.py",
    "broker/transactions/ends_on_topics.py": "unit/test_broker_topic_deletion.py",
    "coordinator/transactions/transaction_deadlines.py": "unit/test_broker_full_disk.py",
    "storage/directory/log_starts.py": "unit/test_storage_log_manager.py",
    "broker/handlers/init_producer_id.py": "unit/test_broker_two_phase.py",
    "barnabas/pkcs12.py": "unit/test_spark_key_stores.py",
    "barnabas/spark.py": "unit/test_spark_query_lag.py",
    "barnabas/texts.py": "unit/test_cli_parsing.py",
    "barnabas/version.py": "e2e/test_distributions.py",
    "broker/console/groups.py": "e2e/test_console.py",
    "broker/console/rim/admin_views.py": "e2e/test_console_logins.py",
    "broker/console/rim/decoder.py": "unit/test_broker_console_decoding.py",
    "broker/console/rim/group_views.py": "e2e/test_console.py",
    "broker/console/rim/inner_client.py": "e2e/test_console_logins.py",
    "broker/console/rim/log_views.py": "e2e/test_console.py",
    "broker/console/rim/logins.py": "e2e/test_console_logins.py",
    "broker/console/rim/record_views.py": "e2e/test_console_records.py",
    "broker/console/rim/sampling.py": "e2e/test_console_topics.py",
    "broker/console/rim/source.py": "unit/test_broker_console_endpoint.py",
    "broker/console/rim/watch.py": "unit/test_broker_console_endpoint.py",
    "broker/console/rim/writes.py": "e2e/test_console_logins.py",
    "broker/graduation/bring_back.py": "unit/test_broker_graduation_steps.py",
    "broker/graduation/kafka_versions.py": "unit/test_broker_graduation_hand_over.py",
    "broker/graduation/preparation.py": "unit/test_broker_graduation_surveys.py",
    "broker/control/rim/endpoint.py": "e2e/test_local_broker.py",
    "broker/control/observed.py": "e2e/test_local_broker.py",
    "broker/handlers/telemetry.py": "unit/test_broker_telemetry.py",
    "broker/logs/new_topics.py": "unit/test_broker_handlers_topics.py",
    "coordinator/groups/record_parts.py": "unit/test_coordinator_consumer_group_records.py",
    "broker/streams_topics.py": "unit/test_broker_handlers_streams_groups.py",
    "broker/share/acknowledging.py": "unit/test_broker_handlers_share_fetch.py",
    "broker/share/in_flight.py": "property/test_share_partition.py",
    "broker/share/loaded_partition.py": "unit/test_broker_handlers_share_fetch.py",
    "broker/share/loaded_partitions.py": "unit/test_broker_handlers_share_fetch.py",
    "broker/share/log_batches.py": "unit/test_broker_handlers_share_fetch.py",
    "broker/share/share_fetch.py": "unit/test_broker_handlers_share_fetch.py",
    "broker/share/wakes.py": "unit/test_broker_handlers_share_fetch.py",
    "broker/share/share_partition.py": "property/test_share_partition.py",
    "broker/share/share_parts.py": "unit/test_broker_handlers_share_fetch.py",
    "broker/share/share_runtime.py": "unit/test_broker_share_state.py",
    "broker/share/share_sessions.py": "unit/test_broker_handlers_share_fetch.py",
    "broker/share/shares.py": "unit/test_broker_share_state.py",
    "coordinator/share/share_messages.py": "unit/test_broker_share_state.py",
    "coordinator/share/share_state.py": "unit/test_coordinator_share_coordinator.py",
    "protocol/share_fetch_response.py": "property/test_protocol_share_fetch_response.py",
    "broker/requests/older_fetch.py": "unit/test_protocol_message_sets.py",
    "broker/requests/encoded_rows.py": "unit/test_broker_wide_requests.py",
    "broker/requests/routes.py": "unit/test_broker_dispatch.py",
    "broker/brokers/coordinator_edge.py": "unit/test_broker_failover.py",
    "broker/brokers/share_state_edge.py": "unit/test_broker_failover.py",
    "broker/assemble.py": "unit/test_broker_core.py",
    "broker/requests/imports.py": "unit/test_broker_dispatch.py",
    "broker/requests/parts.py": "unit/test_broker_dispatch.py",
    "storage/index_cache.py": "unit/test_storage_segment_indexes.py",
    "storage/opening/new_log.py": "unit/test_storage_log_manager.py",
    "broker/brokers/addresses.py": "unit/test_broker_cluster.py",
    "broker/requests/to_coordinators.py": "unit/test_broker_dispatch.py",
    "broker/requests/pending_requests.py": "unit/test_broker_core.py",
    "broker/settings/coordinator_settings.py": "unit/test_broker_core.py",
    "broker/settings/current_features.py": "unit/test_broker_features.py",
    "broker/transactions/transaction_recovery.py": "unit/test_broker_decisions.py",
    "broker/settings/properties.py": "unit/test_broker_config.py",
    "broker/settings/rows_broker.py": "unit/test_broker_config.py",
    "broker/settings/rows_share.py": "unit/test_broker_config.py",
    "broker/settings/rows_streams.py": "unit/test_broker_config.py",
    "broker/settings/rows_topic.py": "unit/test_broker_config.py",
    "broker/settings/rows_without_effect.py": "unit/test_broker_config.py",
    "broker/settings/setting.py": "unit/test_broker_config.py",
    "broker/settings/topic_config.py": "unit/test_broker_config.py",
    "broker/group_topics.py": "unit/test_broker_group_configs.py",
    "coordinator/groups/consumer/consumer_group.py": "unit/test_coordinator_consumer_groups.py",
    "coordinator/groups/consumer/consumer_group_settings.py": (
        "unit/test_coordinator_consumer_groups.py"
    ),
    "coordinator/groups/consumer/consumer_group_change.py": (
        "unit/test_coordinator_consumer_groups.py"
    ),
    "coordinator/groups/group_types.py": "unit/test_coordinator_share_group_records.py",
    "coordinator/groups/typed_group.py": "unit/test_coordinator_share_groups.py",
    "coordinator/groups/share/partition_states.py": "unit/test_coordinator_share_offsets.py",
    "coordinator/groups/share/share_group.py": "unit/test_coordinator_share_groups.py",
    "coordinator/groups/share/share_group_change.py": "unit/test_coordinator_share_groups.py",
    "coordinator/groups/share/share_group_settings.py": "unit/test_coordinator_share_groups.py",
    "coordinator/groups/share/share_requests.py": "unit/test_coordinator_share_groups.py",
    "coordinator/groups/share/state_changes.py": "unit/test_coordinator_share_offsets.py",
    "broker/share/state_changes.py": "unit/test_broker_handlers_share_groups.py",
    "coordinator/groups/classic/classic_answers.py": "unit/test_coordinator_classic_group.py",
    "coordinator/groups/classic/group_members.py": "unit/test_coordinator_classic_group.py",
    "coordinator/groups/classic/rebalance.py": "unit/test_coordinator_classic_group.py",
    "coordinator/groups/group_administration.py": "unit/test_coordinator_group_coordinator.py",
    "coordinator/groups/group_conversion.py": "unit/test_coordinator_classic_members.py",
    "coordinator/groups/group_kinds.py": "unit/test_coordinator_group_coordinator.py",
    "coordinator/groups/group_settings.py": "unit/test_coordinator_group_coordinator.py",
    "coordinator/groups/group_table.py": "unit/test_coordinator_group_coordinator.py",
    "coordinator/groups/group_timers.py": "unit/test_coordinator_consumer_groups.py",
    "coordinator/groups/membership.py": "unit/test_coordinator_classic_group.py",
    "coordinator/groups/offsets/offset_commits.py": "unit/test_coordinator_group_coordinator.py",
    "coordinator/groups/offsets/offset_fetches.py": "unit/test_coordinator_group_coordinator.py",
    "coordinator/groups/offsets/offset_removal.py": "unit/test_coordinator_group_coordinator.py",
    "coordinator/groups/offsets/offset_resets.py": "unit/test_coordinator_group_coordinator.py",
    "coordinator/groups/offsets/topics_by_id.py": "unit/test_coordinator_group_coordinator.py",
    "coordinator/groups/streams/streams_endpoints.py": "unit/test_coordinator_streams_groups.py",
    "coordinator/groups/streams/streams_group_change.py": "unit/test_coordinator_streams_groups.py",
    "coordinator/groups/streams/streams_group_description.py": (
        "unit/test_coordinator_streams_groups.py"
    ),
    "coordinator/groups/streams/streams_group_settings.py": (
        "unit/test_coordinator_streams_groups.py"
    ),
    "coordinator/groups/streams/streams_requests.py": "unit/test_coordinator_streams_groups.py",
    "coordinator/groups/streams/tasks.py": "unit/test_coordinator_sticky_assignor.py",
    "coordinator/groups/streams/topology.py": "unit/test_coordinator_topic_plan.py",
    "coordinator/groups/topic_directory.py": "unit/test_coordinator_consumer_group_change.py",
    "coordinator/internal_topics.py": "unit/test_broker_internal_topics.py",
    "coordinator/transactions/fencing.py": "unit/test_coordinator_transaction_coordinator.py",
    "coordinator/transactions/partition_additions.py": (
        "unit/test_coordinator_transaction_coordinator.py"
    ),
    "coordinator/transactions/producer_sessions.py": (
        "unit/test_coordinator_transaction_coordinator.py"
    ),
    "coordinator/transactions/transaction_table.py": (
        "unit/test_coordinator_transaction_coordinator.py"
    ),
    "storage/log/append_info.py": "unit/test_storage_log.py",
    "storage/log/broker_appends.py": "unit/test_storage_log.py",
    "storage/log/log_files.py": "unit/test_storage_log.py",
    "storage/files/segment_files.py": "unit/test_storage_segment.py",
    "storage/log/batch_file.py": "unit/test_storage_segment.py",
    "storage/log/index_files.py": "unit/test_storage_segment_indexes.py",
    "storage/log/segment_turnover.py": "unit/test_storage_roll.py",
    "storage/producers/refused_batches.py": "unit/test_storage_log.py",
    "spark_connector/encoded_record_batch.py": "unit/test_spark_produce_request.py",
    "spark_connector/murmur2.py": "unit/test_spark_partitioner.py",
    "spark_connector/two_phase_producer.py": "e2e/test_two_phase.py",
    "storage/directory/bootstrap_checkpoint.py": "unit/test_storage_graduated.py",
}


def name_of_test(module: str) -> str:
    """The name of a module's test file. The file may also have this name with an "s" at the end."""
    folder, _, name = module.removesuffix(".py").rpartition("/")
    while folder not in PREFIXES:
        folder = folder.rpartition("/")[0]
    return f"test_{PREFIXES[folder]}{name}"


def test_every_module_has_a_test_of_its_name_or_says_which_tests_it() -> None:
    """The tests of `barnabas/cli` are named after commands instead: `test_cli_*.py`."""
    modules = {
        name
        for folder in (
            "barnabas",
            "broker",
            "coordinator",
            "protocol",
            "spark_connector",
            "storage",
        )
        for path in (ROOT / folder).rglob("*.py")
        if not path.name.startswith("__")
        and not (name := path.relative_to(ROOT).as_posix()).startswith(TESTED_BY_OTHER_NAMES)
        and not (folder == "barnabas" and name.count("/") > 1)  # links to the other packages
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


ROOM = re.compile(r"\*\*`([\w/]+)/`\*\*")
# Folders that a README describes as a whole, since the names of their modules explain themselves.
DESCRIBED_AS_A_WHOLE = {"handlers", "messages", "generator"}


def named_by_room(readme: str) -> dict[str, set[str]]:
    """The modules that a README names, by folder. Modules before the first folder are under "".

    A folder's part of a table begins with a row whose first cell has the folder's name in bold,
    such as **`logs/`**. The folder's `rim/` belongs to the same part.
    """
    named: dict[str, set[str]] = {"": set()}
    room = ""
    for line in readme.splitlines():
        if line.startswith("#"):
            room = ""
        elif (start := ROOM.search(line)) is not None:
            room = start[1]
        named.setdefault(room, set()).update(re.findall(r"\b\w+\.py\b", line))
    return named


@pytest.mark.parametrize(
    "package",
    ["barnabas/cli", "broker", "coordinator", "protocol", "spark_connector", "storage"],
)
def test_a_package_s_readme_names_each_of_its_modules_in_its_room(package: str) -> None:
    """If a folder has its own README, that README must name the folder's modules."""
    folder = ROOT / package
    readme = (folder / "README.md").read_text()
    named = named_by_room(readme)
    everywhere = set().union(*named.values())
    modules = [path for path in folder.rglob("*.py") if path.name != "__init__.py"]
    assert len(modules) > 10
    missing = set()
    for path in modules:
        room = path.parent.relative_to(folder).as_posix().removesuffix(".")
        own = path.parent / "README.md"
        if room in DESCRIBED_AS_A_WHOLE or (
            package == "coordinator" and f"`{path.parent.name}/`" in readme
        ):
            continue
        if room and own.is_file():
            here = set(re.findall(r"\b\w+\.py\b", own.read_text()))
        elif len(named) == 1:  # this README has no table of folders
            if room and f"`{path.parent.name}/`" in readme:  # the folder is described as a whole
                continue
            here = everywhere
        else:
            here = named.get(room) or named.get(room.removesuffix("/rim"), set())
        if path.name not in here:
            missing.add(path.relative_to(folder).as_posix())
    assert missing == set()


def test_a_module_that_is_named_in_another_room_is_missing_in_its_own() -> None:
    readme = "| `core.py` | x |\n| **`logs/`** | |\n| `topics.py` | |\n## Decisions\n`start.py`\n"
    assert named_by_room(readme) == {"": {"core.py", "start.py"}, "logs": {"topics.py"}}


# --- the length of functions --------------------------------------------------------------------

MOST_LINES, MOST_PARAMETERS = 50, 8  # not counting docstrings, self and cls
WHY_LONG = re.compile(
    r"in one piece|(one|long) (long )?(function|loop)|(is|are) long, or", re.IGNORECASE
)
WHY_MANY = re.compile(r"a parameter for|parameters", re.IGNORECASE)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def statements_in(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Each statement with its parent node; the inside of expressions is not searched."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield node, tree
            yield from statements_in(node)


def functions_in(tree: ast.Module) -> Iterator[tuple[Function, str]]:
    """Each function, with the texts that may give the reason for its length or its many parameters.

    The texts are the docstring of the function, that of the class if the function is a constructor,
    and that of the module if it names the function.
    """
    module_text = ast.get_docstring(tree) or ""
    for node, parent in statements_in(tree):
        if isinstance(node, Function):
            text = ast.get_docstring(node) or ""
            if isinstance(parent, ast.ClassDef) and node.name == "__init__":
                text += ast.get_docstring(parent) or ""
            yield node, text + (module_text if f"`{node.name}`" in module_text else "")


def size_of(function: Function) -> tuple[int, int]:
    """The number of lines of a function, and the number of its parameters."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        lines -= docstring.end_lineno - docstring.lineno + 1
    arguments = function.args
    names = [
        argument.arg
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        if argument.arg not in ("self", "cls")
    ]
    return lines, len(names)


def is_command(function: Function) -> bool:
    """Whether the function is a command of the command line. Its parameters are then options."""
    return any("click." in ast.unparse(decorator) for decorator in function.decorator_list)


def without_a_reason(tree: ast.Module) -> list[str]:
    """The functions that are too long or have too many parameters without a text that gives a
    reason.
    """
    names = []
    for function, text in functions_in(tree):
        lines, parameters = size_of(function)
        is_long = lines > MOST_LINES and not WHY_LONG.search(text)
        has_many = parameters > MOST_PARAMETERS and not is_command(function)
        if is_long or (has_many and not WHY_MANY.search(text)):
            names.append(f"{function.name}: {lines} lines, {parameters} parameters")
    return names


def test_a_function_is_short_or_says_why_not() -> None:
    """A function with too many lines or parameters needs a text that gives the reason."""
    modules = [
        path
        for package in (
            "barnabas",
            "broker",
            "coordinator",
            "protocol",
            "spark_connector",
            "storage",
        )
        for path in (ROOT / package).rglob("*.py")
        if "messages" not in path.parts
    ]
    assert len(modules) > 200
    large = {
        path.relative_to(ROOT).as_posix(): names
        for path in modules
        if (names := without_a_reason(tree_of(path)))
    }
    assert large == {}


@pytest.mark.parametrize(
    ("code", "is_named"),
    [
        ("def f(a, b, c, d, e, f, g, h): pass", False),
        ("def f(a, b, c, d, e, f, g, h, i): pass", True),
        ("def f(self, a, b, c, d, e, f, g, *, h): pass", False),
        ("def f(a, b, c, d, e, f, g, h, i):\n    'A parameter a field: nine parameters.'", False),
        ("def f():\n" + "    pass\n" * 49, False),
        ("def f():\n" + "    pass\n" * 50, True),
        ("def f():\n    'In one piece: it is a table.'\n" + "    pass\n" * 51, False),
        ("def f():\n    'Its parameters are fields.'\n" + "    pass\n" * 51, True),
        ("'`f` is long, or would be slow.'\ndef f():\n" + "    pass\n" * 51, False),
        ("'`g` is long, or would be slow.'\ndef f():\n" + "    pass\n" * 51, True),
        ("class C:\n    def f(self):\n" + "        pass\n" * 51, True),
    ],
)
def test_a_large_function_is_recognised(code: str, is_named: bool) -> None:
    assert bool(without_a_reason(ast.parse(code))) is is_named


MOST_LINES_OF_A_CLASS = 500


def test_a_class_has_one_subject_and_few_lines() -> None:
    large = {
        f"{path.relative_to(ROOT).as_posix()}: {node.name}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "messages" not in path.parts
        for node, _ in statements_in(tree_of(path))
        if isinstance(node, ast.ClassDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= MOST_LINES_OF_A_CLASS
    }
    assert large == set()


def test_requests_have_types_and_no_code_is_run_with_exec() -> None:
    """Each handler, guard and coordinator declares the type of the message that it takes."""
    untyped = re.compile(r"\brequest: Any\b|(?<![\w.])exec\(")
    packages = ("barnabas", "broker", "coordinator", "protocol", "spark_connector", "storage")
    lines = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        for line in path.read_text().splitlines()
        if untyped.search(line)
    ]
    assert lines == []


# --- first lines of docstrings --------------------------------------------------------------------

# A first line that starts like this has no subject, so it needs the body or the surrounding code.
WITHOUT_SUBJECT = re.compile(r"(As|Of|That|To|It|By) |The same\b|From now|One row\.")


def test_the_first_line_of_a_docstring_says_by_itself_what_the_thing_is() -> None:
    lines = [
        f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'module')}: {text.splitlines()[0]}"
        for package in (
            "barnabas",
            "broker",
            "coordinator",
            "protocol",
            "spark_connector",
            "storage",
        )
        for path in (ROOT / package).rglob("*.py")
        if "messages" not in path.parts
        for node in (tree_of(path), *(one for one, _ in statements_in(tree_of(path))))
        if isinstance(node, Function | ast.ClassDef | ast.Module)
        and (text := ast.get_docstring(node)) is not None
        and WITHOUT_SUBJECT.match(text)
    ]
    assert lines == []
