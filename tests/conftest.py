"""Settings of all tests. Property tests draw new examples on a developer's machine and always the
same ones on CI, and have no deadline.

With `-n 3` each process takes one work unit after the other, the long ones first. A unit is a file,
several files that share a JVM, or a single test. Every process has its own brokers and Spark, so
the processes share only the machine.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers import java_classes, loop_watchdog
from helpers.examples import drawn
from helpers.raised_faults import raised_faults
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).resolve().parent

settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci",
    parent=settings.get_profile("explore"),
    max_examples=drawn(100),
    derandomize=True,
    database=None,
)
settings.load_profile("ci" if os.environ.get("CI") else "explore")

os.environ.setdefault("JDK_JAVA_OPTIONS", java_classes.java_options())

# Units that take minutes come first. Spark computes while end-to-end tests mostly wait, so both run
# well at the same time. Single tests of the simulator come last, so that all processes end at about
# the same time.
ORDER = ("java", "e2e", "spark", "examples", "property", "unit", "sim")
# These files run Spark in the tests' process, where the JVM starts once and is warm for all later
# files. They are therefore one work unit.
ONE_JAVA = (
    "examples/test_guarantees_spark.py",
    "examples/test_page_views.py",
    "spark/test_batch_read.py",
    "spark/test_sink.py",
    "spark/test_sink_by_tasks.py",
    "spark/test_sink_identity.py",
    "spark/test_stream_conditions.py",
    "spark/test_stream_read.py",
)
# The tests of these files are independent and together take minutes, so each test is a separate
# work unit.
SINGLE_TESTS = (
    "sim/test_defects.py",
    "sim/test_sim.py",
    "sim/test_small_slices.py",
    "sim/test_whole_days.py",
)


# The folders whose tests ignore what a client library leaves open.
OF_CLIENTS = ("e2e", "examples", "spark")


def piece_of(node_id: str) -> str:
    """The work unit to which a test belongs: its file, the files that share a JVM, or only the
    test.
    """
    file = node_id.partition("::")[0].removeprefix("tests/")
    if file in SINGLE_TESTS:
        return node_id.removeprefix("tests/")
    return "java" if file in ONE_JAVA else file


@cache
def rank_of(piece: str) -> tuple[int, int, str]:
    """The sort key of a work unit: by folder, and within a folder by size, the largest file
    first.
    """
    folder = piece.partition("/")[0]
    path = TESTS / piece.partition("::")[0]
    size = path.stat().st_size if path.is_file() else 0
    return ORDER.index(folder) if folder in ORDER else len(ORDER), -size, piece


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the deep and the long tests unless `-m` names them, or, for deep tests, the command
    line names their file. Sort the tests by work unit; within a unit they keep their order.
    """
    expression = config.option.markexpr or ""
    named = {Path(each.partition("::")[0]).resolve() for each in config.args}
    left_out = {
        item
        for item in items
        if ("long" not in expression and item.get_closest_marker("long"))
        or ("deep" not in expression and item.get_closest_marker("deep") and item.path not in named)
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank_of(piece_of(item.nodeid)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Freeze the objects that imports and the collection of tests have created, so that garbage
    collection skips them. There are hundreds of thousands of them, and they live to the end.
    Otherwise each garbage collection would take a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


loop_watchdog.start_watching()


@pytest.fixture(autouse=True, scope="module")
def _frozen_before(request: pytest.FixtureRequest) -> None:
    """Collect the garbage of earlier files, and freeze the objects that stay: tests that call the
    collector a hundred times, or make many objects, would look at all of them each time. Not where
    clients of others are used: what is frozen while a test still has it would never be closed.
    """
    if request.path.relative_to(TESTS).parts[0] not in OF_CLIENTS:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _watched_daemons() -> Iterator[None]:
    """Fail the last test if a daemon reports a fault after it."""
    yield
    _fail_by_faults()


@pytest.fixture(autouse=True)
def _watched_loops(_watched_daemons: None) -> Iterator[None]:
    """Fail the test during which a daemon reports a fault of its loop."""
    yield
    _fail_by_faults()


@pytest.fixture(autouse=True)
def _raised_faults() -> Iterator[None]:
    """Raise what a broker in the tests' process would contain (`helpers/raised_faults.py`)."""
    with raised_faults():
        yield


def _fail_by_faults() -> None:
    faults = loop_watchdog.take_faults()
    if faults:
        pytest.fail("\n\n".join(faults), pytrace=False)


HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record that a test has failed, for `pytest_runtest_protocol`."""
    report = yield
    if report.failed:
        item.stash[HAS_FAILED] = True
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Release the objects of a failed test, so that no later test fails because of its sockets.

    Python keeps the last exception, and with it the frames of the test and all their objects. In
    folders whose tests use certain clients, a socket that a client leaves open is no error, but in
    the next folder, and after the last test, it would be.
    """
    answer = yield
    has_failed = item.stash.get(HAS_FAILED, False)
    if has_failed:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                delattr(sys, name)
    if nextitem is None:
        is_end = _folder_of(item) in OF_CLIENTS
    else:
        is_end = _folder_of(item) != _folder_of(nextitem)
    if has_failed or is_end:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    return answer


def _folder_of(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Make a scheduler that assigns whole work units, in the order of this file, unless --dist
    names another scheduler.
    """
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByPiece(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return piece_of(nodeid)

    config.option.loadscopereorder = False
    return ByPiece(config, log)
