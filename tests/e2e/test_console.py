"""The console in a real browser: transactions as a user sees them, use by mouse and keyboard, the
rules for screen readers; and access to the console's endpoint.

helpers/console_page.py says which browser the tests need.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from helpers.console_page import MARKUP, WIDTHS_AND_SCHEMES, Page, Shop, until, violations

pytestmark = pytest.mark.e2e


# --- the endpoint -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 200),
    ],
)
def test_a_page_of_elsewhere_may_not_ask(shop: Shop, headers: dict[str, str], status: int) -> None:
    for path in ("/", "/api/overview"):
        assert shop.ask(path, **headers)[0] == status


def test_the_content_security_policy_allows_only_the_pages_own_files(shop: Shop) -> None:
    status, headers, body = shop.ask("/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy and "http" not in policy
    assert b"http://" not in body.replace(b"http://www.w3.org", b"") and b"https://" not in body
    assert headers["X-Content-Type-Options"] == "nosniff"
    status, headers, _ = shop.ask("/main.js")
    assert (status, headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("DELETE", "/", 405, "takes GET and POST"),
        ("GET", "/../endpoint.py", 404, "nothing at"),
        ("GET", "/static/main.js", 404, "nothing at"),
        ("GET", "/api/records?topic=orders&partition=0&offset=-1", 400, "a number from 0 on"),
        ("GET", "/api/partition?topic=orders&partition=x", 400, "a number from 0 on"),
        ("GET", "/api/partition?topic=orders&partition=9", 404, "no partition orders-9"),
        ("GET", "/api/topic?topic=nothing", 404, "no topic 'nothing'"),
        ("GET", "/api/group?group=nobody", 404, "no group 'nobody'"),
        ("GET", "/api/records?topic=orders&partition=0&offset=99999", 404, "OFFSET_OUT_OF_RANGE"),
    ],
)
def test_what_is_wrong_is_said(shop: Shop, method: str, path: str, status: int, words: str) -> None:
    got, _, body = shop.ask(path, method)
    assert got == status and words in body["error"]


def test_a_stuck_partition_is_explained_as_on_the_command_line(shop: Shop) -> None:
    explanation = shop.ask("/api/partition?topic=orders&partition=0")[2]["explanation"]
    assert explanation.startswith("orders-0 is stuck at offset 5, 3 offsets before its end: ")
    assert "transactional id 'nightly'" in explanation and "(at 127.0.0.1)" in explanation
    assert "by its timeout of 10 min" in explanation
    assert explanation.endswith(
        "Group 'kitchen' (Empty, without members now) waits for it, where it reads committed data."
    )


def test_a_group_waits_once_it_has_read_all_records_before_the_open_transaction(shop: Shop) -> None:
    """A group is shown as waiting if its offset is after the last committed record before the open
    transaction. Markers and aborted records may follow the offset.
    """
    consumer = Consumer({"bootstrap.servers": shop.broker.bootstrap_servers, "group.id": "bakery"})
    for offset, situation in ((1, "behind"), (2, "waits"), (5, "waits"), (7, "behind")):
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
        deadline = time.monotonic() + 10
        while True:
            rows = shop.ask("/api/group?group=bakery")[2].get("rows")
            if rows and (rows[0]["offset"], rows[0]["situation"]) == (offset, situation):
                break
            assert time.monotonic() < deadline, rows
            time.sleep(0.1)
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_both_protocols_with_their_partitions(shop: Shop, protocol: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": shop.broker.bootstrap_servers,
            "group.id": f"of-{protocol}",
            "client.id": "cook",
            "group.protocol": protocol,
        }
    )
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + 30
    while len(consumer.assignment()) < 2:
        consumer.poll(0.2)
        assert time.monotonic() < deadline
    while True:
        group = shop.ask(f"/api/group?group=of-{protocol}&of=members")[2]
        (member,) = group.get("rows") or [{"assignment": []}]
        if len(member["assignment"]) == 2:
            break
        assert time.monotonic() < deadline, group
        time.sleep(0.1)
    assert sorted(member["assignment"]) == [["orders", 0], ["orders", 1]]
    assert (member["client_id"], member["client_host"]) == ("cook", "127.0.0.1")
    assert (group["state"], group["members"]) == ("Stable", 1)
    consumer.close()


# --- the page -----------------------------------------------------------------------------------


def test_links_lead_from_a_stuck_group_to_the_transaction_that_holds_it_back(
    window: Callable[..., Page], shop: Shop
) -> None:
    page = window().open()
    # the page reports a transaction that has been open for ten seconds
    page.wait_for_selector(".verdict.bad", timeout=30_000)
    assert "nightly has been open for" in page.inner_text(".verdict.bad")
    page.click("a[href='#/groups']")
    page.click("a[href='#/group/kitchen']")
    page.wait_for_selector("text=Committed offsets")
    page.click("a[href='#/partition/orders/0']")
    page.wait_for_selector("#why")
    words = page.inner_text("#why")
    assert "transactional id 'nightly'" in words and "orders-0 is stuck at offset 5" in words
    kinds = page.eval_on_selector_all(
        "button.span", "spans => spans.map(span => span.className.split(' ')[1])"
    )
    assert kinds == [
        "committed", "commit", "aborted", "abort", "open", "committed", "commit",
    ]  # fmt: skip
    held = page.eval_on_selector_all("button.span.held", "spans => spans.length")
    assert held == 3, "the open record, and the committed record and marker after it"
    assert "last stable offset 5" in page.inner_text(".flag.stable")
    assert "nightly open holds the last stable offset" in page.inner_text(".grid")


def test_the_page_of_a_partition_follows_a_transaction_that_begins_and_ends(
    window: Callable[..., Page], shop: Shop
) -> None:
    page = window().open("#/partition/orders/1")
    before = page.locator("button.span").count()
    page.evaluate("window.stays = document.querySelector('button.span')")
    shop.write("moving", 1, b"first")
    page.wait_for_selector("button.span.open")
    assert page.inner_text("#why").startswith("orders-1 is stuck at offset")
    shop.producers["moving"].abort_transaction(20)
    page.wait_for_selector("button.span.aborted")
    until(page, "!document.querySelector('button.span.open')")
    assert page.locator("button.span").count() == before + 2
    assert page.evaluate("window.stays.isConnected"), (
        "an unchanged record keeps its element of the page"
    )
    assert "is not stuck" in page.inner_text("#why")


def test_records_are_shown_as_json_text_and_hex_and_never_as_markup(
    window: Callable[..., Page], shop: Shop
) -> None:
    page = window().open("#/partition/orders/0")
    page.click("button.span.committed >> nth=0")
    page.wait_for_selector(".record-body pre")
    assert page.inner_text("pre[aria-label=Value]") == '{\n  "item": "coffee"\n}'
    assert page.inner_text("pre[aria-label=Key]") == "customer-7"
    assert page.inner_text(".headers tbody").split() == ["trace", "4711"]
    page.click("text=Hex")
    assert page.inner_text("pre[aria-label=Value]").startswith("000000  7b 22 69 74 65 6d")
    assert page.locator(".record").count() == 8, "four records, the open one, three markers"
    page.fill("input[name=offset]", "6")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.record .offset')?.textContent === '6'")
    page.click("text=Text")
    assert page.inner_text("pre[aria-label=Value]") == MARKUP
    page.goto(f"{shop.url}/#/partition/orders/1")
    page.wait_for_selector(f".lane-name >> text={MARKUP}")
    assert page.locator("main img").count() == 0


def test_a_record_is_opened_by_keyboard(window: Callable[..., Page], shop: Shop) -> None:
    page = window().open("#/partition/orders/0")
    page.wait_for_selector("button.span")
    assert page.locator("button.span[tabindex='0']").count() == 1, "a strip is one stop of Tab"
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('button.span')"):
            break
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label == "open of nightly: offset 5, 1 record"
    page.wait_for_timeout(1500)  # the page refreshes itself and must keep the focus
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == label
    page.keyboard.press("Enter")
    page.wait_for_selector("pre[aria-label=Value]")
    assert page.inner_text("pre[aria-label=Value]") == "invoice"


@pytest.mark.parametrize(("width", "scheme"), WIDTHS_AND_SCHEMES)
def test_the_rules_of_accessibility_hold(
    window: Callable[..., Page], scheme: str, width: int
) -> None:
    opened = window(color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    page = opened.page
    page.set_viewport_size({"width": width, "height": 844})
    for route in ("#/", "#/partition/orders/0", "#/groups", "#/group/kitchen", "#/requests"):
        opened.open(route)
        if "partition" in route:
            page.click("button.span.committed >> nth=0")
            page.wait_for_selector(".record-body pre")
        assert violations(page) == [], route
        moving = page.evaluate("document.getAnimations().length")
        assert moving == 0, "nothing moves where people ask for that"


def test_topics_are_found_by_name(window: Callable[..., Page]) -> None:
    page = window().open()
    page.fill("input[type=search]", "CLI")
    until(page, "document.querySelectorAll('.topic').length === 1")
    assert "clicks" in page.inner_text(".topic h3")
    page.fill("input[type=search]", "no such")
    page.wait_for_selector("text=No topic has “no such” in its name.")
    page.fill("input[type=search]", "")
    page.check("input[data-action=internal]")
    page.wait_for_selector("text=__consumer_offsets")


def test_the_page_shows_what_to_do_without_topics_and_that_the_broker_does_not_answer(
    browser: Any, tmp_path: Path
) -> None:
    shop = Shop()
    shop.broker.topics = ()
    with shop.broker:
        opened = Page(browser, shop)
        page = opened.open()
        page.wait_for_selector("text=No topics yet.")
        assert shop.broker.bootstrap_servers in page.inner_text("main")
        assert page.locator("text=No open transactions.").count() == 1
        shop.broker.settings["barnabas.console.port"] = str(shop.console_port)
        shop.broker.kill()
        page.wait_for_selector("#notice >> text=The broker does not answer")
        shop.broker.start()
        page.wait_for_selector(".pulse.live")
        until(page, "!document.querySelector('#notice').textContent")
        opened.complaints.clear()  # the browser logs each failed request
        opened.close()


# --- what it costs ------------------------------------------------------------------------------


def test_a_hidden_page_sends_no_requests(window: Callable[..., Page]) -> None:
    opened = window()
    page = opened.open()
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_selector(".pulse.paused")
    before = len(opened.asked)
    page.wait_for_timeout(2500)
    assert len(opened.asked) == before
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: false, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_selector(".pulse.live")


@pytest.mark.parametrize(
    "route",
    [
        "#/topic/nope",
        "#/topic/nope/records",
        "#/topic/nope/settings",
        "#/group/nope",
        "#/partition/nope/0",
    ],
)
def test_the_page_of_a_missing_topic_or_group_says_so(
    window: Callable[..., Page], route: str
) -> None:
    opened = window()
    page = opened.open(route)
    assert "There is no" in page.inner_text("main h1")
    assert page.get_attribute("main a", "href") == "#/"
    opened.complaints.clear()  # the browser logs the response with status 404


@pytest.mark.parametrize("route", ["#/foo/bar", "#/topic/orders/none", "#/groups/x", "#/records"])
def test_an_address_without_a_page_says_so(window: Callable[..., Page], route: str) -> None:
    page = window().open(route)
    assert page.inner_text("main h1") == f"There is no page at {route}."
    page.click("main a[href='#/']")
    page.wait_for_selector("main h1 >> text=Overview", state="attached")
    page.goto(page.url.replace("#/", "#/group/kitchen"))
    page.wait_for_selector("main h1 >> text=kitchen")
