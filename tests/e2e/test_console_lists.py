"""Ten thousand groups and many open transactions on the console, in lists that stay fast."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.console_page import WIDTHS_AND_SCHEMES, Page, Shop, until, violations
from helpers.e2e_wire import Wire
from sim import wire

from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

GROUPS, TRANSACTIONS, PARTITIONS = 10_000, 500, 300
ROW_PX = 38


class Hall(Shop):
    """A broker with many groups, one of which has offsets for many partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.broker.topics = {"orders": 1, "wide": PARTITIONS}

    def commit(self, client: Wire, group: str, offset: int, topic: str, count: int) -> None:
        """Commit the offset for the first `count` partitions of the topic."""
        rows = [OffsetCommitRequestPartition(index, offset) for index in range(count)]
        request = OffsetCommitRequest(
            group, topics=[OffsetCommitRequestTopic(topic, partitions=rows)]
        )
        answer = client.call(wire.request(request, 7))
        errors = {row.error_code for one in answer.topics for row in one.partitions}
        assert errors == {0}

    def begin(self, client: Wire, name: str) -> None:
        """Open a transaction that contains the topic's two partitions, without records."""
        made = client.call(wire.request(InitProducerIdRequest(name, 600_000), 4))
        assert made.error_code == 0
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic("wide", list(range(2)))],
        )
        client.call(wire.request(request, 3))

    def fill(self) -> None:
        """Create GROUPS groups, one of them with PARTITIONS partitions, and TRANSACTIONS open
        transactions.
        """
        self.write("nightly", 0, *[b"v"] * 50, end="commit")
        with Wire(self.broker.port) as client:
            for number in range(GROUPS - 1):
                self.commit(client, f"group-{number:05}", number % 50, "orders", 1)
            self.commit(client, "wide", 0, "wide", PARTITIONS)
            for number in range(TRANSACTIONS):
                self.begin(client, f"till-{number:03}")


@pytest.fixture(scope="module")
def shop() -> Iterator[Hall]:
    """A broker with many groups and open transactions."""
    shop = Hall()
    with shop.broker:
        shop.fill()
        yield shop
        output = "".join(shop.broker.output)
        assert "Traceback" not in output and " ERROR " not in output, output[-3000:]


def cells(page: Any, column: str) -> list[str]:
    """The texts of one column, for the rows on the screen."""
    found = page.eval_on_selector_all(
        f".virtual td.col-{column}", "all => all.map(td => td.innerText)"
    )
    return [str(one) for one in found]


@pytest.mark.parametrize(
    ("query", "first", "total"),
    [
        ("sort=name", "group-00000", GROUPS),
        ("sort=name&order=down", "wide", GROUPS),
        ("sort=lag&order=down", "group-00000", GROUPS),
        ("sort=lag&order=down&first=9999", "wide", GROUPS),
        ("sort=partitions&order=down", "wide", GROUPS),
        ("search=GROUP-0123", "group-01230", 10),
    ],
)
def test_the_list_of_groups(shop: Hall, query: str, first: str, total: int) -> None:
    status, _, body = shop.ask(f"/api/groups?{query}&count=60")
    assert status == 200 and body["total"] == total
    assert body["rows"][0]["group"] == first and len(body["rows"]) <= 60


@pytest.mark.parametrize(
    "path",
    ["groups?sort=colour", "groups?order=left", "group?group=wide&of=hats", "transactions?first=x"],
)
def test_what_is_wrong_with_a_list(shop: Hall, path: str) -> None:
    assert shop.ask(f"/api/{path}")[0] == 400


def test_a_response_has_only_the_rows_that_the_page_requests(shop: Hall) -> None:
    """A response contains only the rows on the screen, however many groups there are."""
    status, headers, body = shop.ask("/api/groups?count=60")
    assert status == 200 and len(body["rows"]) == 60
    assert int(headers["Content-Length"]) < 40_000


def test_a_list_of_ten_thousand_groups_needs_few_elements_of_the_page(
    window: Callable[..., Page], shop: Hall
) -> None:
    page = window().open("#/groups")
    page.wait_for_selector(".virtual td.col-name")
    assert page.inner_text("h1") == "Groups 10,000"
    assert page.locator(".virtual tbody tr").count() < 110
    height = page.evaluate("document.querySelector('#list').scrollHeight")
    assert abs(height - ROW_PX * (GROUPS + 1)) < 100, "as high as all of them"
    page.click("th.col-name button")
    until(page, "document.querySelector('.virtual td.col-name').innerText === 'group-00000'")
    page.evaluate(f"document.querySelector('#list').scrollTop = {ROW_PX} * 5000")
    page.wait_for_selector("text=group-05004")
    page.evaluate("document.querySelector('#list').scrollTop = 1e9")
    page.wait_for_selector(".virtual >> text=wide")
    page.click("th.col-lag button")
    until(page, "document.querySelector('th.col-lag').ariaSort === 'descending'")
    page.reload()
    until(page, "document.querySelector('.virtual td.col-lag')?.innerText === '51'")
    page.fill("input[type=search]", "0123")
    until(page, "document.querySelectorAll('.virtual td.col-name').length === 11")
    assert "search=0123" in page.url and "sort=lag" in page.url
    page.click("text=group-01230")
    page.wait_for_selector("text=Committed offsets")
    page.click("text=Members (0)")
    page.wait_for_selector("text=It has no members now.")
    page.reload()
    page.wait_for_selector("text=It has no members now.")


def test_the_list_of_groups_by_keyboard(window: Callable[..., Page]) -> None:
    page = window().open("#/groups?sort=name")
    page.wait_for_selector(".virtual td.col-name")
    page.focus("#list")
    page.keyboard.press("End")
    page.wait_for_selector(".virtual >> text=group-09990")
    page.wait_for_timeout(1500)  # the page refreshes itself and must keep the focus
    assert page.evaluate("document.activeElement.id") == "list"
    page.focus("th.col-lag button")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('th.col-lag').ariaSort === 'descending'")
    until(page, "document.querySelector('#list').scrollTop === 0")


def test_a_group_s_partitions_are_a_list(window: Callable[..., Page]) -> None:
    page = window().open("#/group/wide")
    page.wait_for_selector(".virtual td.col-name")
    page.click("th.col-name button")
    until(page, "document.querySelector('.virtual td.col-name').innerText === 'wide-0'")
    page.evaluate("document.querySelector('#list').scrollTop = 1e6")
    page.wait_for_selector(f"text=wide-{PARTITIONS - 1}")


def test_open_transactions_are_a_list_and_each_has_a_page(window: Callable[..., Page]) -> None:
    page = window().open("#/transactions")
    page.wait_for_selector(".virtual td.col-name")
    assert page.inner_text("h1") == f"Open transactions {TRANSACTIONS}"
    page.click("th.col-name button")
    until(page, "document.querySelector('.virtual td.col-name').innerText === 'till-000'")
    page.click("th.col-name button")
    until(page, "document.querySelector('.virtual td.col-name').innerText === 'till-499'")
    page.reload()
    until(page, "document.querySelector('.virtual td.col-name')?.innerText === 'till-499'")
    page.click("text=till-499")
    page.wait_for_selector("text=It is aborted in")
    assert cells(page, "name") == ["wide-0", "wide-1"]
    page.reload()
    page.wait_for_selector("text=It is aborted in")


def test_the_overview_names_the_transaction_that_holds_readers_back_among_older_ones(
    window: Callable[..., Page], shop: Hall
) -> None:
    """The older open transactions have no records, so they hold no reader back."""
    shop.write("late", 0, b"v")
    page = window().open()
    # the page reports a transaction that has been open for ten seconds
    page.wait_for_selector(".verdict.bad", timeout=30_000)
    assert "late has been open for" in page.inner_text(".verdict.bad")
    shop.producers["late"].abort_transaction(20)
    page.wait_for_selector(".verdict.good")


def test_the_page_of_an_ended_transaction_says_so(window: Callable[..., Page]) -> None:
    opened = window()
    page = opened.open("#/transaction/999999")
    assert "There is no open transaction of producer 999999" in page.inner_text("main h1")
    opened.complaints.clear()  # the browser logs the response with status 404


@pytest.mark.parametrize(("width", "scheme"), WIDTHS_AND_SCHEMES)
def test_the_rules_of_accessibility_hold(
    window: Callable[..., Page], shop: Hall, scheme: str, width: int
) -> None:
    opened = window(color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    opened.page.set_viewport_size({"width": width, "height": 844})
    producer = shop.ask("/api/transactions?count=1")[2]["rows"][0]["producer_id"]
    for route in (
        "#/groups", "#/transactions?sort=name", f"#/transaction/{producer}", "#/group/wide",
        "#/group/wide/members",
    ):  # fmt: skip
        page = opened.open(route)
        time.sleep(0.3)
        assert violations(page) == [], route
