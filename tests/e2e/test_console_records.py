"""The records of a whole topic on the console, merged, searched, followed and downloaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from helpers.console_page import MARKUP, WIDTHS_AND_SCHEMES, Page, Shop, until, violations

pytestmark = [pytest.mark.e2e, pytest.mark.deep]


def lines_of(page: Any) -> list[str]:
    """The positions and previews of the records that the page shows."""
    rows = page.eval_on_selector_all(
        ".topic-records .record-head", "rows => rows.map(row => row.innerText)"
    )
    return [" ".join(str(row).split()) for row in rows]


def search_for(page: Any, **fields: str) -> None:
    """Fill in the fields of the search form, and submit it."""
    for name, value in fields.items():
        page.fill(f"input[name={name}]", value)
    page.click(".search-form button[type=submit]")


# --- the endpoint -------------------------------------------------------------------------------


def search(shop: Shop, **query: str) -> Any:
    """Search in "orders". Gives: the status and the response."""
    text = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    status, _, body = shop.ask(f"/api/search?topic=orders&{text}")
    return (status, body)


def test_a_search_merges_all_partitions_newest_first(shop: Shop) -> None:
    status, body = search(shop)
    assert status == 200 and body["cursor"] is None and body["ends"] == "0:8,1:2"
    times = [row["timestamp"] for row in body["rows"]]
    assert times == sorted(times, reverse=True)
    states = {(row["partition"], row["offset"]): row["state"] for row in body["rows"]}
    assert states == {
        (0, 0): "committed", (0, 1): "committed", (0, 3): "aborted", (0, 5): "open",
        (0, 6): "committed", (1, 0): "committed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"text": "COFFEE"}, [(0, 0)]),
        ({"text": "4711"}, [(0, 6), (1, 0), (0, 5), (0, 3), (0, 1), (0, 0)]),
        ({"filter": 'value.item = "tea"'}, [(0, 1)]),
        ({"filter": 'state in ("open", "aborted") and partition = 0'}, [(0, 5), (0, 3)]),
        ({"filter": "value.item is not null", "partitions": "1"}, [(1, 0)]),
        ({"partitions": "1"}, [(1, 0)]),
        ({"to": "1000"}, []),
        ({"from": "1000", "text": "tea"}, [(0, 1)]),
        ({"from": "9999999999999"}, []),
    ],
)
def test_what_a_search_finds(
    shop: Shop, query: dict[str, str], found: list[tuple[int, int]]
) -> None:
    status, body = search(shop, **query)
    assert status == 200 and body["cursor"] is None
    rows = [(row["partition"], row["offset"]) for row in body["rows"]]
    assert sorted(rows) == sorted(found)


@pytest.mark.parametrize(
    ("query", "words", "at"),
    [
        ({"filter": "value.item ~ 3"}, "`~` has no meaning here", 11),
        ({"filter": "colour = 3"}, "a field (key, value", 0),
        ({"cursor": "x"}, "is not PARTITION:OFFSET", None),
        ({"partitions": "a"}, "written as 0,1,2", None),
        ({"from": "-1"}, "a number from 0 on", None),
    ],
)
def test_a_wrong_search_is_refused_with_a_reason(
    shop: Shop, query: dict[str, str], words: str, at: int | None
) -> None:
    status, body = search(shop, **query)
    assert status == 400 and words in body["error"] and body.get("at") == at


def test_a_download_has_the_lines_of_the_command_line(shop: Shop) -> None:
    status, headers, body = shop.ask(
        "/api/download?topic=orders&filter=key%20%3D%20%22customer-7%22"
    )
    assert status == 200 and headers["Content-Type"] == "application/x-ndjson"
    assert headers["Content-Disposition"] == 'attachment; filename="orders.jsonl"'
    lines = [json.loads(line) for line in body.decode().splitlines()]
    assert len(lines) == 6
    (coffee,) = [line for line in lines if line["value"] == '{"item": "coffee"}']
    assert coffee.pop("timestamp_ms") > 0
    assert coffee == {
        "topic": "orders", "partition": 0, "offset": 0, "key": "customer-7",
        "value": '{"item": "coffee"}', "headers": [["trace", "4711"]],
    }  # fmt: skip
    assert any(line["value"] == {"base64": "/wBub3QgdGV4dA=="} for line in lines)
    assert shop.ask("/api/download?topic=nothing")[0] == 404


# --- the page -----------------------------------------------------------------------------------


def test_a_search_is_a_link_that_survives_a_reload(window: Callable[..., Page]) -> None:
    page = window().open("#/topic/orders")
    page.click("text=Records")
    page.wait_for_selector(".topic-records .record")
    assert len(lines_of(page)) == 6
    search_for(page, filter='value.item contains "O" or value.item = "tea"', text="item")
    until(page, "document.querySelectorAll('.topic-records .record').length === 2")
    assert [line.split(" ", 2)[2] for line in lines_of(page)] == [
        '0-1 customer-7 {"item": "tea"}',
        '0-0 customer-7 {"item": "coffee"}',
    ]
    page.click(".topic-records .record-head >> nth=1")
    page.wait_for_selector("pre[aria-label=Value]")
    assert "record=0-0" in page.url and "filter=" in page.url
    page.reload()
    page.wait_for_selector("pre[aria-label=Value]")
    assert page.inner_text("pre[aria-label=Value]") == '{\n  "item": "coffee"\n}'
    assert page.input_value("input[name=filter]") == 'value.item contains "O" or value.item = "tea"'
    assert len(lines_of(page)) == 2
    page.go_back()
    until(page, "document.querySelectorAll('.topic-records .record').length === 6")
    page.go_forward()
    until(page, "document.querySelectorAll('.topic-records .record').length === 2")
    page.click("text=orders-0 at 0")
    page.wait_for_selector("#why")
    assert page.inner_text("pre[aria-label=Value]") == '{\n  "item": "coffee"\n}'


def test_records_are_shown_with_the_state_of_their_transaction_and_never_as_markup(
    window: Callable[..., Page],
) -> None:
    page = window().open("#/topic/orders/records")
    page.wait_for_selector(".topic-records .record")
    lines = lines_of(page)
    assert any(line.endswith("0-5 open customer-7 invoice") for line in lines)
    assert any(" 0-3 aborted customer-7 ff 00 6e" in line for line in lines)
    assert any(line.endswith(MARKUP) for line in lines)
    assert page.locator("main img").count() == 0


def test_a_filter_that_is_wrong_is_marked_at_its_place(window: Callable[..., Page]) -> None:
    opened = window()
    page = opened.open("#/topic/orders/records")
    search_for(page, filter="value.item ~ 3")
    page.wait_for_selector(".note.warn pre")
    assert page.inner_text(".note.warn p") == "The filter is wrong: `~` has no meaning here."
    assert page.inner_text(".note.warn pre") == "value.item ~ 3\n           ↑"
    opened.complaints.clear()  # the browser logs the response with status 400
    search_for(page, filter="value.item is not null")
    until(page, "document.querySelectorAll('.topic-records .record').length === 6")


def test_new_records_that_match_are_shown_until_live_is_off(
    window: Callable[..., Page], shop: Shop
) -> None:
    page = window().open("#/topic/clicks/records?text=Click")
    until(page, "document.querySelectorAll('.topic-records .record').length === 20")
    plain = Producer({"bootstrap.servers": shop.broker.bootstrap_servers})
    for value in (b"a later click", b"something else"):
        plain.produce("clicks", value)
    assert plain.flush(20) == 0
    page.wait_for_selector("text=a later click")
    assert lines_of(page)[0].endswith("a later click"), (
        "it is the first; the other record does not match"
    )
    page.uncheck("input[data-action=live]")
    assert "live=no" in page.url
    plain.produce("clicks", b"a click that is not shown")
    assert plain.flush(20) == 0
    page.wait_for_timeout(2500)
    assert page.locator("text=a click that is not shown").count() == 0


def test_a_record_is_copied_as_json(window: Callable[..., Page]) -> None:
    opened = window(permissions=["clipboard-read", "clipboard-write"])
    page = opened.open("#/topic/orders/records?text=coffee&record=0-0")
    page.click("text=Copy as JSON")
    until(page, "document.querySelector('#announce').textContent === 'Copied'")
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert (copied["value"], copied["headers"]) == ('{"item": "coffee"}', [["trace", "4711"]])


def test_a_file_is_downloaded(window: Callable[..., Page]) -> None:
    page = window(accept_downloads=True).open("#/topic/orders/records?text=item")
    page.wait_for_selector(".topic-records .record")
    with page.expect_download() as download:
        page.click("text=Download as JSON lines")
    assert download.value.suggested_filename == "orders.jsonl"
    lines = download.value.path().read_text().splitlines()
    assert [json.loads(line)["value"] for line in lines] == [
        '{"item": "tea"}',
        '{"item": "coffee"}',
    ]


def test_the_search_by_keyboard(window: Callable[..., Page]) -> None:
    page = window().open("#/topic/orders/records")
    page.wait_for_selector(".topic-records .record")
    page.focus("input[name=text]")
    page.keyboard.type("tea")
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('.topic-records .record').length === 1")
    for _ in range(40):  # 40 times at most, since a time field alone has seven tab stops
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.record-head')"):
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("pre[aria-label=Value]")
    page.wait_for_timeout(1500)  # the page refreshes itself and must keep the focus
    assert page.evaluate("document.activeElement.matches('.record-head')")


@pytest.mark.parametrize(("width", "scheme"), WIDTHS_AND_SCHEMES)
def test_the_rules_of_accessibility_hold(
    window: Callable[..., Page], scheme: str, width: int
) -> None:
    opened = window(color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    opened.page.set_viewport_size({"width": width, "height": 844})
    page = opened.open("#/topic/orders/records?record=0-5")
    page.wait_for_selector("pre[aria-label=Value]")
    page.click("summary")
    assert violations(page) == []


# --- a topic with many records ------------------------------------------------------------------


def test_a_long_search_continues_with_further_requests(browser: Any) -> None:
    shop = Shop()
    shop.broker.topics = {"many": 3}
    with shop.broker:
        plain = Producer({"bootstrap.servers": shop.broker.bootstrap_servers, "linger.ms": 20})
        for number in range(60_000):
            plain.produce("many", b'{"id": %d}' % number)
            if number % 10_000 == 0:
                plain.poll(0)
        assert plain.flush(30) == 0
        opened = Page(browser, shop)
        page = opened.open("#/topic/many/records?" + f"filter={quote('value.id in (3, 5)')}")
        page.wait_for_selector("text=2 records, the newest first; 60,000", timeout=60_000)
        asked = [url for url in opened.asked if "/api/search?" in url]
        assert len(asked) >= 2, "one request searches at most 50,000 records"
        page.goto(f"{shop.url}/#/topic/many/records?live=no")
        until(page, "document.querySelectorAll('.topic-records .record').length === 50")
        page.click("text=Go on with older ones")
        until(page, "document.querySelectorAll('.topic-records .record').length === 100")
        opened.close()


# --- numbers and names as they came -------------------------------------------------------------

NUMBERS = ("9007199254740993", "12345678901234567890", "0.1000000000000000055", "3.0")
LATE_MS = 2**53 + 1  # beyond the numbers of JavaScript, and beyond its calendar


@pytest.fixture(scope="module")
def exact_shop() -> Iterator[Shop]:
    """A shop with a record whose numbers JavaScript changes, from a time that it does not have."""
    shop = Shop()
    with shop.broker:
        shop.broker.create_topic("ids", message_timestamp_after_max_ms=2**62)
        a, b, c, d = NUMBERS
        value = f'{{"a": {a}, "b": {b}, "c": {c}, "d": {d}, "a": "again"}}'
        producer = Producer({"bootstrap.servers": shop.broker.bootstrap_servers})
        producer.produce("ids", value, timestamp=LATE_MS, headers=[("n", NUMBERS[2])])
        assert producer.flush(20) == 0
        yield shop


def test_the_page_shows_the_numbers_that_the_record_has(browser: Any, exact_shop: Shop) -> None:
    opened = Page(browser, exact_shop)
    page = opened.open("#/topic/ids/records")
    page.click(".topic-records .record-head")
    page.wait_for_selector("pre[aria-label=Value]")
    shown = page.inner_text("pre[aria-label=Value]").split("\n")
    assert shown == [
        "{", *(f'  "{name}": {one},' for name, one in zip("abcd", NUMBERS, strict=True)),
        '  "a": "again"', "}",
    ]  # fmt: skip
    assert "9,007,199,254,740,993 ms" in page.inner_text("main")
    opened.close()


def test_an_answer_has_no_number_that_javascript_cannot_hold(exact_shop: Shop) -> None:
    _, _, body = exact_shop.ask("/api/records?topic=ids&partition=0&offset=0&count=1")
    assert body["records"][0]["timestamp"] == str(LATE_MS)
    _, _, line = exact_shop.ask("/api/download?topic=ids")
    assert json.loads(line)["timestamp_ms"] == LATE_MS
