"""TLS contexts from settings, and a socket that uses TLS."""

from __future__ import annotations

import contextlib
import datetime
import errno
import logging
import os
import shutil
import socket
import ssl
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID
from helpers.waiting_input import has_input

from barnabas.broker.audit import ANONYMOUS
from barnabas.broker.rim.certificate_dates import faults_of_dates, validity
from barnabas.broker.rim.tls import TlsError, TlsListener, make_context
from barnabas.broker.security.principals import PrincipalMapper
from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.setting import Kind
from barnabas.certificates import make_certificates

PASSWORD = "a-secret"


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates, and two files that are no store: java.p12, which begins as Java's own format,
    and ca.der.
    """
    directory = tmp_path_factory.mktemp("certs")
    make_certificates(directory)
    (directory / "java.p12").write_bytes(bytes.fromhex("feedfeed00000002"))
    authority = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    (directory / "ca.der").write_bytes(authority.public_bytes(serialization.Encoding.DER))
    return directory


def in_pkcs12(certs: Path, target: Path, *, with_key: bool) -> str:
    """Write a PKCS12 store with the authority's certificate and, if `with_key`, the broker's key.
    Gives: the path.
    """
    key = serialization.load_pem_private_key((certs / "broker-key.pem").read_bytes(), None)
    certificate = x509.load_pem_x509_certificate((certs / "broker-cert.pem").read_bytes())
    authority = x509.load_pem_x509_certificate((certs / "ca.pem").read_bytes())
    target.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"broker",
            key if with_key else None,  # type: ignore[arg-type]
            certificate if with_key else None,
            [authority],
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )
    )
    return str(target)


# --- settings -----------------------------------------------------------------------------------


def test_a_private_key_is_not_written_to_a_directory_while_it_is_loaded(
    certs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ssl` reads keys only from files, so the key is in a memory file if the system has such
    files.
    """
    store = in_pkcs12(certs, tmp_path / "broker.p12", with_key=True)
    settings = {"ssl.keystore.location": store, "ssl.keystore.password": PASSWORD}
    files = []

    def noted(*arguments: Any, **options: Any) -> Any:
        file = NamedTemporaryFile(*arguments, **options)  # noqa: SIM115
        files.append((file.name, stat.S_IMODE(os.stat(file.name).st_mode)))
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", noted)
    make_context(settings)
    assert files == [] or not hasattr(os, "memfd_create")
    monkeypatch.delattr(os, "memfd_create", raising=False)
    make_context(settings)
    (path, mode) = files[-1]
    assert mode == 0o600 and not os.path.exists(path)


def test_a_key_store_may_be_pem_pkcs12_or_the_text_of_settings(certs: Path, tmp_path: Path) -> None:
    make_context({"ssl.keystore.location": str(certs / "broker.pem")})
    store = in_pkcs12(certs, tmp_path / "broker.p12", with_key=True)
    make_context({"ssl.keystore.location": store, "ssl.keystore.password": PASSWORD})
    make_context(
        {
            "ssl.keystore.key": (certs / "broker-key.pem").read_text(),
            "ssl.keystore.certificate.chain": (certs / "broker-cert.pem").read_text(),
        }
    )


def test_an_encrypted_key_needs_its_password(certs: Path, tmp_path: Path) -> None:
    key = serialization.load_pem_private_key((certs / "broker-key.pem").read_bytes(), None)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(PASSWORD.encode()),
    )
    path = tmp_path / "broker.pem"
    path.write_bytes(text + (certs / "broker-cert.pem").read_bytes())
    settings = {"ssl.keystore.location": str(path)}
    make_context({**settings, "ssl.key.password": PASSWORD})
    for wrong in ({}, {"ssl.key.password": "wrong"}):
        with pytest.raises(TlsError, match=r"ssl\.key\.password"):
            make_context(settings | wrong)


def test_client_certificates_are_verified_with_any_kind_of_trust_store(
    certs: Path, tmp_path: Path
) -> None:
    settings = {"ssl.keystore.location": str(certs / "broker.pem")}
    assert make_context(settings).verify_mode is ssl.CERT_NONE
    authority = (certs / "ca.pem").read_text()
    store = in_pkcs12(certs, tmp_path / "trust.p12", with_key=False)
    for trust in (
        {"ssl.truststore.location": str(certs / "ca.pem")},
        {"ssl.truststore.certificates": authority},
        {"ssl.truststore.location": store, "ssl.truststore.password": PASSWORD},
    ):
        context = make_context(settings | trust | {"ssl.client.auth": "required"})
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert len(context.get_ca_certs()) == 1
    optional = make_context({**settings, **trust, "ssl.client.auth": "requested"})
    assert optional.verify_mode is ssl.CERT_OPTIONAL


@pytest.mark.parametrize("kind", [None, "JKS", "PEM", "PKCS12"])
@pytest.mark.parametrize("suffix", ["jks", "p12", "pem", "keystore"])
def test_the_content_of_a_store_decides_not_its_name_or_type(
    certs: Path, tmp_path: Path, suffix: str, kind: str | None
) -> None:
    """Java, too, reads PKCS#12 if the type is JKS, its default."""
    in_pkcs12(certs, tmp_path / f"key.{suffix}", with_key=True)
    in_pkcs12(certs, tmp_path / f"trust.{suffix}", with_key=False)
    for key, trust in (
        (tmp_path / f"key.{suffix}", tmp_path / f"trust.{suffix}"),
        (certs / "broker.pem", certs / "ca.pem"),
    ):
        names = tmp_path / f"named-{key.name}.{suffix}", tmp_path / f"named-{trust.name}.{suffix}"
        for name, path in zip(names, (key, trust), strict=True):
            name.write_bytes(path.read_bytes())
        settings = {
            "ssl.keystore.location": str(names[0]),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.location": str(names[1]),
            "ssl.truststore.password": PASSWORD,
            "ssl.client.auth": "required",
        }
        if kind is not None:
            settings |= {"ssl.keystore.type": kind, "ssl.truststore.type": kind}
        for name in ("ssl.keystore.type", "ssl.truststore.type") if kind is not None else ():
            BROKER_SETTINGS[name].parse(kind)
        assert len(make_context(settings).get_ca_certs()) == 1


@pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is not installed")
def test_stores_that_keytool_makes_as_kafkas_documentation_says_are_read(tmp_path: Path) -> None:
    key, trust = tmp_path / "kafka.server.keystore.jks", tmp_path / "kafka.server.truststore.jks"
    certificate = tmp_path / "cert"
    words = ["-alias", "localhost", "-storepass", PASSWORD, "-noprompt"]
    for command in (
        ["-genkeypair", "-keystore", str(key), "-keyalg", "RSA", "-dname", "CN=me", "-ext", "bc:c"],
        ["-exportcert", "-keystore", str(key), "-file", str(certificate)],
        ["-importcert", "-keystore", str(trust), "-file", str(certificate)],
    ):
        subprocess.run(["keytool", *command, *words], check=True, capture_output=True)
    context = make_context(
        {
            "ssl.keystore.location": str(key),
            "ssl.keystore.type": "JKS",
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
            "ssl.truststore.location": str(trust),
            "ssl.truststore.password": PASSWORD,
            "ssl.client.auth": "required",
        }
    )
    assert len(context.get_ca_certs()) == 1


def test_tls_versions_and_ciphers_come_from_the_settings(certs: Path) -> None:
    settings = {"ssl.keystore.location": str(certs / "broker.pem")}
    context = make_context({**settings, "ssl.enabled.protocols": "TLSv1.3"})
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    chosen = "ECDHE-ECDSA-AES256-GCM-SHA384"
    context = make_context({**settings, "ssl.cipher.suites": chosen})
    assert {row["name"] for row in context.get_ciphers() if row["protocol"] == "TLSv1.2"} == {
        chosen
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "ssl.keystore.location is missing"),
        ({"ssl.keystore.location": "/none.pem"}, "No such file"),
        ({"ssl.keystore.location": "{certs}/java.p12"}, "keytool -importkeystore"),
        ({"ssl.keystore.location": "{certs}/ca.der"}, "neither PEM.*openssl x509"),
        ({"ssl.keystore.key": "x"}, "need each other"),
        ({"ssl.keystore.location": "{certs}/ca.pem"}, "it must hold both"),
        ({"ssl.keystore.location": "{certs}/broker.pem", "ssl.client.auth": "maybe"}, "one of"),
        (
            {"ssl.keystore.location": "{certs}/broker.pem", "ssl.client.auth": "required"},
            "ssl.truststore.location is missing",
        ),
        (
            {"ssl.keystore.location": "{certs}/broker.pem", "ssl.enabled.protocols": "SSLv3"},
            "SSLv3 is not supported",
        ),
        (
            {"ssl.keystore.location": "{certs}/broker.pem", "ssl.cipher.suites": "none"},
            "OpenSSL's names",
        ),
    ],
)
def test_invalid_tls_settings_are_refused(
    certs: Path, settings: dict[str, str], words: str
) -> None:
    filled = {name: text.replace("{certs}", str(certs)) for name, text in settings.items()}
    with pytest.raises(TlsError, match=words):
        make_context(filled)


def in_der(certs: Path, target: Path) -> str:
    """Write the authority's certificate as DER. Gives: the path."""
    authority = x509.load_pem_x509_certificate((certs / "ca.pem").read_bytes())
    target.write_bytes(authority.public_bytes(serialization.Encoding.DER))
    return str(target)


@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_a_der_store_is_refused_with_the_command_that_converts_it(
    certs: Path, tmp_path: Path, store: str
) -> None:
    settings = {
        "ssl.keystore.location": str(certs / "broker.pem"),
        "ssl.truststore.location": str(certs / "ca.pem"),
        "ssl.client.auth": "required",
    }
    settings[f"ssl.{store}.location"] = in_der(certs, tmp_path / "store.crt")
    with pytest.raises(TlsError, match="openssl x509 -inform der"):
        make_context(settings)


def test_a_pem_store_may_contain_other_text(certs: Path, tmp_path: Path) -> None:
    for store in ("broker", "ca"):
        text = "# Főtanúsítvány\n".encode() + (certs / f"{store}.pem").read_bytes() + b"\xff\n"
        (tmp_path / f"{store}.pem").write_bytes(text)
    context = make_context(
        {
            "ssl.keystore.location": str(tmp_path / "broker.pem"),
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
            "ssl.client.auth": "required",
        }
    )
    assert context.cert_store_stats()["x509_ca"] == 1


def test_a_setting_whose_text_is_no_certificate_is_refused(certs: Path) -> None:
    settings = {
        "ssl.keystore.location": str(certs / "broker.pem"),
        "ssl.truststore.certificates": "Főtanúsítvány",
        "ssl.client.auth": "required",
    }
    with pytest.raises(TlsError, match="no certificate can be read"):
        make_context(settings)


def test_a_wrong_password_of_a_store_is_not_shown(certs: Path, tmp_path: Path) -> None:
    store = in_pkcs12(certs, tmp_path / "broker.p12", with_key=True)
    with pytest.raises(TlsError) as error:
        make_context({"ssl.keystore.location": store, "ssl.keystore.password": "wrong-secret"})
    assert "wrong-secret" not in str(error.value)


@pytest.mark.parametrize(
    "name", [name for name, row in BROKER_SETTINGS.items() if row.kind is Kind.PASSWORD]
)
def test_errors_of_tls_settings_show_no_secret(certs: Path, tmp_path: Path, name: str) -> None:
    store = in_pkcs12(certs, tmp_path / "broker.p12", with_key=True)
    settings = {
        "ssl.keystore.location": store,
        "ssl.truststore.location": store,
        "ssl.keystore.password": "other",
        "ssl.client.auth": "required",
        name: "planted",
    }
    with pytest.raises(TlsError) as error:
        make_context(settings)
    assert "planted" not in str(error.value)


# --- the socket ---------------------------------------------------------------------------------


class Peers:
    """A TlsSocket and its client, both of which are non-blocking."""

    def __init__(
        self,
        listener: TlsListener,
        certs: Path,
        on_shaken: Callable[[ssl.SSLSocket], None] | None = None,
    ) -> None:
        """Connect the TLS sockets of a server and a client to each other."""
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        self.server = listener.wrap(near, on_shaken)
        context = ssl.create_default_context(cafile=str(certs / "ca.pem"))
        self.client = context.wrap_socket(
            far, server_hostname="localhost", do_handshake_on_connect=False
        )
        self.received = bytearray()

    def receive(self, room: int = 1 << 16) -> int:
        """Receive at the server. Gives: the number of bytes; 0 if the client has closed the
        connection; -1 if nothing has arrived.
        """
        buffer = bytearray(room)
        try:
            count = self.server.recv_into(memoryview(buffer))
        except BlockingIOError:
            return -1
        self.received += buffer[:count]
        return count

    def shake_hands(self) -> None:
        """Carry out the handshake of both sides."""
        for _ in range(10):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                assert self.receive() == -1
            else:
                return
        raise AssertionError("no end of the handshake")

    def close(self) -> None:
        self.server.close()
        self.client.close()


@pytest.fixture
def peers(certs: Path) -> Iterator[Peers]:
    peers = Peers(TlsListener({"ssl.keystore.location": str(certs / "broker.pem")}), certs)
    yield peers
    peers.close()


def test_bytes_are_sent_in_both_directions(peers: Peers) -> None:
    peers.shake_hands()
    peers.client.send(b"hello")
    assert peers.receive() == 5
    assert peers.receive() == -1
    assert peers.server.send(memoryview(b"goodbye"), socket.MSG_MORE) == 7
    assert peers.client.recv(100) == b"goodbye"


def test_decrypted_bytes_that_were_not_read_are_pending(peers: Peers) -> None:
    """A part of a decrypted record is still pending, although the socket itself has nothing to
    read.
    """
    peers.shake_hands()
    data = os.urandom(10_000)
    peers.client.send(data)
    assert peers.receive(4000) == 4000
    assert peers.server.pending() == 6000
    assert not has_input(peers.server)
    assert peers.receive(4000) == 4000
    assert peers.receive(4000) == 2000
    assert (bytes(peers.received), peers.server.pending()) == (data, 0)


def test_one_read_takes_several_records(peers: Peers) -> None:
    peers.shake_hands()
    for _ in range(5):
        peers.client.send(bytes(1000))
    assert peers.receive() == 5000


def test_a_full_socket_raises_blocking_io_error(peers: Peers) -> None:
    peers.shake_hands()
    sent = 0
    try:
        while True:
            sent += peers.server.send(bytes(1 << 16))
    except BlockingIOError:
        assert sent > 0
    assert peers.server.refused_bytes == 1 << 16
    received = 0
    while received < sent:
        try:
            received += len(peers.client.recv(1 << 16))
        except ssl.SSLWantReadError:  # the client needs the rest of a TLS record
            sent += peers.server.send(bytes(1 << 16))
    assert peers.server.send(bytes(1 << 16)) > 0
    assert peers.server.refused_bytes == 0, "the piece was accepted"


def test_the_end_of_the_clients_connection_is_read_as_0_bytes(peers: Peers) -> None:
    peers.shake_hands()
    peers.client.close()
    assert peers.receive() == 0


def test_sending_to_a_disconnected_client_fails_with_an_errno_that_is_not_logged(
    peers: Peers,
) -> None:
    """The error has an errno for which the server logs nothing."""
    peers.shake_hands()
    with contextlib.suppress(BlockingIOError):
        while True:
            peers.server.send(bytes(1 << 16))
    peers.client.close()
    with pytest.raises(OSError) as caught:  # noqa: PT011 (its number is what counts)
        peers.server.send(bytes(1 << 16))
    assert caught.value.errno in (errno.EPIPE, errno.ECONNRESET)


def test_a_client_that_does_not_use_tls_is_an_error(certs: Path) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    server = TlsListener({"ssl.keystore.location": str(certs / "broker.pem")}).wrap(near)
    far.sendall(b"\0\0\0\x10\0\x12\0\0\0\0\0\x01\0\x05tests")
    with pytest.raises(OSError, match="does not speak TLS"):
        server.recv_into(memoryview(bytearray(100)))
    server.close()
    far.close()


def test_the_clients_certificate_is_reported_with_its_first_bytes(certs: Path) -> None:
    listener = TlsListener(
        {
            "ssl.keystore.location": str(certs / "broker.pem"),
            "ssl.truststore.location": str(certs / "ca.pem"),
            "ssl.client.auth": "requested",
        }
    )
    assert listener.asks_for_certificates
    subjects: list[object] = []
    for with_certificate in (True, False):
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        server = listener.wrap(near, lambda peer: subjects.append(peer.getpeercert()))
        context = ssl.create_default_context(cafile=str(certs / "ca.pem"))
        if with_certificate:
            context.load_cert_chain(certs / "client.pem")
        client = context.wrap_socket(
            far, server_hostname="localhost", do_handshake_on_connect=False
        )
        for _ in range(3):
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            with contextlib.suppress(BlockingIOError):
                server.recv_into(memoryview(bytearray(10)))
        reported = len(subjects)
        client.send(b"x")
        assert server.recv_into(memoryview(bytearray(10))) == 1
        assert len(subjects) == reported + 1, (
            "the certificate is reported with the client's first bytes, and not before"
        )
        client.send(b"x")
        assert server.recv_into(memoryview(bytearray(10))) == 1
        server.close()
        client.close()
    shown, nothing = subjects
    assert PrincipalMapper("DEFAULT").principal(shown) == "User:CN=client"  # type: ignore[arg-type]
    assert PrincipalMapper("DEFAULT").principal(nothing) == ANONYMOUS  # type: ignore[arg-type]


def test_the_client_is_identified_although_it_disconnects_with_its_first_bytes(certs: Path) -> None:
    """The request arrives together with the end of the connection, and must still be attributed to
    the client.
    """
    reported: list[object] = []
    listener = TlsListener({"ssl.keystore.location": str(certs / "broker.pem")})
    peers = Peers(listener, certs, reported.append)
    peers.shake_hands()
    peers.client.send(b"x")
    peers.client.close()
    assert peers.receive() == 1
    assert len(reported) == 1
    assert peers.receive() == 0
    peers.server.close()


def test_an_expired_client_certificate_is_refused(certs: Path, tmp_path: Path) -> None:
    """The trusted authority signed the certificate, which expired yesterday."""
    authority = x509.load_pem_x509_certificate((certs / "ca.pem").read_bytes())
    authoritys_key = serialization.load_pem_private_key((certs / "ca-key.pem").read_bytes(), None)
    key = serialization.load_pem_private_key((certs / "client-key.pem").read_bytes(), None)
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "client")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())  # type: ignore[arg-type]
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now - datetime.timedelta(days=1))
        .sign(authoritys_key, hashes.SHA256())  # type: ignore[arg-type]
    )
    shown = tmp_path / "old.pem"
    shown.write_bytes(
        (certs / "client-key.pem").read_bytes()
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    listener = TlsListener(
        {
            "ssl.keystore.location": str(certs / "broker.pem"),
            "ssl.truststore.location": str(certs / "ca.pem"),
            "ssl.client.auth": "required",
        }
    )
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    server = listener.wrap(near)
    context = ssl.create_default_context(cafile=str(certs / "ca.pem"))
    context.load_cert_chain(shown)
    client = context.wrap_socket(far, server_hostname="localhost", do_handshake_on_connect=False)
    with pytest.raises(OSError, match="certificate verify failed"):  # noqa: PT012
        for _ in range(3):
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            with contextlib.suppress(BlockingIOError):
                server.recv_into(memoryview(bytearray(10)))
    server.close()
    client.close()


def serial_number(listener: TlsListener, certs: Path) -> int:
    """The serial number of the certificate that the listener presents."""
    peers = Peers(listener, certs)
    peers.shake_hands()
    certificate = peers.client.getpeercert(binary_form=True)
    assert certificate is not None
    peers.close()
    return x509.load_der_x509_certificate(certificate).serial_number


def test_a_trust_store_that_becomes_unreadable_leaves_the_previous_one_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_certificates(tmp_path)
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes((tmp_path / "ca.pem").read_bytes())
    listener = TlsListener(
        {
            "ssl.keystore.location": str(tmp_path / "broker.pem"),
            "ssl.truststore.location": str(trusted),
            "ssl.client.auth": "requested",
        }
    )
    first = serial_number(listener, tmp_path)
    in_der(tmp_path, trusted)
    assert serial_number(listener, tmp_path) == first
    assert "the former ones stay in use" in caplog.text


def test_changed_certificate_files_are_used_for_new_connections(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_certificates(tmp_path)
    path = tmp_path / "broker.pem"
    listener = TlsListener({"ssl.keystore.location": str(path)})
    first = serial_number(listener, tmp_path)
    path.write_text("torn")
    with caplog.at_level(logging.INFO, "barnabas.tls"):
        assert serial_number(listener, tmp_path) == first
        assert "the former ones stay in use" in caplog.text
        for old in tmp_path.glob("broker*"):
            old.unlink()
        make_certificates(tmp_path, clients=())
        second = serial_number(listener, tmp_path)
        assert "are in use" in caplog.text
    assert second != first
    assert serial_number(listener, tmp_path) == second


# --- dates --------------------------------------------------------------------------------------

UTC = datetime.UTC
DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(UTC).replace(microsecond=0)


def dated(target: Path, begin: datetime.datetime, end: datetime.datetime) -> str:
    """Write a key with its own certificate, which is valid between two times. Gives: the path."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    certificate = builder.not_valid_before(begin).not_valid_after(end).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    target.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(pem)
    )
    return str(target)


@pytest.mark.parametrize(
    ("begin", "end", "says"),
    [
        (NOW - 2 * DAY, NOW - DAY, f"expired on {NOW - DAY:%Y-%m-%d %H:%M} UTC"),
        (NOW + DAY, NOW + 2 * DAY, f"is valid from {NOW + DAY:%Y-%m-%d %H:%M} UTC on"),
        (NOW - DAY, NOW + DAY, ""),
        (datetime.datetime(1980, 1, 1, tzinfo=UTC), datetime.datetime(2090, 1, 1, tzinfo=UTC), ""),
        (
            datetime.datetime(1950, 1, 1, tzinfo=UTC),
            datetime.datetime(2049, 12, 31, tzinfo=UTC),
            "",
        ),
    ],
    ids=["expired", "not yet valid", "valid", "for a hundred years", "two digits of the year"],
)
def test_a_start_and_a_reload_name_a_certificate_that_is_not_valid_now(
    tmp_path: Path,
    begin: datetime.datetime,
    end: datetime.datetime,
    says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = dated(tmp_path / "broker.pem", begin, end)
    listener = TlsListener({"ssl.keystore.location": path})
    for _ in range(2):
        errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(errors) == bool(says)
        assert all(f"ssl.keystore.location={path}" in line and says in line for line in errors)
        caplog.clear()
        listener.reload()


def test_the_dates_of_certificates_are_those_that_the_library_reads(certs: Path) -> None:
    for name in ("ca", "broker-cert"):
        text = (certs / f"{name}.pem").read_bytes()
        read = x509.load_pem_x509_certificate(text)
        expected = read.not_valid_before_utc, read.not_valid_after_utc
        der = read.public_bytes(serialization.Encoding.DER)
        assert validity(der) == expected
        for size in range(len(der)):
            with contextlib.suppress(ValueError, IndexError):
                validity(der[:size])
    assert faults_of_dates("no certificate", NOW) == []
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert faults_of_dates(broken, NOW) == []
