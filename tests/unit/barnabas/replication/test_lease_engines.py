"""The engines of the lease, with small servers that respond like etcd and Kubernetes."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from helpers.places import TESTS

from barnabas.replication.leadership import (
    ABSENT,
    Conflict,
    Found,
    Holding,
    Leadership,
    LeaseSettings,
    Node,
    Read,
    Role,
    Unknown,
    Write,
    Written,
)
from barnabas.replication.lease_engine import EtcdEngine, KubernetesEngine, LeaseEngine
from barnabas.replication.lease_exchange import (
    ANNOTATION,
    EngineSettings,
    EtcdExchange,
    HttpAnswer,
    HttpFailure,
    KubernetesExchange,
)
from barnabas.replication.lease_record import LeaseRecord, NodeAddresses
from barnabas.replication.rim.lease_keeper import LeaseKeeper, lease_ms

TLS_FILES = TESTS / "fixtures" / "tls"
RECORDS = [
    LeaseRecord("c", 1, "s", epoch, frozenset({1}), {}, str(epoch)).encode() for epoch in (1, 2)
]


class Handler(BaseHTTPRequestHandler):
    """A handler that stores one value with a revision, and speaks the protocols of both engines."""

    protocol_version = "HTTP/1.1"
    server: Any

    def answer(self, body: Any, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def put(self, version: str, value: Any) -> bool:
        state = self.server.state
        if version != str(state["revision"]):
            return False
        state["revision"], state["value"] = state["revision"] + 1, value
        return True

    def do_POST(self) -> None:
        state, body = self.server.state, self.body()
        if self.path.endswith("/authenticate"):
            self.answer({"token": "of " + body["name"]})
        elif self.path.startswith("/v3") and self.headers["Authorization"] != "of root":
            self.answer({"message": "no token"}, 401)
        elif self.path == "/v3/kv/range":
            pair = {"mod_revision": str(state["revision"]), "value": state["value"]}
            self.answer({"kvs": [pair]} if state["revision"] else {})
        elif self.path == "/v3/kv/txn":
            (compare,), (success,) = body["compare"], body["success"]
            written = self.put(compare["mod_revision"], success["request_put"]["value"])
            revision = {"revision": str(state["revision"])}
            self.answer({"header": revision, **({"succeeded": True} if written else {})})
        else:
            self.lease(self.put("0", body), body)

    def do_GET(self) -> None:
        state = self.server.state
        if state["revision"]:
            self.lease(True, state["value"])
        else:
            self.answer({}, 404)

    def do_PUT(self) -> None:
        body = self.body()
        self.lease(self.put(body["metadata"]["resourceVersion"], body), body)

    def lease(self, is_done: bool, lease: Any) -> None:
        version = str(self.server.state["revision"])
        metadata = {**lease["metadata"], "resourceVersion": version}
        self.answer({**lease, "metadata": metadata} if is_done else {}, 200 if is_done else 409)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def handler() -> type[Handler]:
    return Handler


@pytest.fixture
def timeout_ms() -> int:
    return 10_000


@pytest.fixture
def server(handler: type[Handler]) -> Iterator[Any]:
    one: Any = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    one.state, one.failure = {"revision": 0, "value": ""}, ""
    threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
    yield one
    one.shutdown()
    one.server_close()


@pytest.fixture(params=["etcd", "kubernetes"])
def engine(request: Any, server: Any, tmp_path: Path, timeout_ms: int) -> Iterator[LeaseEngine]:
    (tmp_path / "token").write_text("t\n")
    settings = EngineSettings(
        (f"http://127.0.0.1:{server.server_port}",), "x", timeout_ms, 30_000,
        user="root", password="p", token_file=str(tmp_path / "token"),
    )  # fmt: skip
    one = EtcdEngine(settings) if request.param == "etcd" else KubernetesEngine(settings)
    yield one
    one.close()


def test_a_record_is_replaced_only_where_its_version_is_the_one_that_was_read(
    engine: LeaseEngine,
) -> None:
    assert engine.ask(Read()) == Found(ABSENT, b"")
    assert engine.ask(Write(ABSENT, RECORDS[0])) == Written("1")
    assert engine.ask(Write(ABSENT, RECORDS[1])) == Conflict()
    assert engine.ask(Read()) == Found("1", RECORDS[0])
    assert engine.ask(Write("1", RECORDS[1])) == Written("2")
    assert engine.ask(Write("1", RECORDS[0])) == Conflict()
    assert engine.ask(Read()) == Found("2", RECORDS[1])


def test_people_see_who_leads_in_the_lease_of_kubernetes(server: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    url = f"http://127.0.0.1:{server.server_port}"
    settings = EngineSettings((url,), "x", 9000, 3000, token_file=str(tmp_path / "token"))
    engine = KubernetesEngine(settings)
    engine.ask(Write(ABSENT, RECORDS[0]))
    engine.close()
    lease = server.state["value"]
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == ("1", 3)
    assert lease["metadata"]["annotations"][ANNOTATION].encode() == RECORDS[0]


def test_a_lease_keeps_what_other_programs_have_written_in_it(server: Any, tmp_path: Path) -> None:
    """An operator may add labels and annotations before the first node writes, or between two
    writes.
    """
    (tmp_path / "token").write_text("t")
    url = f"http://127.0.0.1:{server.server_port}"
    settings = EngineSettings((url,), "x", 9000, 3000, token_file=str(tmp_path / "token"))
    engine = KubernetesEngine(settings)
    for number in range(3):
        metadata = server.state["value"]["metadata"] if number else {"name": "x"}
        labels = {**metadata.get("labels", {}), f"team{number}": "a"}
        notes = {**metadata.get("annotations", {}), f"note{number}": "n"}
        found = {**metadata, "labels": labels, "annotations": notes}
        server.state["value"] = {"metadata": found}
        server.state["revision"] += 1
        version = str(server.state["revision"])
        assert engine.ask(Read()) == Found(version, RECORDS[0] if number else b"")
        assert isinstance(engine.ask(Write(version, RECORDS[0])), Written)
        written = server.state["value"]["metadata"]
        assert written["labels"] == labels
        assert written["annotations"] == {**notes, ANNOTATION: RECORDS[0].decode()}
    engine.close()


def test_an_endpoint_that_refuses_the_connection_is_passed_over(server: Any) -> None:
    """If one of three endpoints is down, renewals succeed, and no warning is logged."""
    url = f"http://127.0.0.1:{server.server_port}"
    endpoints = ("http://127.0.0.1:1", "http://127.0.0.1:2", url)
    engine = EtcdEngine(EngineSettings(endpoints, "x", 9000, 3000, user="root"))
    assert engine.ask(Read()) == Found(ABSENT, b"")
    assert engine.last_error == ""
    engine.close()


def test_where_all_refuse_that_is_unknown() -> None:
    endpoints = tuple(f"http://127.0.0.1:{port}" for port in (1, 2, 3))
    engine = EtcdEngine(EngineSettings(endpoints, "x", 9000, 3000))
    assert engine.ask(Read()) == Unknown()
    assert engine.last_error.startswith(endpoints[2])


def test_one_that_does_not_answer_is_unknown_and_the_next_endpoint_is_asked(server: Any) -> None:
    """The endpoint that does not respond may have carried out the request, so its result is
    unknown.
    """
    url = f"http://127.0.0.1:{server.server_port}"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        engine = EtcdEngine(EngineSettings((silent_url, url), "x", 1000, 3000, user="root"))
        assert engine.ask(Read()) == Unknown()
        assert engine.last_error.startswith(silent_url)
        assert engine.ask(Read()) == Found(ABSENT, b"")
        engine.close()


class Failing(Handler):
    """A server that responds, unless a test has set a failure for the next response."""

    def answer(self, body: Any, status: int = 200) -> None:
        """Answer with the failure that the test has chosen, once."""
        failure, self.server.failure = self.server.failure, ""
        if failure == "silence":
            self.server.is_over.wait(20)
        elif failure == "half an answer":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        elif failure == "another protocol":
            self.wfile.write(b"\x15\x03\x01\0\x02\x02\n\r\n\r\n")
        elif failure == "no JSON":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")
        elif failure == "deep JSON":
            super().answer(json.loads("[" * 100 + "]" * 100), status)
        elif failure == "endless":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with contextlib.suppress(OSError):
                while not self.server.is_over.is_set():
                    self.wfile.write(b" " * (1 << 20))
        elif failure == "a drip":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            with contextlib.suppress(OSError):
                while not self.server.is_over.wait(0.05):
                    self.wfile.write(b" ")
        elif failure == "a token with a line":
            super().answer({**body, "token": "t\r\nX-Own: 1"}, status)
        elif failure != "no answer":
            super().answer(body, status)
        self.close_connection = bool(failure)


@pytest.mark.parametrize("handler", [Failing])
@pytest.mark.parametrize(
    ("failure", "timeout_ms"),
    [
        ("silence", 500),
        ("no answer", 10_000),
        ("half an answer", 10_000),
        ("another protocol", 10_000),
        ("no JSON", 10_000),
        ("closed afterwards", 10_000),
        ("deep JSON", 10_000),
        ("endless", 60_000),
        ("a drip", 500),
    ],
)
def test_after_any_failure_the_next_request_to_the_only_endpoint_is_answered(
    engine: LeaseEngine, server: Any, failure: str
) -> None:
    """Otherwise the lease would no longer be renewed, and clients would get no responses."""
    server.is_over = threading.Event()
    assert engine.ask(Read()) == Found(ABSENT, b"")
    server.failure = failure
    if failure == "closed afterwards":
        assert engine.ask(Read()) == Found(ABSENT, b"")
    assert engine.ask(Read()) == Unknown()
    assert engine.ask(Read()) == Found(ABSENT, b"")
    server.is_over.set()


@pytest.mark.parametrize("handler", [Failing])
def test_a_token_that_cannot_be_a_header_is_not_kept(engine: LeaseEngine, server: Any) -> None:
    """Otherwise no later request could be sent."""
    server.failure = "a token with a line"
    if isinstance(engine, EtcdEngine):
        assert engine.ask(Read()) == Unknown()
        assert "cannot be a header" in engine.last_error
        assert engine.ask(Read()) == Unknown()  # the server has closed the connection
    server.failure = ""
    assert engine.ask(Read()) == Found(ABSENT, b"")


@pytest.mark.parametrize("handler", [Failing])
def test_a_keeper_stops_while_its_engine_does_not_answer(engine: LeaseEngine, server: Any) -> None:
    """The engine's timeout may be minutes, and SIGTERM is obeyed before."""
    server.is_over, server.failure = threading.Event(), "silence"
    its = Node(1, NodeAddresses("a:1", {}), "s")
    leadership = Leadership(its, LeaseSettings(30_000, 500), Holding.NOTHING, lease_ms())
    keeper = LeaseKeeper(leadership, engine)
    keeper.start()
    deadline = time.monotonic() + 20
    while server.failure and time.monotonic() < deadline:
        time.sleep(0.01)
    keeper.stop()
    assert not keeper._thread.is_alive()
    server.is_over.set()


@pytest.mark.parametrize(
    ("certificate", "authority", "is_trusted"),
    [
        ("server.pem", "ca.pem", True),
        ("server.pem", None, False),
        ("server.pem", "elsewhere.pem", False),
        ("elsewhere.pem", "ca.pem", False),
    ],
)
def test_an_engine_is_believed_by_its_name_and_the_authority_of_the_settings(
    server: Any, certificate: str, authority: str | None, is_trusted: bool
) -> None:
    """A server that impersonates the engine could decide which node is the leader."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS_FILES / certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    engine = EtcdEngine(
        EngineSettings(
            (f"https://127.0.0.1:{server.server_port}",), "x", 9000, 30_000, user="root",
            ca_file=None if authority is None else str(TLS_FILES / authority),
        )
    )  # fmt: skip
    assert engine.ask(Read()) == (Found(ABSENT, b"") if is_trusted else Unknown())
    assert ("certificate" in engine.last_error.lower()) is not is_trusted
    engine.close()


def test_what_cannot_be_read_is_unknown(server: Any) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    engine = EtcdEngine(EngineSettings((url,), "x", 9000, 3000, user="root"))
    server.state.update(revision=1, value=base64.b64encode(b"x").decode()[:1])
    assert engine.ask(Read()) == Unknown()
    engine.close()
    assert "cannot be read" in engine.last_error


def test_a_keeper_that_fails_says_so(
    engine: LeaseEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the node would wait forever, and the log would give no reason."""
    its = Node(1, NodeAddresses("a:1", {}), "s")
    leadership = Leadership(its, LeaseSettings(30_000, 500), Holding.NOTHING, lease_ms())
    keeper = LeaseKeeper(leadership, engine)
    notified = threading.Event()
    keeper.on_change = notified.set
    monkeypatch.setattr(engine, "ask", lambda request: 1 / 0)
    keeper.start()
    assert notified.wait(20)
    keeper.stop()
    assert "ZeroDivisionError" in str(keeper.failure)
    assert "the lease is no longer renewed" in caplog.text


def test_a_keeper_leads_takes_a_standby_in_and_gives_up(engine: LeaseEngine) -> None:
    its = Node(1, NodeAddresses("a:1", {}), "s")
    leadership = Leadership(its, LeaseSettings(30_000, 500), Holding.NOTHING, lease_ms())
    keeper = LeaseKeeper(leadership, engine)
    keeper.set_holding(Holding.WHOLE)
    keeper.start()
    ends_s = time.monotonic() + 20
    keeper.set_opened("c", 1)
    keeper.add_node(2, NodeAddresses("b:1", {}))
    keeper.want_in_sync([2])
    while keeper.in_sync != {1, 2} and time.monotonic() < ends_s:
        keeper.wait(0.1)
        keeper.want_in_sync([2])
    assert keeper.may_answer()
    assert keeper.may_be_in_sync() == keeper.in_sync == {1, 2}
    assert keeper.nodes.keys() == {1, 2}
    assert keeper.leader_epoch == 1
    keeper.begin_release()
    keeper.wait_until_released(20)
    assert keeper.role is Role.RELEASED
    assert not keeper.may_answer()
    assert keeper.record is not None
    assert keeper.record.leader is None
    assert (keeper.trouble, keeper.failure) == ("", None)
    keeper.stop()


def test_a_login_that_etcd_does_not_know_any_more_is_made_again() -> None:
    """A member of etcd keeps its tokens in memory and loses them at a restart."""
    exchange = EtcdExchange(EngineSettings(("http://a",), "x", 1000, 3000, user="u"))
    login, token, gone = (
        "/v3/auth/authenticate",
        HttpAnswer(200, {"token": "t"}),
        HttpAnswer(401, {}),
    )
    paths = []
    for answers in ([token, gone], [token, HttpAnswer(200, {})]):
        asking = exchange.ask(Read())
        paths.append(next(asking).path)
        assert asking.send(answers[0]).headers == {"Authorization": "t"}
        with pytest.raises(StopIteration) as end:
            asking.send(answers[1])
    assert paths == [login, login]
    assert end.value.value == Found(ABSENT, b"")


def test_of_endpoints_that_refuse_each_is_asked_once() -> None:
    exchange = EtcdExchange(EngineSettings(("http://a", "http://b"), "x", 1000, 3000))
    refused, asked = HttpFailure("refused", is_refused=True), []
    asking = exchange.ask(Read())
    asked.append(next(asking).endpoint)
    asked.append(asking.send(refused).endpoint)
    with pytest.raises(StopIteration) as end:
        asking.send(refused)
    assert asked == ["http://a", "http://b"]
    assert (end.value.value, exchange.last_error) == (Unknown(), "http://b: refused")


@pytest.mark.parametrize(
    "content", [None, 7, "x", [], [7], {"kvs": 7}, {"kvs": [7]}, {"kvs": [{}]}, {"metadata": 7},
                {"metadata": {"annotations": [7], "resourceVersion": "1"}},
                {"header": [], "succeeded": 1}],
)  # fmt: skip
def test_an_answer_of_any_form_raises_nothing(content: object) -> None:
    """If the keeper raised an error, it would lose the lease, and its node could not be the leader
    any more.
    """
    settings = EngineSettings(("http://a",), "x", 1000, 3000)
    engines = (
        EtcdExchange(settings),
        KubernetesExchange(settings, lambda: "t", lambda: datetime(2026, 1, 1, tzinfo=UTC)),
    )
    for exchange in engines:
        for request in (Read(), Write("1", RECORDS[0])):
            asking = exchange.ask(request)
            next(asking)
            with pytest.raises(StopIteration) as end:
                asking.send(HttpAnswer(200, content))
            assert (end.value.value == Unknown()) is bool(exchange.last_error), (exchange, request)


@pytest.mark.parametrize(
    "failure", [HttpFailure("silence"), HttpAnswer(500, {"error": "no quorum"}), HttpAnswer(200, 7)]
)
def test_the_reason_of_an_unknown_answer_is_forgotten_with_the_next_answer(
    failure: HttpAnswer | HttpFailure,
) -> None:
    """Otherwise the log would still give this reason long after the engine has recovered."""
    exchange = EtcdExchange(EngineSettings(("http://a",), "x", 1000, 3000))
    for answer, is_known in ((failure, False), (HttpAnswer(200, {}), True), (failure, False)):
        asking = exchange.ask(Read())
        next(asking)
        with pytest.raises(StopIteration) as end:
            asking.send(answer)
        assert (end.value.value == Found(ABSENT, b"")) is is_known
        assert (exchange.last_error == "") is is_known


def test_a_write_that_may_have_been_sent_is_not_sent_again() -> None:
    """The first endpoint may carry out the write. The second endpoint would then report a
    conflict.
    """
    exchange = EtcdExchange(EngineSettings(("http://a", "http://b"), "x", 1000, 3000))
    asking = exchange.ask(Write("1", b"{}"))
    next(asking)
    with pytest.raises(StopIteration) as end:
        asking.send(HttpFailure("reset by peer"))
    assert end.value.value == Unknown()
    assert next(exchange.ask(Read())).endpoint == "http://b"


def test_a_record_that_cannot_be_read_ends_the_keeping_of_the_lease() -> None:
    now_ms = 1000
    leadership = Leadership(
        Node(1, NodeAddresses("", {}), "s"), LeaseSettings(3000, 300), Holding.WHOLE, now_ms
    )
    engine: Any = None  # this test sends no request
    keeper = LeaseKeeper(leadership, engine, lambda: now_ms)
    changes: list[str] = []
    keeper.on_change = lambda: changes.append("changed")
    assert keeper.next_request() == Read()
    keeper.take_answer(Found("1", b"something else"))
    assert keeper.failure is not None
    assert keeper.next_request() is None
    assert changes == ["changed"]
