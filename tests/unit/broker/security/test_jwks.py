"""Keys from a file or over HTTP, which are read again when they have changed."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from helpers.tokens import Issuer

from barnabas.broker.security.oauth import KeySet, KeySetError
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import ListenerConfig
from barnabas.daemon import jwks
from barnabas.daemon.jwks import JwksReader


def reader_of(url: str, keys: KeySet) -> JwksReader:
    (listener,) = BrokerConfig.from_properties(
        {
            "listeners": "SASL_PLAINTEXT://:9092",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "1",
        }
    ).listeners
    return JwksReader(listener, keys)


def test_an_invalid_or_missing_key_file_leaves_the_former_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, keys = tmp_path / "keys.json", KeySet()
    reader = reader_of(Issuer().write(path), keys)
    assert reader.read()
    former = keys.keys
    assert former.keys() == {"rsa", "ec"}
    for wrong in ("{", "{}", "x" * (2 << 20), "[" * 100_000):
        path.write_text(wrong)
        assert not reader.read()
    path.unlink()
    assert not reader.read()
    assert keys.keys is former
    assert caplog.text.count("the 2 former ones stay in use") == 5


class Answering(HTTPServer):
    """Serves a JWKS."""

    content = b""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Answering)
        self.send_response(200 if self.server.content else 503)
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


@contextlib.contextmanager
def served(handler: type[Handler] | None = None) -> Iterator[Answering]:
    server = Answering(("127.0.0.1", 0), handler or Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class WatchedKeys(KeySet):
    """A set of keys. `has_changed` is set when the reader has stored keys."""

    def __init__(self) -> None:
        self.has_changed = threading.Event()
        super().__init__()

    def __setattr__(self, name: str, value: object) -> None:
        """Set the event when the reader has replaced the keys."""
        super().__setattr__(name, value)
        if name == "keys" and value:
            self.has_changed.set()


def test_keys_are_read_from_a_url_until_it_responds_and_again_for_an_unknown_key() -> None:
    keys = WatchedKeys()
    with served() as server:
        reader = reader_of(f"http://127.0.0.1:{server.server_port}/keys", keys)
        reader.start()  # the server responds with 503
        server.content = json.dumps(Issuer().jwks()).encode()
        assert keys.has_changed.wait(60)
        first = keys.keys
        keys.has_changed.clear()
        server.content = json.dumps(Issuer().jwks()).encode()
        assert keys.key("unknown", 0) is None
        assert keys.has_changed.wait(60)
        assert keys.keys is not first
        reader.close()


class Paced(threading.Event):
    """An event whose wait returns immediately. `waits` has the timeout of each wait, and whether
    the event was set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[float, bool]] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Record the timeout and whether the event is set, and return immediately."""
        assert timeout is not None
        self.waits.append((timeout, self.is_set()))
        return self.is_set()


class PacedReader(JwksReader):
    """A reader whose reads have the given outcomes, and which is closed after the last of them."""

    def __init__(self, listener: ListenerConfig, outcomes: list[bool]) -> None:
        super().__init__(listener, KeySet())
        self.asked = self._is_asked = Paced()
        self.closed = self._is_closed = Paced()
        self._outcomes = outcomes

    def read(self) -> bool:
        """Return the next outcome from the given list. The last one closes the reader."""
        outcome = self._outcomes.pop(0)
        if not self._outcomes:
            self.closed.set()
        return outcome

    def run(self) -> None:
        self._run()


def paced(outcomes: list[bool]) -> PacedReader:
    prefix = "sasl.oauthbearer.jwks.endpoint"
    (listener,) = BrokerConfig.from_properties(
        {
            "listeners": "SASL_PLAINTEXT://:9092",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}.url": "file:///keys",
            f"{prefix}.refresh.ms": "60000",
            f"{prefix}.retry.backoff.ms": "1000",
            f"{prefix}.retry.backoff.max.ms": "3000",
        }
    ).listeners
    return PacedReader(listener, outcomes)


@pytest.mark.parametrize("is_read", [True, False])
def test_an_unknown_key_causes_one_additional_read(is_read: bool) -> None:
    """If each unknown key caused a read, forged tokens would cause one in every backoff period."""
    reader = paced([is_read, True, True])
    reader.asked.set()
    reader.run()
    expected = [(60.0, True), (60.0, False), (60.0, False)]
    assert reader.asked.waits == (expected if is_read else expected[1:])


def test_the_backoff_between_attempts_doubles_up_to_its_maximum() -> None:
    reader = paced([False, False, False, True, False, False])
    reader.run()
    # The backoff starts at 1 s and is at most 3 s. After a success it starts at 1 s again.
    assert [timeout for timeout, _ in reader.closed.waits] == [1.0, 2.0, 3.0, 1.0, 1.0, 2.0]


def test_an_answer_that_is_not_http_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as peer:
                peer.recv(1 << 16)
                peer.sendall(b"220 mail.example ESMTP\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert not reader_of(f"http://127.0.0.1:{listening.getsockname()[1]}/keys", KeySet()).read()
        thread.join()
    assert "the 0 former ones stay in use: 220 mail.example" in caplog.text


def test_a_url_of_another_kind() -> None:
    with pytest.raises(KeySetError, match="https"):
        reader_of("ftp://issuer.example/keys", KeySet())


def test_no_password_of_an_address_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    for url in ("http://ann:her-password@127.0.0.1:9/keys", "http://ann:her-password@ex.org/keys"):
        assert not reader_of(url, KeySet()).read()
    assert "http://[hidden]@127.0.0.1:9/keys cannot be read" in caplog.text
    assert "her-password" not in caplog.text


@pytest.mark.parametrize("answer", ["drip", "endless", "deep", "elsewhere"])
def test_an_endpoint_without_bounds_leaves_the_former_keys(
    answer: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jwks, "TIMEOUT_S", 0.3 if answer == "drip" else 30.0)
    is_over = threading.Event()

    class Hostile(Handler):
        def do_GET(self) -> None:
            self.send_response(302 if answer == "elsewhere" else 200)
            if answer == "elsewhere":
                self.send_header("Location", "ftp://127.0.0.1/keys")
            self.end_headers()
            if answer == "deep":
                self.wfile.write(b'{"keys":' + b"[" * 500 + b"]" * 500 + b"}")
            while answer in ("drip", "endless") and not is_over.wait(0.02 * (answer == "drip")):
                try:
                    self.wfile.write(b" " * (1 if answer == "drip" else 1 << 16))
                except OSError:
                    return

    with served(Hostile) as server:
        keys = KeySet()
        assert not reader_of(f"http://127.0.0.1:{server.server_port}/keys", keys).read()
        is_over.set()
    said = {"drip": "timed out", "endless": "more than 1,048,576", "deep": "deep"}
    assert said.get(answer, "another scheme") in caplog.text


def test_a_reader_is_closed_while_its_endpoint_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        reader = reader_of(f"http://127.0.0.1:{listening.getsockname()[1]}/keys", KeySet())
        reader.start()
        peer, _ = listening.accept()
        with peer:
            peer.recv(1 << 16)
            reader.close()
        assert not reader._thread.is_alive()
