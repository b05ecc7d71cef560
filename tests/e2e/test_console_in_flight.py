"""The console's page of a share group's in-flight records, in a real browser: which member holds
which records, how often they were delivered, and which were archived.

The members send single requests, so that each record has the state that a test needs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.console_page import WIDTHS_AND_SCHEMES, Page, Shop, until, violations
from helpers.e2e_clients import eventually, send_all
from helpers.e2e_wire import Wire
from helpers.share_member import ACCEPT, REJECT, RELEASE, acquired
from sim import wire

from barnabas.protocol.errors import Code
from barnabas.protocol.messages import share_acknowledge, share_fetch
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

GROUP, IDLE, TOPIC = "couriers", "reserve", "deliveries-of-the-northern-district"
# Member ids in the form that Kafka's clients use.
ADA, BOB = "Jx2uYb0qQ9-Wm1ZkX3vTaA", "c7HnR5d_TLuK0sVgB8wEoQ"
GROUP_RESOURCE, RECORD_LIMIT = 32, 1
ROUTE = f"#/group/{GROUP}/in-flight"
# The rows of the page by offset: (records, state, deliveries, member).
ROWS = [
    ("0", "held", "2 times", BOB),
    ("1", "given up", "1 time", ""),
    ("2 to 3", "held", "1 time", BOB),
    ("4", "acknowledged", "1 time", ""),
    ("5", "waits for another delivery", "1 time", ""),
    ("6 to 9", "held", "1 time", ADA),
]


class Depot(Shop):
    """A broker with two share groups: one with records in flight, and one that has read nothing."""

    def __init__(self) -> None:
        lock = "group_share_{}record_lock_duration_ms"
        super().__init__(
            **{lock.format(""): 600_000, lock.format("max_"): 600_000},
            group_share_max_session_timeout_ms=600_000,
            group_share_session_timeout_ms=600_000,
        )
        self.broker.topics = {TOPIC: 1}
        self.topic_id = uuid.UUID(int=0)
        self.couriers: list[Courier] = []

    def fill(self) -> None:
        """Write twelve records, of which the members ADA and BOB acquire, release, reject and
        accept some. ROWS lists the records that are then in flight. The group IDLE has a member and
        acquires nothing.
        """
        for number in range(12):
            send_all(self.broker.bootstrap_servers, TOPIC, [b"parcel %d" % number])
        with Wire(self.broker.port) as client:
            answer = client.call(
                wire.request(MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 12)
            )
            self.topic_id = answer.topics[0].topic_id
            for group in (GROUP, IDLE):
                row = AlterableConfig("share.auto.offset.reset", 0, "earliest")
                resource = AlterConfigsResource(GROUP_RESOURCE, group, [row])
                done = client.call(
                    wire.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
                )
                assert done.responses[0].error_code == Code.NONE
        places = ((GROUP, ADA), (GROUP, BOB), (IDLE, ADA))
        self.couriers = [Courier(self, group, name) for group, name in places]
        ada, bob, _ = self.couriers
        assert ada.take(2) == [(0, 1, 1)]
        assert bob.take(3) == [(2, 4, 1)]
        ada.acknowledge((0, 0, RELEASE), (1, 1, REJECT))
        bob.acknowledge((4, 4, ACCEPT))
        assert bob.take(1) == [(0, 0, 2)]
        assert ada.take(5) == [(5, 9, 1)]
        ada.acknowledge((5, 5, RELEASE))

    def close(self) -> None:
        for courier in self.couriers:
            courier.close()


class Courier:
    """A member of a share group, with a separate connection."""

    def __init__(self, depot: Depot, group: str, member_id: str) -> None:
        self.group, self.member_id, self.topic_id = group, member_id, depot.topic_id
        self._client, self._epoch = Wire(depot.broker.port), 0
        self._member_epoch = 0
        eventually(self._is_assigned, what="the partition is assigned")

    def _is_assigned(self) -> bool:
        """Send a heartbeat. Gives: whether the member has the partition."""
        request = ShareGroupHeartbeatRequest(
            self.group, self.member_id, self._member_epoch, None, [TOPIC]
        )
        answer = self._client.call(wire.request(request, 1))
        assert answer.error_code == Code.NONE, answer
        self._member_epoch = answer.member_epoch
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    def take(self, count: int) -> list[tuple[int, int, int]]:
        """Acquire records by a fetch. Gives: the (first offset, last offset, delivery count) of
        each range.
        """
        topic = share_fetch.FetchTopic(self.topic_id, [share_fetch.FetchPartition(0, [])])
        request = share_fetch.ShareFetchRequest(
            self.group, self.member_id, self._epoch, 10_000, 1, 1 << 20, count, count, RECORD_LIMIT,
            False, [topic], [],
        )  # fmt: skip
        answer = self._client.call(wire.request(request, 2))
        assert answer.error_code == Code.NONE, answer
        self._epoch += 1
        return acquired(answer)

    def close(self) -> None:
        self._client.socket.close()

    def acknowledge(self, *batches: tuple[int, int, int]) -> None:
        """Acknowledge ranges in the share session. Takes: batches, a (first offset, last offset,
        kind) for each range.
        """
        made = share_acknowledge
        rows = [made.AcknowledgementBatch(first, last, [kind]) for first, last, kind in batches]
        topic = made.AcknowledgeTopic(self.topic_id, [made.AcknowledgePartition(0, rows)])
        request = made.ShareAcknowledgeRequest(
            self.group, self.member_id, self._epoch, False, [topic]
        )
        answer = self._client.call(wire.request(request, 2))
        assert answer.error_code == answer.responses[0].partitions[0].error_code == Code.NONE
        self._epoch += 1


@pytest.fixture(scope="module")
def shop() -> Iterator[Depot]:
    """A broker with a share group that has records in flight. Its output may have no errors at the
    end.
    """
    shop = Depot()
    with shop.broker:
        shop.fill()
        yield shop
        shop.close()
        output = "".join(shop.broker.output)
        assert "Traceback" not in output and " ERROR " not in output, output[-3000:]


def shown(page: Any) -> list[tuple[str, ...]]:
    """The rows of the list as tuples of columns, without the time for which a member has held its
    records.
    """
    rows: list[list[str]] = page.evaluate(
        "[...document.querySelectorAll('.virtual tbody tr:not(.space)')]"
        ".map((row) => [...row.children].map((cell) => cell.innerText))"
    )
    return [
        (records, state, count, member.partition(",")[0])
        for partition, records, state, count, member in rows
        if partition == f"{TOPIC}-0"
    ]


def opened(window: Callable[..., Page], route: str = ROUTE, **options: Any) -> Any:
    """Open a page of the console, and wait until its list has rows."""
    page = window(**options).open(route)
    page.wait_for_selector(".virtual td.col-name")
    return page


def test_the_list_shows_member_delivery_count_and_archived_records(
    window: Callable[..., Page],
) -> None:
    page = opened(window)
    assert shown(page) == ROWS
    held = page.inner_text(f".virtual td.col-member:has-text('{ADA}')")
    assert held.startswith(f"{ADA}, for 9 min") and held.endswith(" more"), held
    assert page.inner_text(".badge.warn") == "given up"
    assert GROUP in page.inner_text("h1")


def test_the_page_of_a_share_group_leads_to_it_by_keyboard(window: Callable[..., Page]) -> None:
    page = window().open(f"#/group/{GROUP}")
    page.focus("nav a:text-is('In flight')")
    page.keyboard.press("Enter")
    page.wait_for_selector(".virtual td.col-delivery_count")
    assert page.url.endswith(ROUTE)
    assert page.locator("nav a[aria-current=page]:text-is('In flight')").count() == 1
    page.focus("th.col-delivery_count button")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('th.col-delivery_count').ariaSort === 'descending'")
    until(page, "document.querySelector('td.col-delivery_count').innerText === '2 times'")
    page.reload()
    page.wait_for_selector(".virtual td.col-name")
    assert shown(page)[0] == ROWS[0], "the order survives a reload"


def test_a_row_leads_to_its_records(window: Callable[..., Page]) -> None:
    page = opened(window)
    page.click("td.col-records a:text-is('4')")
    page.wait_for_selector("pre[aria-label=Value]")
    assert page.inner_text("pre[aria-label=Value]") == "parcel 4"


@pytest.mark.parametrize(("width", "scheme"), WIDTHS_AND_SCHEMES)
def test_the_rules_of_accessibility_hold(
    window: Callable[..., Page], scheme: str, width: int
) -> None:
    page = opened(window, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    page.set_viewport_size({"width": width, "height": 844})
    assert violations(page) == []
    cut = page.evaluate(
        "[...document.querySelectorAll('.virtual :is(th, td)')]"
        ".filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText)"
    )
    assert cut == [], "but for the topic's name, which is cut within its cell"
    number = page.evaluate(
        "(() => { const cell = document.querySelector('td.col-name'), text = cell.firstChild;"
        "return cell.getBoundingClientRect().right - text.getBoundingClientRect().right; })()"
    )
    assert number > 0, "the partition's number is shown"
    assert page.evaluate("document.getAnimations().length") == 0


@pytest.mark.parametrize(("width", "scheme"), WIDTHS_AND_SCHEMES)
def test_a_group_without_records_in_flight_says_so(
    window: Callable[..., Page], scheme: str, width: int
) -> None:
    opened = window(color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    opened.page.set_viewport_size({"width": width, "height": 844})
    page = opened.open(f"#/group/{IDLE}/in-flight")
    page.wait_for_selector("text=Nothing is in flight.")
    assert violations(page) == []


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("sort=delivery_count&order=down", (0, "held", 2)),
        ("sort=name&order=down", (6, "held", 1)),
        ("sort=state", (4, "done", 1)),
        ("sort=records&order=down", (6, "held", 1)),
    ],
)
def test_the_order_of_the_list(shop: Depot, query: str, first: tuple[int, str, int]) -> None:
    status, _, body = shop.ask(f"/api/group?group={GROUP}&of=in_flight&{query}")
    row = body["rows"][0]
    assert status == 200
    assert (row["first_offset"], row["state"], row["delivery_count"]) == first


def test_the_list_of_records_in_flight_follows_changes(
    window: Callable[..., Page], shop: Depot
) -> None:
    """This test is last, since other tests need the rows unchanged."""
    page = opened(window)
    assert shown(page) == ROWS
    ada, *_ = shop.couriers
    ada.acknowledge((9, 9, RELEASE))
    until(page, "document.querySelectorAll('td.col-name').length === 7")
    changed = [*ROWS[:-1], ("6 to 8", "held", "1 time", ADA), ("9", ROWS[4][1], "1 time", "")]
    assert shown(page) == changed
    assert ada.take(2) == [(5, 5, 2), (9, 9, 2)]
    until(page, "document.querySelector('tr:last-child td.col-delivery_count').innerText[0] == 2")
    assert shown(page)[-1] == ("9", "held", "2 times", ADA)
