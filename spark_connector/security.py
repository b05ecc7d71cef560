"""The protection of connections: `kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*` -> TLS
and SASL.

Names are those of the Java client (certificates as PEM) and, where it has others, those of
librdkafka. SASL has two mechanisms that need nothing but a user's name and password: PLAIN (RFC
4616) and SCRAM (RFC 5802, RFC 7677). No message and no repr contains a secret; a pickle of the
options does, since tasks have to log in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN = "PLAIN"
SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = (PLAIN, *SCRAM_HASHES)
# With fewer a server may be fishing for passwords; more would only keep us busy.
LEAST_ITERATIONS, MOST_ITERATIONS = 4096, 10_000_000

_UNSUPPORTED = {
    "OAUTHBEARER": "tokens come from a Java class there; use SCRAM-SHA-512, or PLAIN over TLS",
    "GSSAPI": "Kerberos is not spoken here; use SCRAM-SHA-512, or PLAIN over TLS",
}
_MODULES = {"PlainLoginModule": (PLAIN,), "ScramLoginModule": tuple(SCRAM_HASHES)}
_STORE_SUFFIXES = (".jks", ".p12", ".pfx", ".keystore", ".truststore", ".bcfks")
_TO_PEM = (
    "make it PEM: `keytool -importkeystore -srckeystore STORE -destkeystore store.p12 "
    "-deststoretype PKCS12`, then "
    "`openssl pkcs12 -in store.p12 {what} -out store.pem`, and give {option} = store.pem"
)
_JAAS = re.compile(
    r"""(?P<name>[\w.]+)\s*=\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<bare>[^\s;"']+))"""
)

Text = Callable[[str], str | None]  # an option's value by its full name, stripped


class SecurityError(ValueError):
    """An option that is missing or wrong, or a certificate that cannot be used.

    The message names the option, never a secret.
    """


class AuthenticationError(Exception):
    """The broker refuses the user, or is not who it should be."""


@dataclass(frozen=True)
class SecurityOptions:
    """The protection of a connection.

    Of `x_file` and `x_pem` at most one is set. Without ca_file and ca_pem the system's authorities
    count.
    """

    protocol: str = "PLAINTEXT"
    ca_file: str | None = None
    ca_pem: str | None = field(default=None, repr=False)
    certificate_file: str | None = None
    certificate_pem: str | None = field(default=None, repr=False)
    key_file: str | None = None  # None: the key is in certificate_file
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")


UNPROTECTED = SecurityOptions()

# --- options


def parse_security(text: Text) -> SecurityOptions:
    """The options of the protocol that is chosen.

    Those of the other ones are passed over, as the Java client does.

    Raises: SecurityError.
    """
    given = text("kafka.security.protocol")
    protocol = (given or "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise SecurityError(
            f"option kafka.security.protocol={given!r}: give {', '.join(PROTOCOLS[:-1])} or "
            f"{PROTOCOLS[-1]}"
        )
    options = SecurityOptions(protocol)
    if options.uses_tls:
        options = _with_tls(options, text)
    return _with_sasl(options, text) if options.uses_sasl else options


def _with_tls(options: SecurityOptions, text: Text) -> SecurityOptions:
    _refuse_store(text, "truststore", "-nokeys")
    _refuse_store(text, "keystore", "-nodes")
    algorithm = text("kafka.ssl.endpoint.identification.algorithm")
    if algorithm is not None and algorithm.lower() not in ("https", "none", ""):
        raise SecurityError(
            f"option kafka.ssl.endpoint.identification.algorithm={algorithm!r}: give https, or an "
            "empty text for no check"
        )
    ca_pem = text("kafka.ssl.truststore.certificates") or text("kafka.ssl.ca.pem")
    ca_file = text("kafka.ssl.truststore.location") or text("kafka.ssl.ca.location")
    certificate_pem = text("kafka.ssl.keystore.certificate.chain") or text(
        "kafka.ssl.certificate.pem"
    )
    key_pem = text("kafka.ssl.keystore.key") or text("kafka.ssl.key.pem")
    certificate_file = text("kafka.ssl.keystore.location") or text("kafka.ssl.certificate.location")
    key_file = text("kafka.ssl.key.location")
    for inline, file, names in (
        (ca_pem, ca_file, "kafka.ssl.truststore.certificates and kafka.ssl.truststore.location"),
        (
            certificate_pem,
            certificate_file,
            "kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.location",
        ),
    ):
        if inline and file:
            raise SecurityError(
                f"options {names}: give one of them, the certificates or the file that they are in"
            )
    if bool(certificate_pem) != bool(key_pem):
        raise SecurityError(
            "options kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key: one needs "
            "the other"
        )
    if key_file and not certificate_file:
        raise SecurityError("option kafka.ssl.key.location needs kafka.ssl.certificate.location")
    return replace(
        options,
        ca_file=None if ca_pem else ca_file,
        ca_pem=ca_pem or None,
        certificate_file=certificate_file or None,
        certificate_pem=certificate_pem or None,
        key_file=key_file or None,
        key_pem=key_pem or None,
        key_password=text("kafka.ssl.key.password"),
        check_hostname=algorithm is None or algorithm.lower() == "https",
    )


def _refuse_store(text: Text, store: str, what: str) -> None:
    """Refuse Java's own stores, which OpenSSL cannot read."""
    kind = text(f"kafka.ssl.{store}.type")
    location = text(f"kafka.ssl.{store}.location") or ""
    option = f"kafka.ssl.{store}.location"
    if kind is not None and kind.upper() != "PEM":
        raise SecurityError(
            f"option kafka.ssl.{store}.type={kind!r} cannot be read without Java: "
            + _TO_PEM.format(what=what, option=option)
        )
    if kind is None and location.lower().endswith(_STORE_SUFFIXES):
        raise SecurityError(
            f"option {option}={location!r} looks like a Java store: "
            + _TO_PEM.format(what=what, option=option)
        )


def _with_sasl(options: SecurityOptions, text: Text) -> SecurityOptions:
    name = text("kafka.sasl.mechanism") or text("kafka.sasl.mechanisms")
    if not name:
        raise SecurityError(
            f"option kafka.sasl.mechanism is missing: give {', '.join(MECHANISMS[:-1])} or "
            f"{MECHANISMS[-1]}"
        )
    mechanism = name.upper()
    if mechanism in _UNSUPPORTED:
        raise SecurityError(f"option kafka.sasl.mechanism={name!r}: {_UNSUPPORTED[mechanism]}")
    if mechanism not in MECHANISMS:
        raise SecurityError(
            f"option kafka.sasl.mechanism={name!r}: give {', '.join(MECHANISMS[:-1])} or "
            f"{MECHANISMS[-1]}"
        )
    jaas = text("kafka.sasl.jaas.config")
    if jaas is not None:
        username, password = parse_jaas(jaas, mechanism)
    else:
        username, password = text("kafka.sasl.username") or "", text("kafka.sasl.password") or ""
    if not username or not password:
        where = (
            "kafka.sasl.jaas.config"
            if jaas is not None
            else "kafka.sasl.username and kafka.sasl.password, or in kafka.sasl.jaas.config"
        )
        raise SecurityError(
            f"kafka.sasl.mechanism={mechanism} needs a user's name and password: give them in "
            f"{where}"
        )
    return replace(options, mechanism=mechanism, username=username, password=password)


def parse_jaas(config: str, mechanism: str) -> tuple[str, str]:
    """The name and password of a line of JAAS.

    It looks like: org.apache…ScramLoginModule required username="me" password="it";

    Raises: SecurityError, which never shows the line.
    """
    example = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="..." password="...";'
    )
    parts = re.match(
        r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*$",
        config,
        re.DOTALL | re.IGNORECASE,
    )
    if parts is None:
        raise SecurityError(f"option kafka.sasl.jaas.config is not of the form: {example}")
    module = parts.group(1).rsplit(".", 1)[-1]
    if module not in _MODULES:
        raise SecurityError(
            f"option kafka.sasl.jaas.config: {module} is not known here; PlainLoginModule and "
            "ScramLoginModule are"
        )
    if mechanism not in _MODULES[module]:
        raise SecurityError(
            f"option kafka.sasl.jaas.config has {module}, which does not fit "
            f"kafka.sasl.mechanism={mechanism}"
        )
    values: dict[str, str] = {}
    position, rest = 0, parts.group(2)
    for entry in _JAAS.finditer(rest):
        if rest[position : entry.start()].strip():
            break
        quoted = entry["double"] if entry["double"] is not None else entry["single"]
        values[entry["name"].lower()] = (
            entry["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        )
        position = entry.end()
    if rest[position:].strip():
        raise SecurityError(f"option kafka.sasl.jaas.config is not of the form: {example}")
    if values.get("tokenauth", "false").lower() == "true":
        raise SecurityError(
            "option kafka.sasl.jaas.config: delegation tokens (tokenauth) are not spoken here; use "
            "a user's name and password"
        )
    return values.get("username", ""), values.get("password", "")


# --- TLS


def ssl_context(options: SecurityOptions) -> ssl.SSLContext:
    """The TLS context of the options.

    Raises: SecurityError where a certificate or key cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = options.check_hostname
    if options.ca_file or options.ca_pem:
        name = (
            "kafka.ssl.truststore.location"
            if options.ca_file
            else "kafka.ssl.truststore.certificates"
        )
        pem = options.ca_pem or _pem_of(options.ca_file, name)
        try:
            context.load_verify_locations(cadata=pem)
        except (ssl.SSLError, ValueError) as error:
            raise SecurityError(
                f"option {name}: these are no certificates in PEM form ({_why(error)})"
            ) from error
    else:
        context.load_default_certs()
    if options.certificate_file or options.certificate_pem:
        _load_own(context, options)
    return context


def _load_own(context: ssl.SSLContext, options: SecurityOptions) -> None:
    """Load our own certificate and key.

    OpenSSL takes them from files only: what is given as text is in one for this moment, for this
    user alone.
    """
    name = (
        "kafka.ssl.keystore.location"
        if options.certificate_file
        else "kafka.ssl.keystore.certificate.chain"
    )
    certificate = options.certificate_pem or _pem_of(options.certificate_file, name)
    key = options.key_pem or (
        _pem_of(options.key_file, "kafka.ssl.key.location") if options.key_file else certificate
    )
    with tempfile.TemporaryDirectory(prefix="barnabas-tls-") as directory:
        if options.certificate_file:
            files = options.certificate_file, options.key_file or options.certificate_file
        else:
            files = (
                _private_file(directory, "certificate.pem", certificate),
                _private_file(directory, "key.pem", key),
            )
        try:
            # Without a function for the password OpenSSL would ask for it on the terminal.
            context.load_cert_chain(*files, password=lambda: options.key_password or "")
        except (ssl.SSLError, ValueError) as error:
            hint = "kafka.ssl.key.password is missing or wrong, or " if "ENCRYPTED" in key else ""
            raise SecurityError(
                f"option {name}: {hint}certificate and key do not fit or are not in PEM form "
                f"({_why(error)})"
            ) from None


def _private_file(directory: str, name: str, text: str) -> str:
    file = Path(directory, name)
    file.touch(mode=0o600)
    file.write_text(text)
    return str(file)


def _pem_of(path: str | None, option: str) -> str:
    assert path is not None
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SecurityError(
            f"option {option}={path!r}: {error.strerror}; the file has to be on each machine that "
            "runs tasks"
        ) from error
    if b"-----BEGIN" not in data:
        what = "-nokeys" if "truststore" in option or "ca." in option else "-nodes"
        raise SecurityError(
            f"option {option}={path!r} is not PEM: if it is a Java store, "
            + _TO_PEM.format(what=what, option=option)
        )
    return data.decode("utf-8", "replace")


def _why(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error) or type(error).__name__


# --- SASL


def exchange(options: SecurityOptions) -> Exchange:
    """A fresh login by the mechanism that was chosen."""
    assert options.mechanism is not None
    if options.mechanism == PLAIN:
        return PlainExchange(options.username, options.password)
    return ScramExchange(SCRAM_HASHES[options.mechanism], options.username, options.password)


class Exchange:
    """The client's side of a login.

    `first()`, then `answer(challenge)` to what the server says, until that gives None.
    """

    def first(self) -> bytes:
        raise NotImplementedError

    def answer(self, challenge: bytes) -> bytes | None:
        raise NotImplementedError


class PlainExchange(Exchange):
    """RFC 4616: name and password as they are. Only for TLS, or where nobody listens."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class ScramExchange(Exchange):
    """RFC 5802 without channel binding: the server proves, too, that it knows the password.

    Names and passwords go as UTF-8 without SASLprep, as Apache Kafka has it.
    """

    def __init__(
        self, hash_name: str, username: str, password: str, nonce: str | None = None
    ) -> None:
        self._hash_name = hash_name
        self._password = password.encode()
        self._nonce = nonce or base64.b64encode(os.urandom(24)).decode()
        self._first_bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """The answer to the server's first message, None to its last.

        Raises: AuthenticationError where the server does not keep to the RFC, refuses, or does not
                know the password.
        """
        try:
            text = challenge.decode()
            if self._server_signature is None:
                return self._final(text)
            self._verify(text)
            return None
        except ValueError as error:
            raise AuthenticationError("the broker's answer is not SCRAM") from error

    def _final(self, server_first: str) -> bytes:
        attributes = _attributes(server_first)
        if "e" in attributes:
            raise AuthenticationError(f"the broker says {attributes['e']!r}")
        if not {"r", "s", "i"} <= attributes.keys() or "m" in attributes:
            raise AuthenticationError("the broker's answer is not SCRAM")
        nonce, iterations = attributes["r"], int(attributes["i"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError("the broker's nonce does not continue ours")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise AuthenticationError(
                f"the broker asks for {iterations} iterations; {LEAST_ITERATIONS} to "
                f"{MOST_ITERATIONS} are done"
            )
        salted = hashlib.pbkdf2_hmac(
            self._hash_name,
            self._password,
            base64.b64decode(attributes["s"], validate=True),
            iterations,
        )
        without_proof = f"c=biws,r={nonce}"  # biws is "n,," in base64
        message = f"{self._first_bare},{server_first},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash_name, client_key).digest(), message)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, server_final: str) -> None:
        attributes = _attributes(server_final)
        if "e" in attributes:
            raise AuthenticationError(f"the broker says {attributes['e']!r}")
        assert self._server_signature is not None
        if not hmac.compare_digest(
            base64.b64decode(attributes.get("v", ""), validate=True), self._server_signature
        ):
            raise AuthenticationError(
                "the broker does not know the password: it may be another one that takes its place"
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash_name).digest()


def _attributes(message: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in message.split(",") if part[1:2] == "="}
