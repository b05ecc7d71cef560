"""The protection of connections: converts `kafka.security.protocol`, `kafka.ssl.*` and
`kafka.sasl.*` to TLS and SASL.

The names are those of the Java client (stores as PEM or PKCS#12). Where librdkafka has other names,
these are accepted too. The mechanisms of SASL are PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677),
with a user's name and password, and OAUTHBEARER (RFC 7628), with a token (oauth.py). No message and
no repr contains a secret. A pickle of the options does, since tasks have to log in.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from pathlib import Path

from barnabas.client.key_stores import TYPES, KeyStoreError, pem_of_store
from barnabas.client.sasl import BearerExchange, Exchange, exchange_of_password
from barnabas.client.security_options import (
    MECHANISMS,
    NO_TOKENS,
    OAUTHBEARER,
    PLAIN,
    PROTOCOLS,
    SCRAM_HASHES,
    SecurityOptions,
    TokenSource,
)
from barnabas.client.tls_settings import TlsSettingError, apply_tls, parse_tls_settings

_UNSUPPORTED = {
    "GSSAPI": "Kerberos is not supported; use SCRAM-SHA-512, OAUTHBEARER, or PLAIN over TLS",
    "AWS_MSK_IAM": (
        "it needs a Java class; use OAUTHBEARER with oauthTokenProvider and the library "
        "aws-msk-iam-sasl-signer-python"
    ),
}
_MODULES = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": tuple(SCRAM_HASHES),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
}
TOKEN_PROVIDER = "oauthTokenProvider"
# JAAS names with this prefix are extensions, whose values are sent to the broker with a token.
_EXTENSION = "extension_"
# Java classes for OAUTHBEARER that are accepted and ignored, since this module does their work.
_TOKEN_CLASSES = {
    "login.callback.handler.class": ("OAuthBearerLoginCallbackHandler",),
    "oauthbearer.jwt.retriever.class": (
        "DefaultJwtRetriever",
        "ClientCredentialsJwtRetriever",
        "FileJwtRetriever",
    ),
}
_JAAS = re.compile(
    r"""(?P<name>[\w.]+)\s*=\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<bare>[^\s;"']+))"""
)

Text = Callable[[str], str | None]  # returns the value of an option by its full name, stripped


class SecurityError(ValueError):
    """An option is missing or wrong, or a certificate cannot be used.

    The message contains the name of the option, and never a secret.
    """


# --- options


def parse_security(text: Text) -> SecurityOptions:
    """Parse the options of the chosen protocol.

    Options of other protocols are ignored, as in the Java client.

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
    """Return the options with those of TLS added. Raises: SecurityError."""
    algorithm = text("kafka.ssl.endpoint.identification.algorithm")
    if algorithm is not None and algorithm.lower() not in ("https", "none", ""):
        raise SecurityError(
            f"option kafka.ssl.endpoint.identification.algorithm={algorithm!r}: give https, or an "
            "empty text for no check"
        )
    try:
        tls = parse_tls_settings(
            text("kafka.ssl.protocol"),
            text("kafka.ssl.enabled.protocols"),
            text("kafka.ssl.cipher.suites"),
        )
    except TlsSettingError as error:
        raise SecurityError(str(error)) from error
    return _with_certificates(options, text)._replace(
        tls=tls,
        check_hostname=algorithm is None or algorithm.lower() == "https",
    )


def _with_certificates(options: SecurityOptions, text: Text) -> SecurityOptions:
    """Return the options with the certificates added, each given as text or as a file. Raises:
    SecurityError.
    """
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
            raise SecurityError(f"options {names}: give either the certificates or their file")
    if bool(certificate_pem) != bool(key_pem):
        raise SecurityError(
            "options kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key: one needs "
            "the other"
        )
    if key_file and not certificate_file:
        raise SecurityError("option kafka.ssl.key.location needs kafka.ssl.certificate.location")
    return options._replace(
        ca_file=None if ca_pem else ca_file,
        ca_pem=ca_pem or None,
        ca_type=_store_type(text, "truststore"),
        ca_password=text("kafka.ssl.truststore.password"),
        certificate_type=_store_type(text, "keystore"),
        certificate_password=text("kafka.ssl.keystore.password"),
        certificate_file=certificate_file or None,
        certificate_pem=certificate_pem or None,
        key_file=key_file or None,
        key_pem=key_pem or None,
        key_password=text("kafka.ssl.key.password"),
    )


def _store_type(text: Text, store: str) -> str | None:
    """The type of a key or trust store; None if it is not set. Raises: SecurityError."""
    name = f"kafka.ssl.{store}.type"
    kind = text(name)
    if kind is None:
        return None
    if kind.upper() not in TYPES:
        raise SecurityError(f"option {name}={kind!r}: give PEM or PKCS12")
    return kind.upper()


def _with_sasl(options: SecurityOptions, text: Text) -> SecurityOptions:
    """Return the options with those of the login added. Raises: SecurityError."""
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
    _refuse_java_classes(text, mechanism)
    if mechanism == OAUTHBEARER:
        return options._replace(mechanism=mechanism, tokens=_token_source(text, jaas))
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
    return options._replace(mechanism=mechanism, username=username, password=password)


def _refuse_java_classes(text: Text, mechanism: str) -> None:
    """Reject Java's login classes, except Kafka's classes for OAUTHBEARER, which this module
    replaces.
    """
    for name, classes in _TOKEN_CLASSES.items():
        given = text(f"kafka.sasl.{name}")
        is_known = mechanism == OAUTHBEARER and (given or "").rsplit(".", 1)[-1] in classes
        if given and not is_known:
            raise SecurityError(
                f"option kafka.sasl.{name}={given!r}: Java classes are not supported; with "
                f"OAUTHBEARER {TOKEN_PROVIDER} names a function in Python that gives the token"
            )


def _token_source(text: Text, jaas: str | None) -> TokenSource:
    """Find the source of tokens: a function, a file, or an endpoint with client credentials.

    The credentials are options (KIP-1139) or, as in earlier releases, in the line of JAAS.

    Raises: SecurityError.
    """
    values = {} if jaas is None else _jaas_values(jaas, OAUTHBEARER)
    if any(name.startswith("unsecuredlogin") for name in values):
        raise SecurityError(
            "option kafka.sasl.jaas.config: unsecured tokens are not supported; give "
            f"kafka.sasl.oauthbearer.token.endpoint.url or {TOKEN_PROVIDER}"
        )
    url, provider = text("kafka.sasl.oauthbearer.token.endpoint.url"), text(TOKEN_PROVIDER)
    if bool(url) == bool(provider):
        raise SecurityError(
            f"kafka.sasl.mechanism=OAUTHBEARER needs one of the options {TOKEN_PROVIDER} "
            "(module:function) and kafka.sasl.oauthbearer.token.endpoint.url (https://… or "
            "file:///…), the source of tokens"
        )
    names = "kafka.sasl.oauthbearer.client.credentials.client."
    client_id = text(names + "id") or values.get("clientid", "")
    client_secret = text(names + "secret") or values.get("clientsecret", "")
    if url and not re.match(r"(https?://.|file:///)", url):
        raise SecurityError(
            f"option kafka.sasl.oauthbearer.token.endpoint.url={url!r}: give https://… or file:///…"
        )
    if url and not url.startswith("file:") and not (client_id and client_secret):
        raise SecurityError(
            f"kafka.sasl.oauthbearer.token.endpoint.url needs {names}id and {names}secret, or "
            "clientId and clientSecret in kafka.sasl.jaas.config"
        )
    return TokenSource(
        endpoint_url=url or "",
        client_id=client_id,
        client_secret=client_secret,
        scope=text("kafka.sasl.oauthbearer.scope") or values.get("scope", ""),
        encodes_header=(text("kafka.sasl.oauthbearer.header.urlencode") or "").lower() == "true",
        provider=provider or "",
        extensions=tuple(
            (name.removeprefix(_EXTENSION), value)
            for name, value in sorted(values.items())
            if name.startswith(_EXTENSION)
        ),
        timeout_ms=_milliseconds(text, "read.timeout.ms", NO_TOKENS.timeout_ms),
        retry_backoff_ms=_milliseconds(text, "retry.backoff.ms", NO_TOKENS.retry_backoff_ms),
        retry_backoff_max_ms=_milliseconds(
            text, "retry.backoff.max.ms", NO_TOKENS.retry_backoff_max_ms
        ),
    )


def _milliseconds(text: Text, name: str, default: int) -> int:
    """A positive number of milliseconds in an option of the login; the default if it is not set."""
    given = text(f"kafka.sasl.login.{name}")
    if given is None:
        return default
    if not given.isdigit() or not int(given):
        raise SecurityError(
            f"option kafka.sasl.login.{name}={given!r}: give a whole number above 0"
        )
    return int(given)


def parse_jaas(config: str, mechanism: str) -> tuple[str, str]:
    """Read the name and password in a line of JAAS.

    The line looks like: org.apache…ScramLoginModule required username="me" password="it";

    Raises: SecurityError, which never shows the line.
    """
    values = _jaas_values(config, mechanism)
    return values.get("username", ""), values.get("password", "")


def _jaas_values(config: str, mechanism: str) -> dict[str, str]:
    """Read the values in a line of JAAS, by name.

    The names are converted to lower case, except those of extensions.
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
            f"option kafka.sasl.jaas.config: {module} is unknown; use PlainLoginModule, "
            "ScramLoginModule or OAuthBearerLoginModule"
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
        is_extension = entry["name"].startswith(_EXTENSION)
        values[entry["name"] if is_extension else entry["name"].lower()] = (
            entry["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        )
        position = entry.end()
    if rest[position:].strip():
        raise SecurityError(f"option kafka.sasl.jaas.config is not of the form: {example}")
    if values.get("tokenauth", "false").lower() == "true":
        raise SecurityError(
            "option kafka.sasl.jaas.config: delegation tokens (tokenauth) are not supported; "
            "use a user's name and password"
        )
    return values


# --- TLS


def ssl_context(options: SecurityOptions) -> ssl.SSLContext:
    """Make the TLS context for the options.

    Raises: SecurityError if a certificate or key cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = options.check_hostname
    try:
        apply_tls(options.tls, context)
    except TlsSettingError as error:
        raise SecurityError(str(error)) from None
    if options.ca_file or options.ca_pem:
        name = (
            "kafka.ssl.truststore.location"
            if options.ca_file
            else "kafka.ssl.truststore.certificates"
        )
        pem = options.ca_pem or _pem_of(options.ca_file, name, options.ca_type, options.ca_password)
        try:
            context.load_verify_locations(cadata=pem)
        except (ssl.SSLError, ValueError) as error:
            raise SecurityError(
                f"option {name}: these are not certificates in PEM form ({_why(error)})"
            ) from error
    else:
        context.load_default_certs()
    if options.certificate_file or options.certificate_pem:
        _load_own(context, options)
    return context


def _load_own(context: ssl.SSLContext, options: SecurityOptions) -> None:
    """Load the certificate and key of this client.

    OpenSSL reads them only from files. If they are given as text, the text is written to a
    temporary file that only this user can read.
    """
    name = (
        "kafka.ssl.keystore.location"
        if options.certificate_file
        else "kafka.ssl.keystore.certificate.chain"
    )
    certificate = options.certificate_pem or _pem_of(
        options.certificate_file, name, options.certificate_type, options.certificate_password
    )
    key = options.key_pem or (
        _pem_of(options.key_file, "kafka.ssl.key.location") if options.key_file else certificate
    )
    import tempfile

    with tempfile.TemporaryDirectory(prefix="barnabas-tls-") as directory:
        files = (
            _private_file(directory, "certificate.pem", certificate),
            _private_file(directory, "key.pem", key),
        )
        try:
            # Without a password function, OpenSSL would ask for the password on the terminal.
            context.load_cert_chain(*files, password=lambda: options.key_password or "")
        except (ssl.SSLError, ValueError) as error:
            hint = "kafka.ssl.key.password is missing or wrong, or " if "ENCRYPTED" in key else ""
            raise SecurityError(
                f"option {name}: {hint}certificate and key do not fit or are not in PEM form "
                f"({_why(error)})"
            ) from None


def _private_file(directory: str, name: str, text: str) -> str:
    """Write a file that only this user can read. Gives: its path."""
    file = Path(directory, name)
    file.touch(mode=0o600)
    file.write_text(text)
    return str(file)


def _pem_of(
    path: str | None, option: str, kind: str | None = None, password: str | None = None
) -> str:
    """The content of a store as PEM. Raises: SecurityError."""
    assert path is not None
    try:
        return pem_of_store(path, option, kind=kind, password=password)
    except KeyStoreError as error:
        raise SecurityError(str(error)) from None


def _why(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error) or type(error).__name__


# --- SASL


def exchange(options: SecurityOptions) -> Exchange:
    """Begin a login with the chosen mechanism."""
    assert options.mechanism is not None
    if options.mechanism == OAUTHBEARER:
        return BearerExchange(options.tokens)
    return exchange_of_password(options.mechanism, options.username, options.password)
