"""The validity of X.509 certificates, read without a library: the broker's own certificate may have
expired, and then each client refuses it, with an error that names no date.

    Certificate  SEQUENCE
      tbsCertificate  SEQUENCE
        [0] version, optional · serialNumber · signature · issuer
        validity  SEQUENCE
          notBefore, notAfter   UTCTime (two digits of the year) or GeneralizedTime

Source: RFC 5280, sections 4.1 and 4.1.2.5.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17
_FIRST_YEAR = 1950  # of the two digits in a UTCTime


def faults_of_dates(pem: str, now: datetime) -> list[str]:
    """What is wrong with the dates of the certificates in a PEM text. Certificates that cannot be
    read are left out.
    """
    faults = []
    for number, match in enumerate(_CERTIFICATE.finditer(pem)):
        try:
            begin, end = validity(ssl.PEM_cert_to_DER_cert(match[0]))
        except (ValueError, IndexError):
            continue
        name = "the certificate" if not number else f"certificate {number + 1} of the chain"
        if now > end:
            faults.append(f"{name} expired on {end:%Y-%m-%d %H:%M} UTC")
        elif now < begin:
            faults.append(f"{name} is valid from {begin:%Y-%m-%d %H:%M} UTC on")
    return faults


def validity(certificate: bytes) -> tuple[datetime, datetime]:
    """The first and the last time at which a certificate in DER is valid.

    Raises: ValueError or IndexError if the bytes are no certificate.
    """
    _, position, _ = _element(certificate, 0)
    _, position, _ = _element(certificate, position)
    kind, _, end = _element(certificate, position)
    if kind == _VERSION:
        position = end
    for _ in range(3):  # the serial number, the algorithm, and the issuer
        _, _, position = _element(certificate, position)
    _, position, _ = _element(certificate, position)
    kind, begin, end = _element(certificate, position)
    first = _time(kind, certificate[begin:end])
    kind, begin, end = _element(certificate, end)
    return first, _time(kind, certificate[begin:end])


def _element(data: bytes, position: int) -> tuple[int, int, int]:
    """The kind of the element at a position, the position of its content, and that of its end."""
    kind, size = data[position], data[position + 1]
    position += 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(data[position : position + count])
        position += count
    if position + size > len(data):
        raise ValueError("an element is longer than the certificate")
    return kind, position, position + size


def _time(kind: int, text: bytes) -> datetime:
    digits = text.decode("ascii")
    if kind == _UTC_TIME:
        century = _FIRST_YEAR // 100 + (int(digits[:2]) < _FIRST_YEAR % 100)
        digits = f"{century}{digits}"
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
