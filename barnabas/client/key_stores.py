"""Converts key stores and trust stores of the Java client to PEM. PEM files are used as they are.
PKCS#12 files are read with the library cryptography. The content decides which kind a file is, not
its name. Java's own format is rejected with an explanation.
"""

from __future__ import annotations

from pathlib import Path

from barnabas.pkcs12 import JKS, PEM, PKCS12, kind_of_store, pem_of_pkcs12

TYPES = (PEM, PKCS12, JKS)


class KeyStoreError(ValueError):
    """A store cannot be read. The message contains the name of the option, and never the
    password.
    """


def pem_of_store(path: str, option: str, *, kind: str | None, password: str | None) -> str:
    """Return the certificates of a store as PEM, together with its key if it has one.

    Takes:  option, the name of the option with the path; kind, the value of the store's type, one
            of TYPES; password, that of a PKCS#12 store.
    Raises: KeyStoreError.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise KeyStoreError(
            f"option {option}={path!r}: {error.strerror}; the file has to be on each machine that "
            "runs tasks"
        ) from error
    found = kind_of_store(data)
    if found == PEM:
        return data.decode("utf-8", "replace")
    if found == JKS:
        raise KeyStoreError(
            f"option {option}={path!r} is a Java key store, which cannot be read without Java: "
            f"make it PKCS#12 by `keytool -importkeystore -srckeystore {path} -destkeystore "
            f"store.p12 -deststoretype PKCS12`, and give {option}=store.p12"
        )
    if kind == PEM or found != PKCS12:
        raise KeyStoreError(
            f"option {option}={path!r} is not PEM: no part of it begins with -----BEGIN, and it "
            "is not a PKCS#12 store either"
            if kind != PEM
            else (
                f"option {option}={path!r} is not PEM, unlike its type: no part of it begins "
                "with -----BEGIN"
            )
        )
    return _pem_of_pkcs12(data, password, option, path)


def _pem_of_pkcs12(data: bytes, password: str | None, option: str, path: str) -> str:
    """A PKCS#12 store as PEM. Raises: KeyStoreError."""
    try:
        return pem_of_pkcs12(data, password or "")
    except ImportError as error:
        raise KeyStoreError(
            f"option {option}={path!r} is PKCS#12, which needs the library cryptography on the "
            "driver and on each machine that runs tasks (the extra `tls` of barnabas); PEM "
            "needs no library"
        ) from error
    except ValueError as error:
        name = option.replace(".location", ".password")
        raise KeyStoreError(
            f"option {option}={path!r} cannot be read ({error}): check {name}"
        ) from None
