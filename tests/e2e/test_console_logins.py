"""The console of a broker with users. Without a login it shows nothing, and after a login only what
the user may see.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from helpers.console_page import WIDTHS_AND_SCHEMES, Page, Shop, until, violations

from barnabas import LocalBroker

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

ADMIN, ALICE = ("admin", "admin-secret"), ("alice", "alice-secret")
READS = [
    "/api/overview", "/api/topics", "/api/topic?topic=orders", "/api/security", "/api/requests",
    "/api/partition?topic=orders&partition=0", "/api/records?topic=orders&partition=0",
    "/api/search?topic=orders", "/api/download?topic=orders", "/api/transactions", "/api/groups",
    "/api/group?group=kitchen", "/api/settings?topic=orders", "/api/nothing",
]  # fmt: skip


class Guarded(Shop):
    """A broker with users and ACLs. The user alice may read the topic orders and write to the topic
    copies.
    """

    def __init__(self, *, writes: bool = True, audit_log: str = "") -> None:
        self.broker = LocalBroker(
            settings={
                "barnabas.console.port": 0,
                "barnabas.console.writes": writes,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:admin",
                "barnabas.audit.log": audit_log,
                "connection.failed.authentication.delay.ms": 10,
            },
            topics={"orders": 2, "copies": 1, "secret": 1},
            users=dict([ADMIN, ALICE]),
        )
        self.producers = {}
        self.cookies: dict[str, str] = {}

    def config(self, user: tuple[str, str], **more: Any) -> dict[str, Any]:
        """A client's settings for this user's login. In the parameters' names, _ replaces the dots
        of the settings.
        """
        return {
            "bootstrap.servers": self.broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user[0],
            "sasl.password": user[1],
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def fill(self) -> None:
        """Add users, ACLs and offsets. Alice may read "orders" and the group "kitchen" and write to
        "copies", and nothing else. The user ben has no ACLs. Both groups commit offsets in "orders"
        and "secret".
        """
        admin = AdminClient(self.config(ADMIN))
        allow = AclPermissionType.ALLOW
        literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
        rights = [
            (ResourceType.TOPIC, "orders", literal, AclOperation.READ),
            (ResourceType.TOPIC, "copies", literal, AclOperation.WRITE),
            (ResourceType.GROUP, "kitchen", literal, AclOperation.READ),
            (ResourceType.TRANSACTIONAL_ID, "barnabas-console", prefixed, AclOperation.WRITE),
        ]
        made = admin.create_acls(
            [AclBinding(*row[:3], "User:alice", "*", row[3], allow) for row in rights]
        )
        for future in made.values():
            future.result(20)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        users = admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("ben", info, b"ben-secret")]
        )
        for future in users.values():
            future.result(20)
        producer = Producer(self.config(ADMIN))
        for topic in ("orders", "secret"):
            for number in range(3):
                producer.produce(topic, f"{topic} {number}".encode(), b"k", partition=0)
        assert producer.flush(20) == 0
        for group in ("kitchen", "spies"):
            consumer = Consumer(self.config(ADMIN, group_id=group))
            rows = [TopicPartition("orders", 0, 1), TopicPartition("secret", 0, 1)]
            consumer.commit(offsets=rows, asynchronous=False)
            consumer.close()

    def post(
        self, path: str, body: Any, *, cookie: str = "", **headers: str
    ) -> tuple[int, Any, Any]:
        """Send a POST as a browser does. Gives: the status, the headers, and the decoded JSON."""
        client = http.client.HTTPConnection("127.0.0.1", self.console_port, timeout=30)
        sent = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        if cookie:
            sent["Cookie"] = cookie
        client.request("POST", path, json.dumps(body), sent)
        answer = client.getresponse()
        text = answer.read()
        client.close()
        return answer.status, answer.headers, json.loads(text)

    def log_in(self, user: tuple[str, str]) -> str:
        """Log in as the user. Gives: the session's cookie."""
        if user[0] not in self.cookies:
            body = {"user": user[0], "password": user[1]}
            status, headers, answer = self.post("/api/login", body)
            assert status == 200, answer
            self.cookies[user[0]] = headers["Set-Cookie"].partition(";")[0]
        return self.cookies[user[0]]

    def get(self, path: str, user: tuple[str, str]) -> tuple[int, Any]:
        status, _, body = self.ask(path, Cookie=self.log_in(user))
        return status, body


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    audit_log = tmp_path_factory.mktemp("audit") / "audit.log"
    shop = Guarded(audit_log=str(audit_log))
    with shop.broker:
        shop.fill()
        yield shop
        output = "".join(shop.broker.output)
        assert "Traceback" not in output and " ERROR " not in output, output[-3000:]


# --- without a login ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", READS)
def test_nothing_is_shown_without_a_login(shop: Guarded, path: str) -> None:
    for cookie in ("", f"barnabas-console-{shop.console_port}=", "x=y", "\x01=;;"):
        status, _, body = shop.ask(path, **({"Cookie": cookie} if cookie else {}))
        assert (status, body) == (401, {"error": "Log in first.", "login": True})


def test_nothing_is_written_without_a_login(shop: Guarded) -> None:
    for path in ("/api/produce", "/api/replay", "/api/nothing"):
        assert shop.post(path, {"topic": "copies"})[0] == 401


def test_the_pages_files_have_no_data_of_the_broker(shop: Guarded) -> None:
    status, _, body = shop.ask("/")
    assert status == 200 and b"orders" not in body
    assert shop.broker.bootstrap_servers.encode() not in body


# --- logins -------------------------------------------------------------------------------------


def test_a_login_s_cookie_is_kept_from_scripts_and_other_sites(shop: Guarded) -> None:
    status, headers, _ = shop.post("/api/login", {"user": "ben", "password": "ben-secret"})
    assert status == 200, "a user that was made by AlterUserScramCredentials"
    cookie = headers["Set-Cookie"]
    assert cookie.startswith(f"barnabas-console-{shop.console_port}=")
    for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"):
        assert part in cookie.split("; ")
    assert len(cookie.partition(";")[0].partition("=")[2]) >= 40
    own = cookie.partition(";")[0]
    assert shop.ask("/api/overview", Cookie=own)[0] == 200
    status, headers, _ = shop.post("/api/logout", {}, cookie=own)
    assert status == 200 and "Max-Age=0" in headers["Set-Cookie"]
    assert shop.ask("/api/overview", Cookie=own)[0] == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"user": "alice"}, 400),
        ({"user": "", "password": "x"}, 400),
        ({"user": 1, "password": "x"}, 400),
        ({"user": "alice", "password": "x" * 2000}, 400),
        ([], 400),
    ],
)
def test_what_is_no_login(shop: Guarded, body: Any, status: int) -> None:
    assert shop.post("/api/login", body)[0] == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Content_Type": "text/plain"}, 400),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 400),
    ],
)
def test_requests_of_a_page_of_another_site_are_refused(
    shop: Guarded, headers: dict[str, str], status: int
) -> None:
    body = {"user": ALICE[0], "password": ALICE[1]}
    assert shop.post("/api/login", body, **headers)[0] == status
    wanted = {"topic": "copies", "value": "v"}
    cookie = shop.log_in(ALICE)
    assert shop.post("/api/produce", wanted, cookie=cookie, **headers)[0] == status


def test_a_user_whose_password_was_changed_is_logged_out(shop: Guarded) -> None:
    _, headers, _ = shop.post("/api/login", {"user": "ben", "password": "ben-secret"})
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert shop.ask("/api/overview", Cookie=cookie)[0] == 200
    admin = AdminClient(shop.config(ADMIN))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    changed = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("ben", info, b"another")]
    )
    for future in changed.values():
        future.result(20)
    assert shop.ask("/api/overview", Cookie=cookie)[0] == 401, "the password was changed"


def test_wrong_passwords_are_refused_and_five_of_them_block_their_user() -> None:
    """The error is the same for known and unknown users. After five failures of a user, the correct
    password is refused as well. Others behind the same address log in: it may be a proxy's.
    """
    shop = Guarded()
    with shop.broker:
        answers = {
            name: shop.post("/api/login", {"user": name, "password": "wrong"})
            for name in ("alice", "unknown-user", "admin", "alice=,", "zoë")
        }
        assert {status for status, _, _ in answers.values()} == {401}
        assert {answer["error"] for _, _, answer in answers.values()} == {
            "The user or the password is wrong."
        }
        for _ in range(4):
            wrong = {"user": "alice", "password": "wrong"}
            assert shop.post("/api/login", wrong)[0] == 401
        status, _, answer = shop.post("/api/login", {"user": ALICE[0], "password": ALICE[1]})
        assert status == 429 and "too many attempts" in answer["error"]
        assert shop.post("/api/login", {"user": ADMIN[0], "password": ADMIN[1]})[0] == 200


def test_the_console_shows_nothing_if_users_have_only_certificates() -> None:
    shop = Guarded()
    settings = {"barnabas.console.port": 0, "ssl.client.auth": "required"}
    shop.broker = LocalBroker(tls=True, settings=settings)
    with shop.broker:
        assert shop.ask("/api/overview")[0] == 401
        status, _, answer = shop.post("/api/login", {"user": "a", "password": "b"})
        assert (
            status == 400 and "the broker needs a listener with SCRAM or PLAIN" in answer["error"]
        )


def test_the_consoles_own_connections_count_towards_no_limit() -> None:
    shop = Guarded()
    shop.broker.settings["max.connections"] = "6"
    shop.broker.settings["max.connections.per.ip"] = "6"
    with shop.broker:
        for number in range(12):
            shop.cookies.clear()
            body = {"topic": "orders", "value": f"{number}", "transaction": number % 2 == 0}
            assert write(shop, "/api/produce", ADMIN, **body)[0] == 200
        producer = Producer(shop.config(ADMIN))
        producer.produce("orders", b"of a client")
        assert producer.flush(20) == 0
        output = "".join(shop.broker.output)
        assert "Traceback" not in output and "connections are closed" not in output, output


# --- rights -------------------------------------------------------------------------------------


def test_each_user_sees_what_it_may_describe(shop: Guarded) -> None:
    _, body = shop.get("/api/topics?internal=true", ADMIN)
    assert {"orders", "copies", "secret"} < {row["name"] for row in body["rows"]}
    assert body["user"] == "admin"
    _, body = shop.get("/api/topics?internal=true", ALICE)
    assert {row["name"] for row in body["rows"]} == {"orders", "copies"}
    assert body["totals"]["topics"] == 2 and body["totals"]["groups"] == 1
    _, body = shop.get("/api/group?group=kitchen", ALICE)
    assert {row["topic"] for row in body["rows"]} == {"orders"}
    assert "secret" not in json.dumps(shop.get("/api/overview", ALICE)[1])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/search?topic=orders", 200),
        ("/api/download?topic=orders", 200),
        ("/api/records?topic=orders&partition=0", 200),
        ("/api/search?topic=copies", 403),
        ("/api/search?topic=secret", 403),
        ("/api/download?topic=secret", 403),
        ("/api/records?topic=secret&partition=0", 403),
        ("/api/topic?topic=secret", 404),
        ("/api/partition?topic=secret&partition=0", 404),
        ("/api/settings?topic=secret", 404),
        ("/api/settings?topic=orders", 403),
        ("/api/group?group=spies", 404),
        ("/api/requests", 403),
    ],
)
def test_a_user_gets_only_what_its_acls_allow(shop: Guarded, path: str, status: int) -> None:
    got, body = shop.get(path, ALICE)
    assert got == status
    if status == 403 and "search" in path:
        topic = path.rpartition("=")[2]
        assert f"`barnabas acl add alice read topic:{topic}`" in body["error"]
    assert shop.get(path, ADMIN)[0] == 200


def test_the_audit_log_has_the_consoles_logins_and_requests(shop: Guarded) -> None:
    shop.post("/api/login", {"user": "zoe", "password": "wrong"})
    shop.get("/api/search?topic=orders", ALICE)
    shop.get("/api/search?topic=secret", ALICE)
    text = Path(shop.broker.settings["barnabas.audit.log"]).read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    of_page = [row for row in rows if row["client_id"] == "barnabas-console"]
    seen = {
        (row["principal"], row["request"], row["operation"], row["resource_name"], row["allowed"])
        for row in of_page
    }
    assert ("User:alice", "Fetch", "READ", "orders", True) in seen
    assert ("User:alice", "Fetch", "READ", "secret", False) in seen
    logins = {
        (row["principal"], row["allowed"]) for row in rows if row["operation"] == "AUTHENTICATE"
    }
    assert {("User:alice", True), ("User:ANONYMOUS", False)} <= logins
    assert {row["host"] for row in of_page} == {"127.0.0.1"}


def test_acls_users_and_quotas_without_secrets(shop: Guarded) -> None:
    _, body = shop.get("/api/security", ADMIN)
    assert ["User:alice", "read", "orders"] in [
        [row["principal"], row["operation"], row["name"]] for row in body["acls"]["rows"]
    ]
    users = {row["user"]: row["credentials"] for row in body["users"]["rows"]}
    assert users["ben"] == ["SCRAM-SHA-512, 4,096 iterations"]
    assert users["alice"] == ["barnabas.users.file"]
    assert "secret" not in json.dumps([users, body["quotas"]]).replace("User:", "")
    _, body = shop.get("/api/security", ALICE)
    for part in ("acls", "users", "quotas"):
        assert body[part]["rows"] == [] and "AUTHORIZATION_FAILED" in body[part]["note"]


def test_settings_of_a_topic(shop: Guarded) -> None:
    _, body = shop.get("/api/settings?topic=orders", ADMIN)
    rows = {row["name"]: row for row in body["settings"]}
    assert rows["retention.ms"]["value"] == "604800000" and rows["retention.ms"]["is_default"]
    assert rows["retention.ms"]["documentation"]


# --- writes -------------------------------------------------------------------------------------


def write(shop: Guarded, path: str, user: tuple[str, str], **body: Any) -> tuple[int, Any]:
    status, _, answer = shop.post(path, body, cookie=shop.log_in(user))
    return status, answer


def test_a_record_is_produced_with_the_user_s_rights(shop: Guarded) -> None:
    status, answer = write(
        shop, "/api/produce", ALICE, topic="copies", key="k", value={"base64": "/w=="},
        headers=[["trace", "1"], ["none", None]],
    )  # fmt: skip
    assert (status, answer["partition"]) == (200, 0)
    _, found = shop.get("/api/search?topic=copies", ADMIN)
    row = next(row for row in found["rows"] if row["offset"] == answer["offset"])
    assert row["value"]["base64"] == "/w==" and row["state"] == "plain"
    assert [one["key"] for one in row["headers"]] == ["trace", "none"]
    for topic, expected in (("orders", 403), ("secret", 403), ("nowhere", 403)):
        assert write(shop, "/api/produce", ALICE, topic=topic, value="v")[0] == expected
    assert write(shop, "/api/produce", ADMIN, topic="nowhere", value="v")[0] == 404


def test_a_record_in_a_transaction(shop: Guarded) -> None:
    status, answer = write(
        shop, "/api/produce", ALICE, topic="copies", value="committed", transaction=True
    )
    assert status == 200, answer
    deadline = time.monotonic() + 10
    while True:
        _, found = shop.get("/api/search?topic=copies&text=committed", ADMIN)
        if found["rows"] and found["rows"][0]["state"] == "committed":
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    status, answer = write(
        shop, "/api/produce", ("ben", "another"), topic="copies", value="v", transaction=True
    )
    assert status == 403


@pytest.mark.parametrize(
    "body",
    [
        {"value": "v"},
        {"topic": "orders", "partition": 2, "value": "v"},
        {"topic": "orders", "partition": "0", "value": "v"},
        {"topic": "orders", "value": 3},
        {"topic": "orders", "value": {"base64": "!"}},
        {"topic": "orders", "headers": {"a": "b"}},
        {"topic": "orders", "headers": [["a"]]},
    ],
)
def test_what_cannot_be_produced(shop: Guarded, body: dict[str, Any]) -> None:
    status, answer = write(shop, "/api/produce", ADMIN, **body)
    assert status == 400 and answer["error"]


def test_records_are_replayed_into_a_topic(shop: Guarded) -> None:
    body = {"topic": "orders", "to": "copies", "filter": "offset < 2", "transaction": True}
    assert write(shop, "/api/replay", ALICE, **body) == (200, {"topic": "copies", "count": 2})
    _, found = shop.get("/api/search?topic=copies&text=orders", ADMIN)
    values = [row["value"]["base64"] for row in found["rows"]]
    assert values == ["b3JkZXJzIDE=", "b3JkZXJzIDA="], "the newest first"
    for change, expected in (
        ({"topic": "secret"}, 403),
        ({"to": "orders"}, 403),
        ({"filter": "offset > 99"}, 400),
        ({"filter": "offset >"}, 400),
        ({"topic": ""}, 400),
    ):
        assert write(shop, "/api/replay", ALICE, **{**body, **change})[0] == expected


def test_records_are_written_to_each_of_several_brokers() -> None:
    shop = Guarded()
    settings = {"barnabas.console.port": 0, "barnabas.console.writes": True}
    shop.broker = LocalBroker(settings=settings, topics={"orders": 3}, brokers=3)
    with shop.broker:
        for partition in range(3):
            for is_transaction in (False, True):
                body = {"topic": "orders", "partition": partition, "value": "v"}
                status, _, answer = shop.post(
                    "/api/produce", {**body, "transaction": is_transaction}
                )
                assert (status, answer["partition"]) == (200, partition), answer
        body = {"topic": "orders", "to": "orders", "transaction": True}
        status, _, answer = shop.post("/api/replay", body)
        assert (status, answer) == (200, {"topic": "orders", "count": 6})
        assert {row["state"] for row in shop.ask("/api/search?topic=orders")[2]["rows"]} == {
            "plain", "committed",
        }  # fmt: skip


def test_nothing_is_written_where_writes_are_off() -> None:
    shop = Guarded(writes=False)
    with shop.broker:
        for path in ("/api/produce", "/api/replay"):
            status, answer = write(shop, path, ADMIN, topic="orders", to="copies", value="v")
            assert status == 403 and "--console-writes" in answer["error"]
        assert shop.get("/api/topic?topic=orders", ADMIN)[1]["writes"] is False


# --- the page -----------------------------------------------------------------------------------


def open_logged_in(opened: Page, route: str, user: tuple[str, str]) -> Any:
    page = opened.page
    page.goto(f"{opened.shop.url}/{route}")
    page.wait_for_selector("input[name=password]")
    page.fill("input[name=user]", user[0])
    page.fill("input[name=password]", user[1])
    page.keyboard.press("Enter")
    page.wait_for_selector("main h1:not(:text('Log in'))", state="attached")
    opened.complaints.clear()  # the browser logs the response with status 401
    return page


def test_a_login_leads_to_the_view_that_was_asked_for(
    window: Callable[..., Page], shop: Guarded
) -> None:
    opened = window()
    page = opened.page
    page.goto(f"{shop.url}/#/topic/orders/records?text=orders")
    page.wait_for_selector("input[name=password]")
    assert "orders" not in page.inner_text("body")
    page.fill("input[name=user]", "alice")
    page.fill("input[name=password]", "wrong")
    page.click("button:text('Log in')")
    page.wait_for_selector("text=The user or the password is wrong.")
    page.fill("input[name=password]", ALICE[1])
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('.topic-records .record').length === 3")
    assert page.evaluate("document.cookie") == ""
    page.reload()
    until(page, "document.querySelectorAll('.topic-records .record').length === 3")
    page.click("text=log out")
    page.wait_for_selector("input[name=password]")
    assert "orders" not in page.inner_text("main")
    page.reload()
    page.wait_for_selector("input[name=password]")
    opened.complaints.clear()


def test_who_types_while_a_view_is_awaited_keeps_the_focus(window: Callable[..., Page]) -> None:
    opened = window()
    page = opened.page
    page.goto(f"{opened.shop.url}/")
    page.wait_for_selector("input[name=password]")
    awaited: list[Any] = []

    def hold(route: Any) -> None:
        awaited.append(route)

    page.route("**/api/security?*", hold)
    page.goto(f"{opened.shop.url}/#/security")
    page.fill("input[name=user]", ADMIN[0])
    page.fill("input[name=password]", ADMIN[1])
    deadline = time.monotonic() + 20
    while not awaited:
        assert time.monotonic() < deadline
        page.wait_for_timeout(20)
    # the page scrolls to its top right before it would set the focus
    page.evaluate("window.scrollTo = () => { window.arrivals = (window.arrivals || 0) + 1 }")
    held, awaited = awaited, []
    for route in held:
        route.continue_()
    until(page, f"window.arrivals >= {len(held)}")
    page.unroute("**/api/security?*")
    page.keyboard.press("Enter")
    page.wait_for_selector("main h1:not(:text('Log in'))", state="attached")
    opened.complaints.clear()  # the browser logs the responses with status 401


def test_records_are_written_on_the_page(window: Callable[..., Page]) -> None:
    opened = window()
    page = open_logged_in(opened, "#/topic/copies/write", ADMIN)
    page.wait_for_selector("text=Produce a record")
    page.fill("form[data-form=produce] input[name=key]", "from the page")
    page.fill("textarea[name=value]", '{"a": 1}')
    page.fill("textarea[name=headers]", "trace: 12")
    page.check("form[data-form=produce] input[name=transaction]")
    page.click("button:text('Produce')")
    page.wait_for_selector("text=Written: copies-0 at offset")
    page.goto(f"{opened.shop.url}/#/topic/orders/write")
    page.wait_for_selector("text=Replay records")
    page.fill("form[data-form=replay] input[name=to]", "copies")
    page.fill("form[data-form=replay] input[name=filter]", "offset = 2")
    page.click("button:text('Replay')")
    page.wait_for_selector("text=1 record written to copies.")
    page.goto(f"{opened.shop.url}/#/topic/copies/records?text=from+the+page")
    until(page, "document.querySelectorAll('.topic-records .record').length === 1")


@pytest.mark.parametrize(("width", "scheme"), WIDTHS_AND_SCHEMES)
def test_the_rules_of_accessibility_hold(
    window: Callable[..., Page], shop: Guarded, scheme: str, width: int
) -> None:
    opened = window(color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    opened.page.set_viewport_size({"width": width, "height": 844})
    opened.page.goto(f"{shop.url}/")
    opened.page.wait_for_selector("input[name=password]")
    assert violations(opened.page) == []
    page = open_logged_in(opened, "#/security", ADMIN)
    for route in ("#/security", "#/topic/orders/settings?all=yes", "#/topic/orders/write"):
        page.goto(f"{shop.url}/{route}")
        page.wait_for_selector("main .card")
        page.wait_for_timeout(300)
        assert violations(page) == [], route
