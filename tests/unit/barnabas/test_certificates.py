"""The files of a certificate authority, and those of the certificates that it signs."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509

from barnabas.certificates import CertificatesError, make_certificates


def test_the_files_of_an_authority_a_broker_and_clients_are_written(tmp_path: Path) -> None:
    written = make_certificates(tmp_path / "c", hosts=["here", "192.0.2.1"], clients=["a", "b.c"])
    names = {path.name for path in written}
    assert names == {path.name for path in (tmp_path / "c").iterdir()}
    assert {"ca.pem", "ca-key.pem", "broker.pem", "a.pem", "b.c-key.pem", "b.c-cert.pem"} <= names
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700
    broker = x509.load_pem_x509_certificate((tmp_path / "c" / "broker-cert.pem").read_bytes())
    hosts = broker.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in hosts] == ["here", "192.0.2.1"]
    client = x509.load_pem_x509_certificate((tmp_path / "c" / "b.c-cert.pem").read_bytes())
    authority = x509.load_pem_x509_certificate((tmp_path / "c" / "ca.pem").read_bytes())
    assert client.subject.rfc4514_string() == "CN=b.c"
    for certificate in (authority, broker, client):
        certificate.verify_directly_issued_by(authority)


def test_an_existing_authority_signs_further_certificates(tmp_path: Path) -> None:
    make_certificates(tmp_path, clients=["a"])
    before = (tmp_path / "ca.pem").read_bytes()
    for path in tmp_path.glob("broker*"):
        path.unlink()
    make_certificates(tmp_path, clients=["b"])
    assert (tmp_path / "ca.pem").read_bytes() == before
    authority = x509.load_pem_x509_certificate(before)
    for name in ("a", "b", "broker"):
        certificate = x509.load_pem_x509_certificate((tmp_path / f"{name}-cert.pem").read_bytes())
        certificate.verify_directly_issued_by(authority)


@pytest.mark.parametrize("name", ["", "ca", "broker", "../up", "a b"])
def test_invalid_and_reserved_client_names_are_refused(tmp_path: Path, name: str) -> None:
    make_certificates(tmp_path, clients=())
    with pytest.raises(CertificatesError):
        make_certificates(tmp_path, clients=[name])
