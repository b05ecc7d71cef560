"""TLS on a listener: makes an SSL context from the settings `ssl.*`, and sockets that use it.

The rim uses a `TlsSocket` like any other socket. The settings are Apache Kafka's, and stores may be
PEM or PKCS#12: the content of a file decides, neither its name nor its type (`ssl.keystore.type`).
If a store file has changed, it is read again at the next connection. If the changed file cannot be
read, this is logged, and the earlier content stays in use.

Source: KIP-651 (PEM), Apache Kafka's `ssl.*` reference.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from barnabas.broker.rim.certificate_dates import faults_of_dates
from barnabas.installing import install_command
from barnabas.pkcs12 import JKS, PEM, kind_of_store, pem_of_pkcs12

logger = logging.getLogger("barnabas.tls")

CLIENT_AUTH = {
    "none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED,
}  # fmt: skip
PROTOCOLS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_HINTS = {
    "WRONG_VERSION_NUMBER": "; the client does not speak TLS: set its security.protocol",
    "HTTP_REQUEST": "; it looks like HTTP: this port speaks Kafka's protocol over TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "; ssl.client.auth=required asks for one",
    "TLSV1_ALERT_UNKNOWN_CA": (
        "; the client does not trust the authority that signed ssl.keystore.location"
    ),
}


class TlsError(ValueError):
    """The settings of TLS are not valid. The text says which setting is wrong, and what to do."""


class TlsSocket:
    """A connected non-blocking socket with TLS.

    Its methods raise BlockingIOError instead of blocking, like those of a plain socket. The
    handshake is done by the first reads. If `recv_into` returns fewer bytes than requested, no more
    bytes have arrived, except those that `pending` counts. refused_bytes: the number of bytes that
    `send` could not accept, and that have to be passed to it again unchanged; 0 if there are none.

    Takes: on_shaken, which is called once with the socket, after the handshake and before the first
           bytes are returned; if it raises an OSError, `recv_into` raises that error.
    """

    __slots__ = ("_on_shaken", "_socket", "refused_bytes")

    def __init__(
        self, sock: ssl.SSLSocket, on_shaken: Callable[[ssl.SSLSocket], None] | None = None
    ) -> None:
        self._socket, self._on_shaken = sock, on_shaken
        self.refused_bytes = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """An option of the underlying socket."""
        return self._socket.getsockopt(level, option, size)

    @property
    def is_set_up(self) -> bool:
        """Whether the handshake is done."""
        return self._socket.version() is not None

    @property
    def is_to_identify(self) -> bool:
        """Whether `on_shaken` was not called yet, or has raised an error."""
        return self._on_shaken is not None

    def pending(self) -> int:
        """The number of decrypted bytes that were not read yet. The operating system does not
        report these bytes as readable.
        """
        return self._socket.pending()

    def recv_into(self, view: memoryview) -> int:
        """Receive bytes into the buffer. Gives: the number of bytes; 0 if the client has
        disconnected.
        Raises: OSError, BlockingIOError.
        """
        total = 0
        while total < len(view):
            try:
                count = self._socket.recv_into(view[total:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                if total:
                    break
                raise BlockingIOError from error
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                count = 0
            except ssl.SSLError as error:
                raise OSError(_explained(error)) from error
            if count == 0:
                break
            total += count
        if total and self._on_shaken is not None:
            self._on_shaken(self._socket)
            self._on_shaken = None
        return total

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0) -> int:
        """Send a part of the data. Takes: flags, which TLS ignores."""
        try:
            sent = self._socket.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            self.refused_bytes = len(data)
            raise BlockingIOError from error
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError) as error:
            raise ConnectionResetError(
                errno.ECONNRESET, "the client closed the connection"
            ) from error
        self.refused_bytes = 0
        return sent

    def close(self) -> None:
        """Close the socket, after sending TLS's closing alert if that does not block."""
        with contextlib.suppress(OSError, ValueError):
            self._socket.unwrap()
        self._socket.close()


def _explained(error: ssl.SSLError) -> str:
    """The text of a TLS error for the broker's log, with a hint if the cause is known."""
    reason = error.reason or str(error)
    return f"TLS: {reason.replace('_', ' ').lower()}{_HINTS.get(reason, '')}"


class TlsListener:
    """Makes the TLS sockets of a listener.

    Takes:  settings, the listener's settings, with Kafka's names as keys.
    Raises: TlsError.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        locations = ("ssl.keystore.location", "ssl.truststore.location")
        self._files = [settings[name] for name in locations if settings.get(name)]
        self._seen = self._state_of_files()
        self._context = self._new_context()

    def _state_of_files(self) -> list[tuple[int, int, int]]:
        """The time, size and inode of each certificate file, to notice that it was replaced; zeros
        for a missing file.
        """
        states = []
        for path in self._files:
            try:
                status = os.stat(path)
                states.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                states.append((0, 0, 0))
        return states

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients may or must present a certificate."""
        return self._context.verify_mode is not ssl.CERT_NONE

    def wrap(
        self, sock: socket.socket, on_shaken: Callable[[ssl.SSLSocket], None] | None = None
    ) -> TlsSocket:
        """Wrap the socket in TLS, with the certificates that the files currently contain.

        Takes:  on_shaken, which is called when the client is identified.
        Raises: OSError.
        """
        wrapped = self.context().wrap_socket(
            sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
        )
        return TlsSocket(wrapped, on_shaken)

    def context(self) -> ssl.SSLContext:
        """The SSL context, with the certificates that the files currently contain."""
        if self._state_of_files() != self._seen:
            self.reload()
        return self._context

    def reload(self) -> None:
        """Read the files again. If they cannot be used, this is logged, and the former certificates
        stay in use.
        """
        self._seen = self._state_of_files()
        try:
            self._context = self._new_context()
        except TlsError as error:
            logger.error(
                "the changed certificates cannot be used, and the former ones stay in use: %s",
                error,
            )
        else:
            logger.info("the certificates of %s are in use", ", ".join(self._files) or "settings")

    def _new_context(self) -> ssl.SSLContext:
        """Read the stores. If the broker's certificate, or one of its chain, is not valid now, this
        is logged.
        """
        certificates = _key_store(self._settings)
        context = make_context(self._settings, certificates)
        for fault in faults_of_dates(certificates, datetime.now(UTC)):
            logger.error(
                "%s: %s: clients refuse it. Replace it; it is read again at the next connection",
                _named(self._settings, "keystore"),
                fault,
            )
        return context


def make_context(settings: Mapping[str, str], certificates: str | None = None) -> ssl.SSLContext:
    """The SSL context of a listener's settings.

    Takes: certificates, the content of the key store, if it was read already. Raises: TlsError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_protocols(context, settings)
    _load_key(context, settings, certificates)
    client_auth = settings.get("ssl.client.auth", "none")
    if client_auth not in CLIENT_AUTH:
        raise TlsError(f"ssl.client.auth={client_auth}: it must be one of {', '.join(CLIENT_AUTH)}")
    context.verify_mode = CLIENT_AUTH[client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_authorities(context, settings)
    return context


def make_client_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Make the SSL context for a connection to another broker from the same settings.

    The other broker's certificate has to contain its address. Without a trust store, the
    authorities that the operating system trusts are trusted. The certificate of the key store, if
    there is one, is presented on request. Raises: TlsError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_protocols(context, settings)
    if settings.get("ssl.truststore.certificates") or settings.get("ssl.truststore.location"):
        _load_authorities(context, settings)
    else:
        context.load_default_certs()
    if settings.get("ssl.keystore.key") or settings.get("ssl.keystore.location"):
        _load_key(context, settings)
    return context


def _load_key(
    context: ssl.SSLContext, settings: Mapping[str, str], certificates: str | None = None
) -> None:
    """Load the private key and its certificates. Raises: TlsError."""
    if certificates is None:
        certificates = _key_store(settings)
    password = settings.get("ssl.key.password") or None
    try:
        with _as_file(certificates) as path:
            context.load_cert_chain(path, password=password or "")
    except (ssl.SSLError, ValueError, OSError) as error:
        raise TlsError(
            f"{_named(settings, 'keystore')}: no private key with its certificate can be read "
            f"({getattr(error, 'reason', None) or error}): it must hold both, and ssl.key.password "
            "must be the key's"
        ) from error


def _load_authorities(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    """Load the authorities of the trust store, by which the peer's certificate is checked. Raises:
    TlsError.
    """
    try:
        context.load_verify_locations(cadata=_trust_store(settings))
    except (ssl.SSLError, ValueError, TypeError) as error:  # TypeError if the text is not ASCII
        raise TlsError(
            f"{_named(settings, 'truststore')}: no certificate can be read ({error})"
        ) from error


def _set_protocols(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    """Set the versions of TLS and the cipher suites. Raises: TlsError."""
    names = [
        name.strip()
        for name in settings.get("ssl.enabled.protocols", ",".join(PROTOCOLS)).split(",")
    ]
    unknown = [name for name in names if name not in PROTOCOLS]
    if unknown:
        raise TlsError(
            f"ssl.enabled.protocols: {', '.join(unknown)} is not supported, only "
            f"{', '.join(PROTOCOLS)}"
        )
    context.minimum_version = min(PROTOCOLS[name] for name in names)
    context.maximum_version = max(PROTOCOLS[name] for name in names)
    ciphers = settings.get("ssl.cipher.suites")
    if ciphers:
        try:
            context.set_ciphers(ciphers.replace(",", ":"))
        except ssl.SSLError as error:
            raise TlsError(
                f"ssl.cipher.suites={ciphers}: none of them is available; give OpenSSL's names, "
                "such as ECDHE-RSA-AES256-GCM-SHA384 (those of TLS 1.3 cannot be chosen)"
            ) from error


# --- stores -------------------------------------------------------------------------------------


def _key_store(settings: Mapping[str, str]) -> str:
    """The private key and its certificates, as PEM."""
    key, chain = settings.get("ssl.keystore.key"), settings.get("ssl.keystore.certificate.chain")
    if key or chain:
        if not (key and chain):
            raise TlsError("ssl.keystore.key and ssl.keystore.certificate.chain need each other")
        return f"{key}\n{chain}\n"
    return _store(settings, "keystore")


def _trust_store(settings: Mapping[str, str]) -> str:
    """The certificates of trusted authorities, as PEM."""
    return settings.get("ssl.truststore.certificates") or _store(settings, "truststore")


def _named(settings: Mapping[str, str], store: str) -> str:
    path = settings.get(f"ssl.{store}.location")
    return f"ssl.{store}.location={path}" if path else f"the settings ssl.{store}.*"


def _store(settings: Mapping[str, str], store: str) -> str:
    """A store's content as PEM. Raises: TlsError."""
    path = settings.get(f"ssl.{store}.location")
    if not path:
        raise TlsError(
            f"ssl.{store}.location is missing: name a file (`barnabas certs DIRECTORY` makes some "
            "for tests)"
        )
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise TlsError(f"ssl.{store}.location={path}: {error.strerror}") from error
    kind = kind_of_store(data)
    if kind == PEM:
        # the text before and after its PEM blocks may be in any encoding
        return data.decode("ascii", "replace").replace("\ufffd", "?")
    if kind == JKS:
        raise TlsError(
            f"ssl.{store}.location={path} is a Java key store, which cannot be read: keytool "
            f"-importkeystore -srckeystore {path} -destkeystore {store}.p12 -deststoretype "
            "PKCS12"
        )
    if kind is None:
        raise TlsError(
            f"ssl.{store}.location={path} is neither PEM, since no part of it begins with "
            "-----BEGIN, nor PKCS#12: a certificate in DER becomes PEM by "
            f"openssl x509 -inform der -in {path} -out {store}.pem"
        )
    return _pem_of_pkcs12(data, settings.get(f"ssl.{store}.password", ""), path)


def _pem_of_pkcs12(data: bytes, password: str, path: str) -> str:
    """The content of a PKCS#12 store as PEM. Raises: TlsError."""
    try:
        return pem_of_pkcs12(data, password)
    except ImportError as error:
        raise TlsError(
            f"{path} is PKCS#12, which needs `{install_command('tls')}`; PEM does not"
        ) from error
    except ValueError as error:
        raise TlsError(f"{path} cannot be read ({error}): is its password right?") from error


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Make a short-lived file that contains the text, since `ssl` reads a key only from a path.

    The file is in memory and has no name in any directory, so that the key is never on a disk. On
    systems without memory files or without /proc, it is a temporary file with mode 0600, which is
    removed afterwards.
    """
    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
            file: IO[str] = stack.enter_context(open(descriptor, "w"))
            os.fchmod(descriptor, 0o600)
            path = f"/proc/self/fd/{descriptor}"
            os.stat(path)
        except (AttributeError, OSError):
            file = stack.enter_context(tempfile.NamedTemporaryFile("w"))
            path = file.name
        file.write(text)
        file.flush()
        yield path
