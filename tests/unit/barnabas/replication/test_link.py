"""The leader's port for its standby, on real sockets and with connections of strangers. The leader
has no broker.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.standby_pair import SECRET
from sim.disk import SimDisk

from barnabas.broker.settings.config import BrokerConfig
from barnabas.certificates import make_certificates
from barnabas.replication import admission
from barnabas.replication.following import Following
from barnabas.replication.leading import Leading, ReplicationSettings
from barnabas.replication.replicated_disk import ReplicatedDisk
from barnabas.replication.rim import leader_endpoint
from barnabas.replication.rim.link_security import (
    LinkSecurityError,
    check_address,
    check_secret,
    has_tls,
    leaders_tls,
    standbys_tls,
)
from barnabas.replication.rim.standby import Standby
from barnabas.replication.wire import NONCE_BYTES, VERSION, WireError, frame

NONCE = b"n" * NONCE_BYTES
PATIENCE_S = 60
HELLO = frame(["hello", VERSION, NONCE])


def new_disk() -> SimDisk:
    disk = SimDisk(random.Random(0), lambda: 0)
    disk.mkdir("/x")
    return disk


class Leader:
    """A leader without a broker. `leading` and `endpoint` are the parts of a server that belong to
    the link, and `now_ms` is the leader's clock.
    """

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.now_ms = 0
        self.peers: list[Peer] = []
        disk = ReplicatedDisk(new_disk(), "/x")
        settings = ReplicationSettings(True, True, 600, SECRET)
        self.leading = Leading(disk, "/x", settings, lambda: None)
        server: Any = SimpleNamespace(
            leading=self.leading, catch_up_rate=0, now_ms=lambda: self.now_ms
        )
        self.endpoint = leader_endpoint._Endpoint(
            server,
            disk,
            socket.create_server(("127.0.0.1", 0), backlog=1000),
            asyncio.get_running_loop(),
            None if config is None else leaders_tls(config),
        )

    async def connect(self, tls: ssl.SSLContext | None = None) -> Peer:
        host, port = self.endpoint.address
        name = None if tls is None else "127.0.0.1"
        peer = Peer(*await asyncio.open_connection(host, port, ssl=tls, server_hostname=name))
        self.peers.append(peer)
        return peer

    async def until(self, is_so: Any) -> None:
        """Wait until the condition is true. Fails after PATIENCE_S."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():  # noqa: ASYNC110 - no event is set for the condition
                await asyncio.sleep(0.01)


class Peer:
    """The other end of a connection to the leader."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def follow(self, secret: str = SECRET) -> None:
        """Act as a standby until the connection ends."""
        following = Following(new_disk(), "/x", secret, NONCE, lambda: None)
        self.writer.write(following.greeting())
        while data := await self.reader.read(65536):
            for answer in following.on_bytes(data):
                self.writer.write(answer)

    async def is_ended(self) -> bool:
        """Read until the leader closes the connection. Fails if the leader does not close it."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            pass
        return True


@asynccontextmanager
async def led(config: BrokerConfig | None = None) -> AsyncIterator[Leader]:
    """A leader's endpoint on a free port. At the end, its tasks and connections are closed."""
    leader = Leader(config)
    tasks = set(asyncio.all_tasks())
    try:
        yield leader
    finally:
        leader.endpoint.close()
        mine = asyncio.all_tasks() - tasks
        for task in mine:
            task.cancel()
        for peer in leader.peers:
            peer.writer.transport.abort()
        await asyncio.gather(*mine, return_exceptions=True)
        for _ in range(5):  # lets the callbacks of closed transports run
            await asyncio.sleep(0)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_standby_is_admitted_while_strangers_hold_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(admission, "MOST_GREETING", 8)

    async def test() -> None:
        async with led() as leader:
            strangers = [await leader.connect() for _ in range(30)]
            for stranger in strangers[::2]:
                # the last message for which a stranger needs no secret
                stranger.writer.write(HELLO)
            standby = asyncio.create_task((await leader.connect()).follow())
            await leader.until(lambda: leader.leading.follows)
            for stranger in strangers[:20]:
                assert await stranger.is_ended()
            later = [await leader.connect() for _ in range(30)]
            await leader.until(lambda: len(leader.endpoint.admission.greeting) == 8)
            assert leader.leading.follows, (
                "new strangers replace earlier strangers, not the standby"
            )
            assert not standby.done() and later

    run(test())
    assert (
        caplog.text.count("to barnabas.replication.port ended before its standby was accepted") == 1
    )


def test_a_standby_is_admitted_while_strangers_reconnect_continuously(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The leader logs at most one line a minute about such connections, with their number."""
    caplog.set_level(logging.INFO)

    async def stranger(leader: Leader) -> None:
        while True:
            peer = await leader.connect()
            peer.writer.write(frame(["proof", b"", 1, "", {}]))
            await peer.is_ended()
            peer.writer.close()
            leader.peers.remove(peer)

    async def test() -> None:
        async with led() as leader:
            strangers = [asyncio.create_task(stranger(leader)) for _ in range(10)]
            for _ in range(3):
                standby = asyncio.create_task((await leader.connect()).follow())
                await leader.until(lambda: leader.leading.follows)
                standby.cancel()
                assert leader.endpoint.admission.standby is not None
                leader.endpoint.admission.standby.end("it is to come again")
                await leader.until(lambda: leader.endpoint.admission.standby is None)
            ended = leader.endpoint._lines._rows["refused", ""]
            before = len(caplog.records)
            await leader.until(lambda: ended[1] > 50)
            assert len(caplog.records) == before
            leader.now_ms += 60_000
            await leader.until(lambda: "more connections to barnabas" in caplog.text)
            for one in strangers:
                one.cancel()

    run(test())


def test_a_connection_that_does_not_prove_the_secret_in_time_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leader_endpoint, "GREETING_MS", 50)

    async def test() -> None:
        async with led() as leader:
            silent, greets, wrong = [await leader.connect() for _ in range(3)]
            greets.writer.write(HELLO)
            follows = asyncio.create_task(wrong.follow("another"))
            assert await silent.is_ended() and await greets.is_ended()
            with pytest.raises(Exception, match="has another"):
                await follows
            wrong.writer.close()
            await leader.until(lambda: not leader.endpoint.admission.greeting)
            standby = asyncio.create_task((await leader.connect()).follow())
            await leader.until(lambda: leader.leading.follows)
            # twice as long as a connection may stay without a proof of the secret
            await asyncio.sleep(0.1)
            assert not standby.done() and leader.leading.follows

    run(test())
    assert "it had not shown the secret within" in caplog.text


# --- TLS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certs")
    make_certificates(directory)
    return directory


def secured(certs: Path, **settings: str) -> BrokerConfig:
    """Settings with a certificate of the test's authority."""
    return BrokerConfig.from_properties(
        {
            "ssl.keystore.location": str(certs / "broker.pem"),
            "ssl.truststore.location": str(certs / "ca.pem"),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_a_standby_follows_over_tls(certs: Path, client_auth: str) -> None:
    config = secured(certs, ssl_client_auth=client_auth)

    async def test() -> None:
        async with led(config) as leader:
            standby = asyncio.create_task((await leader.connect(standbys_tls(config))).follow())
            await leader.until(lambda: leader.leading.follows)
            leader.endpoint.close()
            async with asyncio.timeout(PATIENCE_S):
                await standby  # the task ends once TLS is shut down
                await leader.endpoint.ended
            # the endpoint is already closed, so the end of `led` must not close it again
            leader.endpoint.close = lambda: None  # type: ignore[method-assign]

    run(test())


@pytest.mark.parametrize("has_tls", [False, True])
def test_the_port_refuses_a_second_standby_with_a_reason_and_keeps_the_first(
    has_tls: bool, certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = secured(certs) if has_tls else settings()

    async def test() -> None:
        async with led(config) as leader:
            first = asyncio.create_task((await leader.connect(standbys_tls(config))).follow())
            await leader.until(lambda: leader.leading.follows)
            link = leader.leading.link
            with pytest.raises(WireError, match="it refuses this standby: another standby is conn"):
                await (await leader.connect(standbys_tls(config))).follow()
            await leader.until(lambda: "another standby is connected" in caplog.text)
            assert leader.leading.link is link and not first.done()

    run(test())


def test_a_connection_that_does_not_complete_the_tls_handshake_is_closed(
    certs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leader_endpoint, "GREETING_MS", 1000)
    config = secured(certs)

    async def test() -> None:
        async with led(config) as leader:
            silent, plain = await leader.connect(), await leader.connect()
            plain.writer.write(HELLO)
            assert await plain.is_ended()
            # this context does not trust the test's authority
            context = ssl.create_default_context()
            with pytest.raises(ssl.SSLError):
                await leader.connect(context)
            assert await silent.is_ended()
            await leader.until(lambda: not leader.endpoint.admission.greeting)
            standby = asyncio.create_task((await leader.connect(standbys_tls(config))).follow())
            await leader.until(lambda: leader.leading.follows)
            assert not standby.done()

    run(test())
    assert "TLS: " in caplog.text


def test_a_standby_logs_why_it_cannot_follow(
    certs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One leader uses TLS, while its standby does not. Another leader has a certificate from an
    authority that its standby does not know.
    """
    make_certificates(tmp_path / "foreign")

    def follow(leader: Leader, config: BrokerConfig) -> None:
        standby = Standby(config, leader.endpoint.address)
        try:
            assert not standby.carry_out(standby.steps.follow())
        finally:
            standby._lock.release()

    async def test() -> None:
        async with led(secured(certs)) as leader:
            plain = BrokerConfig.from_properties({"log.dirs": str(tmp_path / "a")})
            await asyncio.to_thread(follow, leader, plain)
            foreign = secured(tmp_path / "foreign", log_dirs=str(tmp_path / "b"))
            await asyncio.to_thread(follow, leader, foreign)

    run(test())
    assert "need the same barnabas.replication.security.protocol" in caplog.text
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
    assert (
        "ssl.truststore.location must have signed a certificate for the leader's address"
        in caplog.text
    )


# --- settings -----------------------------------------------------------------------------------


def settings(**wanted: str) -> BrokerConfig:
    known = {name.replace("_", "."): value for name, value in wanted.items()}
    return BrokerConfig.from_properties(known)


@pytest.mark.parametrize("secret", [None, "", "  "])
def test_replication_without_a_secret_is_refused(secret: str | None) -> None:
    wanted = {} if secret is None else {"barnabas_replication_secret": secret}
    with pytest.raises(LinkSecurityError, match=r"barnabas\.replication\.secret is not set"):
        check_secret(settings(**wanted))
    check_secret(settings(barnabas_replication_secret="s"))


PLAIN: dict[str, str] = {}
SSL = {"barnabas_replication_security_protocol": "SSL"}
KEY, TRUST = {"ssl_keystore_location": "k.pem"}, {"ssl_truststore_certificates": "PEM"}
NOT_SSL = {"barnabas_replication_security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("wanted", "is_tls"),
    [(PLAIN, False), (SSL, True), (KEY, True), (TRUST, True), (KEY | NOT_SSL, False)],
)
def test_the_link_uses_tls_with_keys_or_by_setting_and_is_local_without_tls(
    wanted: dict[str, str], is_tls: bool
) -> None:
    config = settings(**wanted)
    assert has_tls(config) is is_tls
    for host in ("127.0.0.1", "127.1.2.3", "localhost", "::1"):
        check_address(config, "x", host)
    for host in ("10.0.0.1", "0.0.0.0", "", "::", "127.example.com", "db", "localhost.example"):
        if is_tls:
            check_address(config, "x", host)
        else:
            with pytest.raises(LinkSecurityError, match="would not be encrypted"):
                check_address(config, "x", host)
