"""Recognises key stores and trust stores by their content, and converts PKCS#12 to PEM with the
library cryptography, which is imported on first use.

A file's name and its configured type say little: since Java 9, keytool writes PKCS#12 to a file of
any name, and Java reads it although the type is JKS, which is the default.
"""

from __future__ import annotations

import re

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
JKS_MAGIC, JCEKS_MAGIC = bytes.fromhex("feedfeed"), bytes.fromhex("cececece")
# The beginning of a PFX (RFC 7292): a SEQUENCE of any length whose first element is the version, 3.
_PFX = re.compile(rb"\x30(?:[\x00-\x80]|\x81.|\x82..|\x83...|\x84....)\x02\x01\x03", re.DOTALL)


def kind_of_store(data: bytes) -> str | None:
    """The kind of a store by its content: PEM, PKCS12 or JKS (Java's own format, with JCEKS); None
    if it is none of them.
    """
    if data.startswith((JKS_MAGIC, JCEKS_MAGIC)):
        return JKS
    if _PFX.match(data):
        return PKCS12
    return PEM if b"-----BEGIN" in data else None


def pem_of_pkcs12(data: bytes, password: str) -> str:
    """The certificates of a store, and its key if it has one, as PEM.

    Takes:  data, the file's bytes; password, empty if the store has none.
    Gives:  the key first, unencrypted (PKCS#8), then the certificates.
    Raises: ImportError without cryptography; ValueError if the store cannot be read.
    Source: RFC 7292.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    store = pkcs12.load_pkcs12(data, password.encode() or None)
    parts = []
    if store.key is not None:
        parts.append(
            store.key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
    parts += [
        each.certificate.public_bytes(serialization.Encoding.PEM)
        for each in (store.cert, *store.additional_certs)
        if each is not None
    ]
    return b"".join(parts).decode()
