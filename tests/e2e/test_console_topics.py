"""Topics and groups on the console: the list of all topics, rates and lag over time, and
descriptions of groups' progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from helpers.console_page import WIDTHS_AND_SCHEMES, Page, Shop, until, violations

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

SAMPLE_MS = 30_000
# The number is limited, since test control decodes each response, and a Metadata response lists all
# topics.
MANY = 150


class Market(Shop):
    """A broker with many topics. The test advances the broker's clock."""

    def __init__(self) -> None:
        super().__init__(control=True)
        self.broker.topics = {"orders": 2, **{f"topic-{number:03}": 1 for number in range(MANY)}}
        self.plain: Producer | None = None

    def produce(self, topic: str, count: int) -> None:
        """Write records of 100 bytes. Those of "orders" go to its two partitions in turn."""
        if self.plain is None:
            self.plain = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        for number in range(count):
            self.plain.produce(topic, b"v" * 100, partition=number % 2 if topic == "orders" else 0)
        assert self.plain.flush(20) == 0

    def commit(self, group: str, offset: int, metadata: str | None = None) -> None:
        """Commit an offset of orders-0 for a group without members."""
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": group})
        row = TopicPartition("orders", 0, offset)
        if metadata is not None:
            row = TopicPartition("orders", 0, offset, metadata)
        consumer.commit(offsets=[row], asynchronous=False)
        consumer.close()

    def sample(self) -> None:
        """Advance the clock until the broker has taken its next sample."""
        before = len(self.ask("/api/topic?topic=orders")[2]["samples"])
        self.broker.control.advance(ms=SAMPLE_MS)
        deadline = time.monotonic() + 20
        while len(self.ask("/api/topic?topic=orders")[2]["samples"]) == before:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture(scope="module")
def shop() -> Iterator[Market]:
    """A broker with rates and lags. Sixty records are written to "orders" before each of four
    samples. The group "slow" lags behind, and the group "sink" looks like a group of the Spark
    sink.
    """
    shop = Market()
    with shop.broker:
        shop.produce("topic-123", 50)
        shop.commit("slow", 0)
        shop.commit("sink", 17, '{"what": "batch 17"}')
        shop.sample()
        for _ in range(4):
            shop.produce("orders", 60)
            shop.sample()
        yield shop
        output = "".join(shop.broker.output)
        assert "Traceback" not in output and " ERROR " not in output, output[-3000:]


def test_rates_of_a_topic(shop: Market) -> None:
    body = shop.ask("/api/topic?topic=orders")[2]
    assert len(body["samples"]) >= 5
    ages = [age for age, _, _ in body["samples"]]
    assert ages == sorted(ages, reverse=True)
    records = [rate for _, rate, _ in body["samples"] if rate is not None]
    assert len(records) >= 4 and max(records) > 1.0 and max(records) < 2.5, "60 in half a minute"
    assert all(size is not None and size >= 0 for _, _, size in body["samples"][-3:])


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("sort=name", "orders"),
        ("sort=name&order=down", f"topic-{MANY - 1}"),
        ("sort=records&order=down", "orders"),
        ("sort=size_bytes&order=down&search=TOPIC", "topic-123"),
        ("sort=records_rate&order=down", "orders"),
        ("sort=name&first=100&search=topic", "topic-100"),
        ("sort=name&first=9999&search=topic", f"topic-{MANY - 1}"),
    ],
)
def test_the_list_of_topics(shop: Market, query: str, first: str) -> None:
    status, _, body = shop.ask(f"/api/topics?{query}&count=20")
    assert status == 200 and body["rows"][0]["name"] == first
    assert len(body["rows"]) <= 20 and body["total"] >= MANY


@pytest.mark.parametrize("query", ["sort=colour", "order=left", "first=-1"])
def test_what_is_wrong_with_a_list(shop: Market, query: str) -> None:
    assert shop.ask(f"/api/topics?{query}")[0] == 400


def names(page: Any) -> list[str]:
    """The topics' names in the rows on the screen."""
    return list(
        page.eval_on_selector_all(".virtual td.col-name", "all => all.map(td => td.innerText)")
    )


def test_a_long_list_of_topics_needs_few_elements_of_the_page(window: Callable[..., Page]) -> None:
    page = window().open("#/topics")
    page.wait_for_selector(".virtual td.col-name")
    assert page.inner_text("h1") == f"Topics {MANY + 1} topics"
    assert page.locator(".virtual tbody tr").count() < 110
    height = page.evaluate("document.querySelector('#list').scrollHeight")
    assert abs(height - 38 * (MANY + 1)) < 100, "as high as all of them"
    page.click("th.col-name button")
    until(page, "document.querySelector('th.col-name').ariaSort === 'ascending'")
    page.evaluate("document.querySelector('#list').scrollTop = 1e6")
    page.wait_for_selector(f"text=topic-{MANY - 1}")
    assert "orders" not in names(page)
    page.click("th.col-name button")
    until(page, "document.querySelector('.virtual td.col-name').innerText === 'topic-149'")
    page.reload()
    until(page, "document.querySelector('.virtual td.col-name')?.innerText === 'topic-149'")
    assert page.get_attribute("th.col-name", "aria-sort") == "descending"
    page.fill("input[type=search]", "12")
    until(page, "document.querySelectorAll('.virtual td.col-name').length < 20")
    assert all("12" in name for name in names(page)) and "search=12" in page.url
    page.click("text=topic-123")
    page.wait_for_selector("text=Records / s")


def test_the_list_by_keyboard(window: Callable[..., Page]) -> None:
    page = window().open("#/topics?sort=name")
    page.wait_for_selector(".virtual td.col-name")
    page.focus("th.col-records button")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('th.col-records').ariaSort === 'descending'")
    assert page.evaluate("document.activeElement.innerText").startswith("Records")
    page.focus("#list")
    page.keyboard.press("End")
    until(page, "document.querySelector('#list').scrollTop > 4000")


def test_a_group_whose_lag_grows_says_so(window: Callable[..., Page], shop: Market) -> None:
    page = window().open("#/group/slow")
    page.wait_for_selector("text=Its lag grows")
    assert "120 behind" in page.inner_text("h1")
    assert page.locator("polyline").count() == 1
    page.goto(f"{shop.url}/#/topic/orders")
    page.wait_for_selector("text=lag grows:")
    page.wait_for_selector(".row polyline")


def test_the_spark_sinks_group_is_shown_with_a_batch_number_and_no_lag(
    window: Callable[..., Page], shop: Market
) -> None:
    page = window().open("#/groups")
    page.wait_for_selector("text=batch numbers of a Spark sink: no lag")
    page.click("a[href='#/group/sink']")
    page.wait_for_selector("text=number of its last micro-batch")
    assert "batch number" in page.inner_text("table") and "no lag" in page.inner_text("table")
    assert "up to date" not in page.inner_text("main")
    assert shop.ask("/api/group?group=sink")[2]["lag"] == 0
    page.goto(f"{shop.url}/#/partition/orders/0")
    page.wait_for_selector("text=batch 17")
    body = shop.ask("/api/partition?topic=orders&partition=0")[2]
    rows = {row["group"]: (row["status"], row["is_batch_number"]) for row in body["groups"]}
    assert rows["sink"] == ("batch numbers of a Spark sink: no lag", True)
    assert " behind" in rows["slow"][0]


def test_the_spark_sinks_group_waits_for_no_transaction(shop: Market) -> None:
    # The offset is beyond the end, since otherwise the group would wait for the open transaction.
    shop.commit("reader", 1_000_000_000)
    shop.commit("sink-of-held", 0, '{"what": "batch 0"}')
    shop.commit("held", 0)
    producer = shop.producer("nightly")
    producer.begin_transaction()
    producer.produce("orders", b"held", partition=0)
    assert producer.flush(20) == 0
    time.sleep(1.2)  # responses are cached for half a second
    explanation = shop.ask("/api/partition?topic=orders&partition=0")[2]["explanation"]
    producer.abort_transaction(20)
    assert "nightly" in explanation and "sink" not in explanation


def test_a_group_is_said_to_move_only_with_members_and_progress(shop: Market) -> None:
    shop.commit("idle", 5)
    time.sleep(1.2)  # responses are cached for half a second
    assert shop.ask("/api/group?group=idle")[2]["rows"][0]["progress"] == "no members"
    consumer = Consumer({"bootstrap.servers": shop.broker.bootstrap_servers, "group.id": "busy"})
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + 30
    while len(consumer.assignment()) < 2:
        consumer.poll(0.2)
        assert time.monotonic() < deadline

    def progress_after(offset: int) -> str:
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
        while True:
            body = shop.ask("/api/group?group=busy")[2]
            rows = [row for row in body.get("rows", ()) if row["partition"] == 0]
            if rows and rows[0]["offset"] == offset:
                return str(rows[0]["progress"])
            assert time.monotonic() < deadline
            time.sleep(0.1)

    assert progress_after(1) == "rests", "there is no sample with the group"
    shop.sample()
    assert progress_after(1) == "rests"
    assert progress_after(3) == "moves"
    consumer.close()


@pytest.mark.parametrize(("width", "scheme"), WIDTHS_AND_SCHEMES)
def test_the_rules_of_accessibility_hold(
    window: Callable[..., Page], scheme: str, width: int
) -> None:
    opened = window(color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    opened.page.set_viewport_size({"width": width, "height": 844})
    for route in ("#/topics?sort=records&order=down", "#/topic/orders", "#/group/slow", "#/groups"):
        page = opened.open(route)
        page.wait_for_timeout(300)
        assert violations(page) == [], route


def test_names_are_whole_on_a_phone(window: Callable[..., Page], shop: Market) -> None:
    """Names of up to forty characters take two lines of a list, and nothing is cut off."""
    name = "customer-orders-of-the-western-region"
    shop.broker.create_topic(name)
    consumer = Consumer({"bootstrap.servers": shop.broker.bootstrap_servers, "group.id": name})
    consumer.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
    consumer.close()
    opened = window()
    opened.page.set_viewport_size({"width": 390, "height": 844})
    for route in (f"#/topics?search={name}", f"#/groups?search={name}", f"#/group/{name}"):
        page = opened.open(route)
        page.wait_for_selector("td.col-name a")
        hidden = page.evaluate(
            "[...document.querySelectorAll('td.col-name, td.col-name *')].filter("
            "cell => cell.scrollWidth > cell.clientWidth + 1 && cell.clientWidth"
            " || cell.scrollHeight > cell.clientHeight + 1 && cell.clientHeight).length"
        )
        assert hidden == 0, route
        assert page.inner_text("td.col-name").startswith(name)


@pytest.mark.parametrize("waits", [True, False])
def test_a_group_that_waits_for_a_transaction_is_not_called_slow(
    window: Callable[..., Page], waits: bool
) -> None:
    """Its lag grows because of the transaction."""
    opened = window()
    stuck = {
        "topic": "orders", "partition": 0, "offset": 5, "lag": 3, "producer_id": 7,
        "transactional_id": "nightly", "holder_age_ms": 20_000, "hanging": False,
    }  # fmt: skip

    def answer(route: Any) -> None:
        response = route.fetch()
        body = response.json()
        body |= {"progress": "grows", "change": 9, "over_ms": 60_000, "members": 1}
        body["stuck"] = [stuck] if waits else []
        route.fulfill(response=response, json=body)

    opened.page.route("**/api/group?*", answer)
    page = opened.open("#/group/slow")
    page.wait_for_selector("text=Its lag grows: 9 more in 1 min")
    assert ("reads more slowly" in page.inner_text("main")) is not waits
    assert ("It waits for nightly" in page.inner_text("main")) is waits
    opened.page.unroute("**/api/group?*")
