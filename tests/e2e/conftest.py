"""A broker that is shared by all tests that do not need their own."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.console_page import CHROMIUM, FLAGS, Page, Shop

from barnabas import LocalBroker

SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "log.initial.task.delay.ms": "500",
    # some records have timestamps of 1970, and would expire during a test
    "log.retention.ms": "-1",
}


def _complaints(broker: LocalBroker) -> list[str]:
    """The lines of the broker's output that report an error."""
    return [
        line
        for line in broker.output
        if " ERROR " in line or " CRITICAL " in line or "Traceback" in line
    ]


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    """The shared broker. It runs from the first test to the last, and its log must have no errors
    at the end.
    """
    running = LocalBroker(settings=SETTINGS)
    with running:
        yield running
        # Collect the objects that failed tests left open. In this folder, warnings about them are
        # ignored, but in a later folder they would be errors.
        gc.collect()
        assert running.process is not None
        assert running.process.poll() is None, "the broker died:\n" + "".join(running.output[-30:])
        assert not _complaints(running), "".join(running.output[-60:])


@pytest.fixture(autouse=True)
def _no_complaints(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test during which the shared broker logs an error."""
    shared: LocalBroker | None = (
        request.getfixturevalue("broker") if "broker" in request.fixturenames else None
    )
    before = len(_complaints(shared)) if shared else 0
    yield
    if shared:
        assert shared.process is not None
        assert shared.process.poll() is None, "the broker died:\n" + "".join(shared.output[-30:])
        assert len(_complaints(shared)) == before, "".join(shared.output[-60:])


@pytest.fixture
def servers(broker: LocalBroker) -> str:
    """The value of `bootstrap.servers` for the shared broker."""
    return broker.bootstrap_servers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore sockets that a client library leaves open."""
    for item in items:
        if item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


# --- the console ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """A broker with a console, and with transactions in all states."""
    shop = Shop()
    with shop.broker:
        shop.fill()
        yield shop
        output = "".join(shop.broker.output)
        assert "Traceback" not in output and " ERROR " not in output, output[-3000:]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium-headless-shell")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def window(browser: Any, shop: Shop) -> Iterator[Callable[..., Page]]:
    """A function that opens pages of the shop. At the end, no page may have logged errors."""
    pages: list[Page] = []

    def new(**options: Any) -> Page:
        pages.append(Page(browser, shop, **options))
        return pages[-1]

    yield new
    for page in pages:
        page.close()
