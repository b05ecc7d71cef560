"""The key stores of Java clients: PEM, and PKCS#12 with any file name and type. Java's own formats
are refused.
"""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest
from helpers.places import TESTS

from barnabas.client.key_stores import KeyStoreError, pem_of_store
from barnabas.client.security import SecurityError, parse_security, ssl_context

TLS = TESTS / "fixtures" / "tls"
OPTION = "kafka.ssl.keystore.location"
PASSWORD = "a pässword"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with own.p12, which has a key and its certificate, and trust.jks, a PKCS#12 store
    as keytool writes it.
    """
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    directory = tmp_path_factory.mktemp("stores")
    pem = (TLS / "client.pem").read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    authority = x509.load_pem_x509_certificate((TLS / "ca.pem").read_bytes())
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    own = pkcs12.serialize_key_and_certificates(
        b"own",
        key,  # type: ignore[arg-type]
        x509.load_pem_x509_certificate(pem),
        [authority],
        encryption,
    )
    (directory / "own.p12").write_bytes(own)
    trust = pkcs12.serialize_key_and_certificates(None, None, None, [authority], encryption)
    (directory / "trust.jks").write_bytes(trust)
    (directory / "real.jks").write_bytes(bytes.fromhex("feedfeed00000002"))
    (directory / "certificate.der").write_bytes(authority.public_bytes(serialization.Encoding.DER))
    return directory


@pytest.mark.parametrize("kind", [None, "PKCS12", "JKS"])
def test_a_key_and_certificates_of_pkcs_12(stores: Path, kind: str | None) -> None:
    pem = pem_of_store(str(stores / "own.p12"), OPTION, kind=kind, password=PASSWORD)
    assert pem.count("-----BEGIN CERTIFICATE-----") == 2
    assert pem.count("-----BEGIN PRIVATE KEY-----") == 1


def test_a_context_of_two_stores(stores: Path) -> None:
    options = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(stores / "trust.jks"),
        "kafka.ssl.truststore.password": PASSWORD,
        "kafka.ssl.keystore.location": str(stores / "own.p12"),
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.password": PASSWORD,
    }
    security = parse_security(options.get)
    assert PASSWORD not in repr(security)
    context = ssl_context(security)
    assert context.verify_mode == ssl.CERT_REQUIRED
    subjects = [each["subject"][0][0][1] for each in context.get_ca_certs()]
    assert subjects == ["Barnabas test authority"]
    wrong = parse_security((options | {"kafka.ssl.keystore.password": "x"}).get)
    with pytest.raises(SecurityError, match=r"own.p12' cannot be read .*check kafka.ssl.keystore"):
        ssl_context(wrong)


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("real.jks", None, r"Java key store, which cannot be read.*keytool -importkeystore"),
        ("real.jks", "JKS", r"Java key store, which cannot be read.*keytool -importkeystore"),
        ("own.p12", "PEM", r"is not PEM, unlike its type"),
        ("certificate.der", None, r"not a PKCS#12 store either"),
        ("missing", None, r"No such file or directory; the file has to be on each machine"),
    ],
)
def test_what_cannot_be_read(stores: Path, name: str, kind: str | None, says: str) -> None:
    with pytest.raises(KeyStoreError, match=says):
        pem_of_store(str(stores / name), OPTION, kind=kind, password=PASSWORD)


def test_the_error_for_pkcs_12_names_the_missing_library(
    stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(KeyStoreError, match=r"needs the library cryptography on the driver and on"):
        pem_of_store(str(stores / "own.p12"), OPTION, kind=None, password=PASSWORD)
