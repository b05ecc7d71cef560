"""Records with schemas of a registry on the console. They are shown, searched and copied, and
replayed as bytes.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from helpers.console_page import WIDTHS_AND_SCHEMES, Page, Shop, until, violations
from helpers.schema_registry import FakeRegistry, fake_registry

from barnabas.schemas import wire_format

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
PROTO = 'syntax = "proto3"; message Cup { string colour = 1; }'
TLS = Path(__file__).resolve().parents[1] / "fixtures" / "tls"
AVRO, CUP = 1, 2  # ids of the schemas in the registry


def order(number: int, item: str) -> bytes:
    return wire_format.header(AVRO) + bytes([number * 2, len(item) * 2]) + item.encode()


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    """A registry with an Avro schema for "orders" and a Protobuf schema for "cups"."""
    with fake_registry() as running:
        for subject, kind, text in (
            ("orders-value", "AVRO", json.dumps(ORDER)),
            ("cups-value", "PROTOBUF", PROTO),
        ):
            path = f"/subjects/{subject}/versions"
            running.answer("POST", path, {"schema": text, "schemaType": kind}, None)
        running.requests.clear()
        yield running


@pytest.fixture(scope="module")
def shop(registry: FakeRegistry) -> Iterator[Shop]:
    """A broker whose topic "orders" has two Avro records, one Protobuf record, one record with an
    unknown schema, one without a schema, and an integer whose first bytes look like a schema id.
    """
    shop = Shop(barnabas_console_registry=registry.url, barnabas_console_writes=True)
    shop.broker.topics = {"orders": 1, "copies": 1}
    with shop.broker:
        producer = Producer({"bootstrap.servers": shop.broker.bootstrap_servers})
        values = (
            order(7, "tea"),
            order(8, "coffee"),
            wire_format.header(CUP, (0,)) + b"\x0a\x04blue",
            wire_format.header(99) + b"?",
            b"plain text",
            b"\0\0\0\0\0\0\0\5",  # an 8-byte integer
        )
        for number, value in enumerate(values):
            producer.produce("orders", value, key=b"k%d" % number, partition=0)
        assert producer.flush(20) == 0
        yield shop
        output = "".join(shop.broker.output)
        assert "Traceback" not in output and " ERROR " not in output, output[-3000:]


def found(shop: Shop, **query: str) -> list[int]:
    """The offsets of the records that a search in "orders" finds. As the page does, it continues
    where a response ended because its time was over.
    """
    offsets: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        names = {**query, "cursor": cursor} if cursor else query
        text = "&".join(f"{name}={quote(value)}" for name, value in names.items())
        status, _, body = shop.ask(f"/api/search?topic=orders&{text}")
        assert status == 200, body
        offsets += [row["offset"] for row in body["rows"]]
        cursor = body["cursor"]
    return offsets


def test_the_page_s_own_certificate_and_token_go_to_the_registry() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    context.load_verify_locations(TLS / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with fake_registry(context) as registry:
        schema = {"schema": json.dumps(ORDER), "schemaType": "AVRO"}
        registry.answer("POST", "/subjects/orders-value/versions", schema, None)
        registry.authorization = "Bearer t.o.k"
        shop = Shop(
            barnabas_console_registry=registry.url.replace("127.0.0.1", "localhost"),
            barnabas_console_registry_token="t.o.k",
            barnabas_console_registry_ca_file=str(TLS / "ca.pem"),
            barnabas_console_registry_certificate_file=str(TLS / "client-certificate.pem"),
            barnabas_console_registry_key_file=str(TLS / "client-key-encrypted.pem"),
            barnabas_console_registry_key_password="secret",
        )
        shop.broker.topics = {"orders": 1}
        with shop.broker:
            producer = Producer({"bootstrap.servers": shop.broker.bootstrap_servers})
            producer.produce("orders", order(7, "tea"))
            assert producer.flush(20) == 0
            assert found(shop, filter="value.id = 7") == [0]


# --- the endpoint -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ({"filter": "value.id = 7"}, [0]),
        ({"filter": "value.id >= 7"}, [1, 0]),
        ({"filter": 'value.colour = "blue"'}, [2]),
        ({"text": '"id": 8'}, [1]),
        ({"text": "PLAIN"}, [4]),
        ({"filter": "offset < 2 and not value.id = 7"}, [1]),
    ],
)
def test_a_search_finds_decoded_values(
    shop: Shop, query: dict[str, str], offsets: list[int]
) -> None:
    assert found(shop, **query) == offsets


def test_a_record_has_its_schema_or_why_it_was_not_decoded(shop: Shop) -> None:
    rows = shop.ask("/api/records?topic=orders&partition=0&offset=0")[2]["records"]
    parts = [row["decoded"]["value"] for row in rows]
    assert all(row["decoded"]["key"] is None for row in rows)
    assert parts[0] == {
        "schema_id": AVRO, "kind": "AVRO", "json": '{"id": 7, "item": "tea"}', "size": 24,
        "error": "",
    }  # fmt: skip
    assert parts[2]["kind"] == "PROTOBUF" and parts[4] is None
    assert parts[3]["json"] is None and "no such schema" in parts[3]["error"]
    assert parts[5]["schema_id"] == 0 and "no such schema" in parts[5]["error"]


def test_a_download_has_the_bytes_or_on_request_the_decoded_values(shop: Shop) -> None:
    query = f"/api/download?topic=orders&filter={quote('value.id = 7')}"
    (line,) = shop.ask(query)[2].decode().splitlines()
    assert json.loads(line)["value"] == order(7, "tea").decode(), "as it is in the log"
    (line,) = shop.ask(query + "&decoded=yes")[2].decode().splitlines()
    assert json.loads(line)["value"] == {"id": 7, "item": "tea"}


def test_each_schema_is_requested_once_and_nothing_else_is_requested(
    shop: Shop, registry: FakeRegistry
) -> None:
    for _ in range(3):
        found(shop, filter="value.id = 7")
    asked = [(method, path) for method, path, _ in registry.requests]
    assert asked.count(("GET", f"/schemas/ids/{AVRO}")) == 1
    assert all(path.startswith("/schemas/ids/") and method == "GET" for method, path in asked)


# --- the page -----------------------------------------------------------------------------------


def values_of(page: Any) -> list[str]:
    """The keys and values that the list of records shows."""
    rows = page.eval_on_selector_all(
        ".topic-records .record-line", "rows => rows.map(row => row.innerText)"
    )
    return [" ".join(str(row).split()) for row in rows]


def test_a_record_is_shown_and_found_by_its_schema(window: Callable[..., Page], shop: Shop) -> None:
    page = window().open("#/topic/orders/records")
    page.wait_for_selector(".topic-records .record")
    assert 'k0 {"id": 7, "item": "tea"}' in values_of(page)
    page.fill("input[name=filter]", "value.id = 8")
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('.topic-records .record').length === 1")
    page.click(".topic-records .record-head")
    page.wait_for_selector("pre[aria-label=Value]")
    assert page.inner_text("pre[aria-label=Value]") == '{\n  "id": 8,\n  "item": "coffee"\n}'
    assert "Avro, schema 1" in page.inner_text(".record-body")
    page.reload()
    page.wait_for_selector("pre[aria-label=Value]")
    assert '"item": "coffee"' in page.inner_text("pre[aria-label=Value]")
    page.click("text=Hex")
    assert page.inner_text("pre[aria-label=Value]").startswith("000000  00 00 00 00 01 10 0c")


def test_a_record_that_cannot_be_decoded_is_shown_as_bytes_with_the_reason(
    window: Callable[..., Page],
) -> None:
    page = window().open("#/topic/orders/records?record=0-3")
    page.wait_for_selector(".note.schema")
    assert page.inner_text(".note.schema").startswith("Not decoded, schema 99: --console-registry")
    assert page.inner_text("pre[aria-label=Value]").startswith("000000  00 00 00 00 63 3f")


def test_a_decoded_record_is_copied(window: Callable[..., Page]) -> None:
    opened = window(permissions=["clipboard-read", "clipboard-write"])
    page = opened.open("#/topic/orders/records?record=0-0")
    for words, value in (
        ("Copy decoded", {"id": 7, "item": "tea"}),
        ("Copy as JSON", order(7, "tea").decode()),
    ):
        page.evaluate("document.querySelector('#announce').textContent = ''")
        page.click(f"text={words}")
        until(page, "document.querySelector('#announce').textContent === 'Copied'")
        copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
        assert copied["value"] == value and copied["offset"] == 0


def test_a_replay_copies_the_bytes_of_the_records(window: Callable[..., Page], shop: Shop) -> None:
    page = window().open("#/topic/orders/write")
    page.fill("form[data-form=replay] input[name=filter]", "value.id in (7, 8)")
    page.fill("form[data-form=replay] input[name=to]", "copies")
    page.click("form[data-form=replay] button[type=submit]")
    page.wait_for_selector("text=2 records")
    deadline = time.monotonic() + 10
    while len(lines := shop.ask("/api/download?topic=copies")[2].decode().splitlines()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert {json.loads(line)["value"].encode() for line in lines} == {
        order(7, "tea"), order(8, "coffee"),
    }  # fmt: skip


@pytest.mark.parametrize(("width", "scheme"), WIDTHS_AND_SCHEMES)
def test_the_rules_of_accessibility_hold(
    window: Callable[..., Page], scheme: str, width: int
) -> None:
    opened = window(color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    opened.page.set_viewport_size({"width": width, "height": 844})
    for number in (0, 3):
        page = opened.open(f"#/topic/orders/records?record=0-{number}")
        page.wait_for_selector("pre[aria-label=Value]")
        assert violations(page) == []
        page.goto("about:blank")
