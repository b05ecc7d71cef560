"""For all tests: property tests draw again on a developer's machine and always the same on CI, and
no test is timed.

Side by side (`-n 2`) each process takes one piece after the other, the long ones first: a file,
files that share a Java, or a single test. Every process has brokers and a Spark of its own, so
nothing is shared but the machine.
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

# What takes minutes comes first. Spark computes and the end-to-end tests wait: they go well beside
# each other. Single tests of the simulator are the last, so that all processes end at one time.
ORDER = ("java", "e2e", "spark", "examples", "property", "unit", "sim")
# They run Spark in the process of the tests, where Java starts once and is warm for all that come
# after: one piece of work, not eight.
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
# Their tests have nothing in common, and are minutes together: each is a piece.
SINGLE_TESTS = ("sim/test_defects.py", "sim/test_sim.py")


def piece_of(node_id: str) -> str:
    """What a test is handed out with: its file, all that share a Java, or nothing."""
    file = node_id.partition("::")[0].removeprefix("tests/")
    if file in SINGLE_TESTS:
        return node_id.removeprefix("tests/")
    return "java" if file in ONE_JAVA else file


@cache
def rank_of(piece: str) -> tuple[int, int, str]:
    """The order of pieces: by folder, and within it the largest files first."""
    folder = piece.partition("/")[0]
    path = TESTS / piece.partition("::")[0]
    size = path.stat().st_size if path.is_file() else 0
    return ORDER.index(folder) if folder in ORDER else len(ORDER), -size, piece


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests unless `-m` names them, and set the order in which pieces are handed
    out; within a piece nothing changes.
    """
    if "long" not in (config.option.markexpr or ""):
        long = {item for item in items if item.get_closest_marker("long")}
        config.hook.pytest_deselected(items=list(long))
        items[:] = [item for item in items if item not in long]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank_of(piece_of(item.nodeid)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and found for the tests lives to the end: hundreds of thousands of objects
    that no collection of garbage has to go through. Without it each takes a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


loop_watchdog.start_watching()


@pytest.fixture(autouse=True, scope="session")
def _watched_daemons() -> Iterator[None]:
    """A fault of a daemon that outlived the tests fails the last one."""
    yield
    _fail_by_faults()


@pytest.fixture(autouse=True)
def _watched_loops(_watched_daemons: None) -> Iterator[None]:
    """The test in whose time a daemon's loop did what holds up others is the one that fails."""
    yield
    _fail_by_faults()


def _fail_by_faults() -> None:
    faults = loop_watchdog.take_faults()
    if faults:
        pytest.fail("\n\n".join(faults), pytrace=False)


HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note that a test has failed, for `pytest_runtest_protocol`."""
    report = yield
    if report.failed:
        item.stash[HAS_FAILED] = True
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """What a failed test left open is closed with it: no later test is blamed for its sockets.

    Python keeps the last failure, and with it the frames of the test and all that they hold. What
    clients forget to close is no error in the folders that use them, but would be in the next one.
    """
    answer = yield
    has_failed = item.stash.get(HAS_FAILED, False)
    if has_failed:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                delattr(sys, name)
    if has_failed or (nextitem and _folder_of(item) != _folder_of(nextitem)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    return answer


def _folder_of(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where no other way was asked for by --dist."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByPiece(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return piece_of(nodeid)

    config.option.loadscopereorder = False
    return ByPiece(config, log)
