"""A broker with a console, its page in a real browser, and the page's errors.

The browser is Debian's `chromium-headless-shell` (`.ci/run` installs it) or `chromium`; nothing is
downloaded. Both render the page alike, but chromium-headless-shell needs only a third of the CPU
time to open it.
"""

from __future__ import annotations

import http.client
import json
import shutil
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas import LocalBroker

CHROMIUM = (
    shutil.which("chromium-headless-shell")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
MARKUP = "<img src=x onerror=alert(1)>"
PATIENCE_MS = 20_000


class Shop:
    """A broker with a console. The open transaction `nightly` holds back the last stable offset of
    orders-0.
    """

    def __init__(self, *, control: bool = False, **settings: object) -> None:
        self.broker = LocalBroker(
            settings={
                "barnabas.console.port": 0,
                "group.initial.rebalance.delay.ms": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            },
            topics={"orders": 2, "clicks": 1, "untouched": 1},
            control=control,
        )
        self.producers: dict[str, Producer] = {}

    @property
    def url(self) -> str:
        """The console's address, from the daemon's log."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for line in self.broker.output:
                if line.startswith("  console:"):
                    return line.split()[1]
            time.sleep(0.01)
        raise AssertionError("the daemon says nothing of a console: " + self.broker.log_tail(20))

    @property
    def console_port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def producer(self, transactional_id: str) -> Producer:
        """Return the transactional producer with this id. It is created and initialised at the
        first call.
        """
        if transactional_id not in self.producers:
            producer = Producer(
                {
                    "bootstrap.servers": self.broker.bootstrap_servers,
                    "transactional.id": transactional_id,
                    "transaction.timeout.ms": 600_000,
                    "linger.ms": 0,
                }
            )
            producer.init_transactions(20)
            self.producers[transactional_id] = producer
        return self.producers[transactional_id]

    def write(self, transactional_id: str, partition: int, *values: bytes, end: str = "") -> None:
        """Write a transaction to the topic orders. It stays open unless `end` is given."""
        producer = self.producer(transactional_id)
        producer.begin_transaction()
        for value in values:
            producer.produce(
                "orders", value, key=b"customer-7", partition=partition,
                headers=[("trace", b"4711")],
            )  # fmt: skip
        assert producer.flush(20) == 0
        if end == "commit":
            producer.commit_transaction(20)
        elif end == "abort":
            producer.abort_transaction(20)

    def fill(self) -> None:
        """Write committed, aborted and open transactions, and create a group that has consumed all
        records that it can read.
        """
        self.write("morning", 0, b'{"item": "coffee"}', b'{"item": "tea"}', end="commit")
        self.write("morning", 0, b"\xff\x00not text", end="abort")
        self.write("nightly", 0, b"invoice")
        self.write("morning", 0, MARKUP.encode(), end="commit")
        self.write(MARKUP, 1, b"v", end="commit")
        plain = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        for number in range(20):
            plain.produce("clicks", f"click {number}".encode())
        assert plain.flush(20) == 0
        consumer = Consumer(
            {"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "kitchen"}
        )
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        consumer.commit(offsets=[TopicPartition("clicks", 0, 5)], asynchronous=False)
        consumer.close()

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, Any, Any]:
        """Send a request to the console. Return the status, the headers and the decoded body of the
        response.
        """
        client = http.client.HTTPConnection("127.0.0.1", self.console_port, timeout=20)
        client.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            client.putheader(name, value)
        client.endheaders()
        answer = client.getresponse()
        body = answer.read()
        client.close()
        is_json = answer.getheader("Content-Type") == "application/json"
        return answer.status, answer.headers, json.loads(body) if is_json and body else body


class Page:
    """A page of the browser that records its errors and the addresses that it requests."""

    def __init__(self, browser: Any, shop: Shop, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.shop, self.page = shop, self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on(
            "console",
            lambda message: (
                self.complaints.append(message.text) if message.type == "error" else None
            ),
        )

    def open(self, route: str = "#/") -> Any:
        """Open a view of the console, wait for its heading, and return Playwright's page."""
        self.page.goto(f"{self.shop.url}/{route}")
        self.page.wait_for_selector("main h1", state="attached")
        return self.page

    def close(self) -> None:
        """Close the page. Fail if it logged an error or sent a request to another address than the
        console's.
        """
        self.context.close()
        assert self.complaints == []
        assert all(url.startswith(self.shop.url + "/") for url in self.asked), self.asked


def until(page: Any, expression: str) -> None:
    """Wait until an expression is true in the page. Playwright's own function needs `eval`, which
    the page's content security policy forbids.
    """
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        time.sleep(0.05)


# One test for each width and each scheme is enough, since colours do not depend on the width.
WIDTHS_AND_SCHEMES = [(390, "dark"), pytest.param(1280, "light", marks=pytest.mark.long)]
"""The widths and colour schemes that axe checks. `make test` runs one pair, since each takes ten
seconds of CPU.
"""


def violations(page: Any) -> list[tuple[str, str]]:
    """The violations of accessibility rules that axe finds in the current page, and whether the
    page scrolls sideways.
    """
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    rows = [(row["id"], row["nodes"][0]["html"]) for row in found]
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    if wide > 0:
        rows.append(("scrolled sideways", f"{wide} pixels"))
    return rows
