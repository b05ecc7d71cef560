"""Converts PKCS#12 stores to PEM with the library cryptography, which is imported on first use."""

from __future__ import annotations


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
