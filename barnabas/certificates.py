"""A certificate authority for tests and first steps, and certificates signed by it: `barnabas
certs`.

    ca.pem                  the authority's certificate, which clients and brokers trust
    broker.pem              key and certificate of a broker: ssl.keystore.location
    NAME.pem                key and certificate of a client, one file for each
    NAME-key.pem, NAME-cert.pem    the same in two files, for clients that need that
    ca-key.pem              the authority's key, which signs further certificates

Keys are of the curve P-256. Certificates are valid for a year, the authority's for ten. Not for
production: the authority's key is stored with the certificates.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.installing import install_command

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

YEAR = datetime.timedelta(days=365)
AUTHORITY, BROKER = "ca", "broker"


class CertificatesError(RuntimeError):
    """The certificates cannot be made; the message says what to do."""


def make_certificates(
    directory: str | os.PathLike[str],
    *,
    hosts: Iterable[str] = ("localhost", "127.0.0.1", "::1"),
    clients: Iterable[str] = ("client",),
) -> list[Path]:
    """Write the certificates of an authority, a broker and clients to a directory.

    The directory is created if it does not exist. If it has an authority, that one signs the new
    certificates.

    Takes:  hosts, the names and addresses by which clients reach the broker; clients, the common
            names of the client certificates.
    Gives:  the written files, in order; only their owner may read them (0600).
    Raises: CertificatesError if `cryptography` is missing or a file exists already; OSError.
    """
    try:
        from cryptography import x509
    except ImportError as error:
        raise CertificatesError(f"certificates need `{install_command('tls')}`") from error
    target = Path(directory)
    names = [BROKER, *clients]
    for name in names:
        if (
            not name
            or name == AUTHORITY
            or not all(letter.isalnum() or letter in "-_." for letter in name)
        ):
            raise CertificatesError(f"{name!r} is not a valid name for a certificate's file")
        for path in (target / f"{name}.pem", target / f"{name}-key.pem"):
            if path.exists():
                raise CertificatesError(
                    f"{path} exists already: remove it, or choose another directory"
                )
    target.mkdir(mode=0o700, parents=True, exist_ok=True)  # the authority's key is in it
    written: list[Path] = []
    authority, authority_key = _authority(target, written)
    alternatives: list[Any] = []
    for host in hosts:
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            alternatives.append(x509.DNSName(host))
    for name in names:
        key = _new_key()
        certificate = _sign(
            name,
            key,
            authority,
            authority_key,
            x509.SubjectAlternativeName(alternatives) if name == BROKER else None,
        )
        key_text, certificate_text = _key_pem(key), _certificate_pem(certificate)
        _write(target / f"{name}-key.pem", key_text, written)
        _write(target / f"{name}-cert.pem", certificate_text, written)
        _write(target / f"{name}.pem", key_text + certificate_text, written)
    return written


def _authority(
    target: Path, written: list[Path]
) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    """The certificate and key of the directory's authority, which is created if there is none."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    path, key_path = target / f"{AUTHORITY}.pem", target / f"{AUTHORITY}-key.pem"
    if path.exists() and key_path.exists():
        kept_key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        if not isinstance(kept_key, EllipticCurvePrivateKey):
            raise CertificatesError(f"{key_path} is not a key that this command made")
        return x509.load_pem_x509_certificate(path.read_bytes()), kept_key
    key = _new_key()
    certificate = _sign("Barnabas test authority", key, None, key, None)
    _write(key_path, _key_pem(key), written)
    _write(path, _certificate_pem(certificate), written)
    return certificate, key


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _sign(
    name: str,
    key: EllipticCurvePrivateKey,
    authority: x509.Certificate | None,
    authority_key: EllipticCurvePrivateKey,
    alternatives: x509.SubjectAlternativeName | None,
) -> x509.Certificate:
    """A certificate for a key, signed by the authority. If `authority` is None, the certificate is
    the authority's own and self-signed.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    # Valid from five minutes ago, since the clocks of other machines may be behind.
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + (10 * YEAR if authority is None else YEAR))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
    )
    if authority is None:
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = builder.add_extension(usage, critical=True)
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, text: bytes, written: list[Path]) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    written.append(path)
