"""Makes the pictures of the console in docs/images, from a broker with some traffic.

    make console-pictures

The script needs Debian's `chromium` and playwright. It controls the traffic and the clock, so that
the pictures are the same each time, except for the time of day.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import sync_playwright

from barnabas import LocalBroker

IMAGES = Path(__file__).parent / "images"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
ITEMS = ("coffee", "tea", "bread", "soap", "lamp")
TOPICS = {"orders": 3, "payments": 2, "clicks": 4, "lanes": 1}
AGE_S, SAMPLE_S, SAMPLES = 150, 30, 24


class Traffic:
    """Producers and consumers of a small shop, whose traffic the pictures show."""

    def __init__(self, broker: LocalBroker) -> None:
        self.servers, self.chance = broker.bootstrap_servers, random.Random(7)
        self.plain = Producer({"bootstrap.servers": self.servers})
        self.producers: dict[str, Producer] = {}
        self.number = 0

    def transaction(self, name: str, topic: str, *partitions: int, end: str = "") -> None:
        """Write a transaction with some records. If `end` is empty, the transaction stays open."""
        producer = self.producers.get(name)
        if producer is None:
            config = {
                "bootstrap.servers": self.servers,
                "transactional.id": name,
                "transaction.timeout.ms": 900_000,
                "linger.ms": 0,
            }
            producer = self.producers[name] = Producer(config)
            producer.init_transactions(20)
        producer.begin_transaction()
        self.write(producer, topic, *partitions)
        if end == "commit":
            producer.commit_transaction(20)
        elif end == "abort":
            producer.abort_transaction(20)

    def write(self, producer: Producer, topic: str, *partitions: int) -> None:
        """Write some records to each partition."""
        for partition in partitions:
            for _ in range(self.chance.randrange(1, 4)):
                self.number += 1
                item = self.chance.choice(ITEMS)
                value = {"order": self.number, "item": item, "price": self.number % 90 + 0.5}
                producer.produce(
                    topic, json.dumps(value).encode(), f"customer-{self.number % 9}".encode(),
                    partition=partition, headers=[("trace", b"%06d" % (self.number * 7919))],
                )  # fmt: skip
        producer.flush(20)

    def round(self, count: int) -> None:
        """Write `count` rounds of ordinary transactions and clicks."""
        for _ in range(count):
            end = "abort" if self.chance.random() < 0.2 else "commit"
            name = self.chance.choice(("checkout-1", "checkout-2"))
            self.transaction(name, "orders", self.chance.randrange(3), end=end)
            self.transaction("payments-eu", "payments", 0, 1, end=end)
            for partition in range(4):
                self.write(self.plain, "clicks", partition)

    def lanes(self) -> None:
        """Write four overlapping transactions: A commits, B aborts, C stays open, D commits after C
        began.
        """
        for name in "AB":
            self.transaction(name, "lanes", 0)
        for name, end in (("A", "commit"), ("B", "abort")):
            self.write(self.producers[name], "lanes", 0)
            finish = getattr(self.producers[name], f"{end}_transaction")
            finish(20)
        for name in "CD":
            self.transaction(name, "lanes", 0)
        self.write(self.plain, "lanes", 0)
        self.write(self.producers["D"], "lanes", 0)
        self.producers["D"].commit_transaction(20)
        self.write(self.producers["C"], "lanes", 0)

    def commit(self, group: str, topic: str, **offsets: int) -> None:
        """Commit a group's offsets. The name of each keyword is `p` and the number of the
        partition.
        """
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        rows = [TopicPartition(topic, int(name[1:]), at) for name, at in offsets.items()]
        consumer.commit(offsets=rows, asynchronous=False)
        consumer.close()


@contextmanager
def shop() -> Iterator[tuple[LocalBroker, str]]:
    """Run a broker with traffic. Gives: the broker and the URL of its console."""
    broker = LocalBroker(settings={"barnabas.console.port": 0}, topics=TOPICS, control=True)
    with broker:
        line = next(line for line in broker.output if line.startswith("  console:"))
        traffic = Traffic(broker)
        traffic.commit("warehouse", "clicks", p0=0, p1=0, p2=0, p3=0)
        for at in range(SAMPLES):
            traffic.round(1 + at % 5)
            broker.control.advance(seconds=SAMPLE_S)
            time.sleep(1.3)  # the next sample is taken during this time
        held = high_watermark(traffic, "orders")
        traffic.transaction("invoicing-nightly", "orders", 0)
        traffic.commit("kitchen", "orders", p0=held, p1=5)
        traffic.lanes()
        broker.control.advance(seconds=AGE_S)
        for _ in range(6):
            traffic.round(2)
        yield broker, line.split()[1]


def high_watermark(traffic: Traffic, topic: str) -> int:
    """The high watermark of partition 0."""
    consumer = Consumer({"bootstrap.servers": traffic.servers, "group.id": "of-the-script"})
    end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)[1]
    consumer.close()
    return end


def picture(name: str, page: Any, route: str, ready: str, *, element: str = "") -> None:
    """Take a picture once the page contains an element that matches the selector `ready`."""
    page.goto("about:blank")
    page.goto(route)
    page.wait_for_selector(ready)
    page.wait_for_timeout(2500)
    target = page.locator(element).first if element else page
    target.screenshot(path=str(IMAGES / f"console-{name}.png"))
    print(IMAGES / f"console-{name}.png")


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("needs Chromium: apt-get install chromium", file=sys.stderr)
        return 1
    with shop() as (_, url), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)

        def page(width: int, height: int, scheme: str = "light") -> Any:
            size = {"width": width, "height": height}
            return browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")

        def wide(height: int) -> Any:
            return page(1280, height)

        route: Callable[[str], str] = lambda path: f"{url}/#/{path}"  # noqa: E731
        picture("overview", wide(900), route(""), ".verdict.bad")
        picture("partition", wide(1100), route("partition/orders/0"), "#why")
        picture("lanes", page(960, 700), route("partition/lanes/0"), ".grid", element=".card")
        picture("phone", page(390, 844, "dark"), route(""), ".verdict.bad")
        search = "topic/orders/records?filter=value.price+%3E+40+and+value.item+%3D+%22coffee%22"
        picture("records", wide(860), route(search), ".topic-records .record")
        picture("topic", wide(900), route("topic/clicks"), ".chart polyline")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
