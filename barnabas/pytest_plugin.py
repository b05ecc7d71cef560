"""Fixtures for pytest, which loads this plugin through an entry point if Barnabas is installed.

    barnabas_broker          one LocalBroker for the session (for each process of pytest-xdist)
    barnabas_topic           creates topics in that broker, with unique names
    fresh_barnabas_broker    a LocalBroker for one test; its arguments are those of the marker
                             @pytest.mark.barnabas(settings={...}, topics={...})
    barnabas_options         the arguments of `barnabas_broker`; a conftest.py may override it
    kafka_service            host and port of `barnabas_broker`, in the style of pytest-databases

If a test that used a broker fails, its report shows the broker's last log lines and its open
transactions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from barnabas.local_broker import LocalBroker

_SHOWN_LINES = 30
_SHARED = pytest.StashKey["LocalBroker"]()
_ENDED_DURING = pytest.StashKey[str]()
_ANSWER_WITHIN_S = 2.0


@dataclass(frozen=True)
class KafkaService:
    """The address of a broker, as pytest-databases describes its services."""

    host: str
    port: int

    @property
    def bootstrap_servers(self) -> str:
        """The value of a client's `bootstrap.servers`."""
        return f"{self.host}:{self.port}"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "barnabas(settings, topics): the arguments of LocalBroker for fresh_barnabas_broker",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose marker has no effect, because the test does not use
    `fresh_barnabas_broker`.
    """
    marker = item.get_closest_marker("barnabas")
    if marker is None:
        return
    if "fresh_barnabas_broker" not in getattr(item, "fixturenames", ()):
        pytest.fail(
            "@pytest.mark.barnabas has the arguments of fresh_barnabas_broker, which this test "
            "does not use. The shared barnabas_broker is started with barnabas_options",
            pytrace=False,
        )
    if marker.args:
        pytest.fail("@pytest.mark.barnabas takes arguments by name: settings={…}", pytrace=False)


@pytest.fixture(scope="session")
def barnabas_options() -> dict[str, Any]:
    """The arguments of LocalBroker for `barnabas_broker`."""
    return {}


@pytest.fixture(scope="session")
def barnabas_broker(
    barnabas_options: dict[str, Any], pytestconfig: pytest.Config
) -> Iterator[LocalBroker]:
    """One broker for the whole session. Tests share it, so create topics with `barnabas_topic`."""
    from barnabas.local_broker import LocalBroker

    with LocalBroker(**barnabas_options) as broker:
        pytestconfig.stash[_SHARED] = broker
        yield broker
        del pytestconfig.stash[_SHARED]


@pytest.fixture(scope="session")
def kafka_service(barnabas_broker: LocalBroker) -> KafkaService:
    """The session's broker as a service. Tests share it, so give topics and groups unique names."""
    return KafkaService("127.0.0.1", barnabas_broker.port)


@pytest.fixture
def barnabas_topic(
    request: pytest.FixtureRequest, barnabas_broker: LocalBroker
) -> Callable[..., str]:
    """A function that creates a topic in the session's broker for this test and returns its name.

    The function takes the number of partitions, and the topic's settings as
    `LocalBroker.create_topic` does.
    """
    test = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:100].strip("-")

    def make(partitions: int = 1, **configs: object) -> str:
        import uuid

        name = f"{test}-{uuid.uuid4().hex[:8]}"
        return barnabas_broker.create_topic(name, partitions, **configs)

    return make


@pytest.fixture
def fresh_barnabas_broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A broker for this test only, which has nothing of the ones before. From the third on it is
    forked, and takes some milliseconds.
    """
    from barnabas.local_broker import LocalBroker

    marker = request.node.get_closest_marker("barnabas")
    with LocalBroker(**(marker.kwargs if marker else {})) as broker:
        yield broker


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Note the test during which the shared broker ended, for the reports of later tests."""
    stash = item.config.stash
    shared = stash.get(_SHARED, None)
    if shared is None or shared.is_running:
        stash[_ENDED_DURING] = ""
    elif not stash.get(_ENDED_DURING, ""):
        stash[_ENDED_DURING] = item.nodeid
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the log lines and open transactions of the test's brokers to the report of a failure."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    if report.failed and arguments:
        from barnabas.local_broker import LocalBroker

        brokers = {
            id(value): value for value in arguments.values() if isinstance(value, LocalBroker)
        }
        for broker in brokers.values():
            ended_during = ""
            if broker is item.config.stash.get(_SHARED, None):
                ended_during = item.config.stash.get(_ENDED_DURING, "")
            report.sections += _sections(broker, ended_during)
    return report


def _sections(broker: LocalBroker, ended_during: str = "") -> list[tuple[str, str]]:
    """The sections about one broker in the report of a failed test.

    Takes: ended_during, the earlier test during which the broker ended.
    """
    where = f"broker {broker.bootstrap_servers}"
    sections = []
    if ended_during and not broker.is_running:
        status = None if broker.process is None else broker.process.poll()
        how = "was stopped" if status is None else f"ended with exit status {status}"
        sections.append(
            (
                f"{where}: it does not run",
                f"The shared barnabas_broker {how} during an earlier test, {ended_during}. A test "
                "that ends its broker uses fresh_barnabas_broker, or starts it again.",
            )
        )
    return [
        *sections,
        (f"{where}: last log lines", broker.log_tail(_SHOWN_LINES) or "(none)"),
        (f"{where}: open transactions", _open_transactions(broker)),
    ]


def _open_transactions(broker: LocalBroker) -> str:
    if not broker.is_running:
        return "(the broker does not run)"
    try:
        with broker.admin(_ANSWER_WITHIN_S) as admin:
            transactions = admin.open_transactions()
    except OSError as error:
        return f"(the broker does not answer: {error})"
    from barnabas.terminal import visible_text

    return visible_text("\n".join(map(str, transactions))) or "(none)"
