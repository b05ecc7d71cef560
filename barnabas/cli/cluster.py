"""Connections to a cluster, made from the options that commands share.

They work with any Kafka broker, also over TLS and SASL, and negotiate versions.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from barnabas.cli.client.calls import CLIENT_ID
from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.errors import CommandError
from barnabas.cli.waiting import Waiting

if TYPE_CHECKING:
    from barnabas import TwoPhaseProducer

_DIRECT = {  # Kafka's name (or librdkafka's) -> the name here
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
_OF_REGISTRY_AUTH = (
    "basic.auth.credentials.source", "basic.auth.user.info", "bearer.auth.credentials.source",
    "bearer.auth.token",
)  # fmt: skip
REGISTRY_NAMES = frozenset(
    {
        "schema.registry.url", *_OF_REGISTRY_AUTH,
        *(f"schema.registry.{name}" for name in _OF_REGISTRY_AUTH),
        *(f"schema.registry.{name}" for name in _DIRECT if name.startswith("ssl.")),
    }
)  # fmt: skip
SETTING_NAMES = frozenset(
    {
        *_DIRECT, *REGISTRY_NAMES, "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url",
        "ssl.endpoint.identification.algorithm",
    }
)  # fmt: skip
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TOKEN_FILE = "sasl.oauthbearer.token.endpoint.url"
_PASSED_OVER = ("ssl.truststore.type", "ssl.keystore.type")  # ignored, since only PEM is supported
# prefixes of the settings of a schema registry
OF_REGISTRY = ("schema.registry.", "basic.auth.", "bearer.auth.")
_JAAS = re.compile(r'(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^\s;]+))')


def client_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """Kafka's client settings by the names of _DIRECT. Raises: CommandError for an unknown
    setting.
    """
    settings: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _DIRECT:
            settings[_DIRECT[name]] = value
        elif name == "sasl.jaas.config":
            for match in _JAAS.finditer(value):
                text = next(part for part in match.groups()[1:] if part is not None)
                settings[f"sasl_plain_{match[1]}"] = text
        elif name == TOKEN_FILE:
            settings["sasl_oauth_token_url"] = _token_url(value)
        elif name == "ssl.endpoint.identification.algorithm":
            settings["ssl_check_hostname"] = value.lower() not in ("", "none")
        elif name not in (*_PASSED_OVER, "bootstrap.servers") and not name.startswith(OF_REGISTRY):
            raise CommandError(
                f"--client-config: {name} is unknown; use one of "
                f"{', '.join(sorted([*_DIRECT, 'sasl.jaas.config', TOKEN_FILE]))}"
            )
    for key in ("ssl_cafile", "ssl_certfile"):
        if path := settings.get(key):
            check_is_pem(str(path))
    protocol = str(settings.get("security_protocol", ""))
    if protocol and protocol not in PROTOCOLS:
        raise CommandError(
            f"--client-config: security.protocol={protocol} must be one of {', '.join(PROTOCOLS)}"
        )
    if protocol.startswith("SASL_") and "sasl_mechanism" not in settings:
        raise CommandError(
            f"--client-config: security.protocol={protocol} needs sasl.mechanism, such as "
            "SCRAM-SHA-512, and a user"
        )
    return settings


def check_is_pem(path: str) -> None:
    """Raise CommandError if a file is a key store in another form than PEM, whatever its name."""
    from barnabas.pkcs12 import JKS, PKCS12, kind_of_store

    try:
        with open(path, "rb") as file:
            kind = kind_of_store(file.read())
    except OSError:
        return  # reported elsewhere
    to_pem = "`openssl pkcs12 -in {} -nodes -out store.pem`"
    if kind == PKCS12:
        raise CommandError(
            f"--client-config: {path} is PKCS#12; only PEM files are read: {to_pem.format(path)}"
        )
    if kind == JKS:
        raise CommandError(
            f"--client-config: {path} is a Java key store; only PEM files are read: `keytool "
            f"-importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12`, "
            f"then {to_pem.format('store.p12')}"
        )


def _check_files(properties: Mapping[str, str]) -> None:
    """Raise CommandError if a key, certificate or CA file of TLS does not exist."""
    for name, key in _DIRECT.items():
        path = (
            properties.get(name) if key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile") else None
        )
        if path is not None and not os.path.exists(path):
            raise CommandError(f"--client-config: {name}={path}: the file does not exist")


def _token_url(url: str) -> str:
    """The URL of the file with an OAUTHBEARER token. Raises: CommandError for any other URL."""
    if not url.removeprefix("file://").startswith("/"):
        raise CommandError(
            f"--client-config: {TOKEN_FILE}={url} must be file:///PATH, a file with the token: "
            "get one with the issuer's tool"
        )
    return url if url.startswith("file://") else f"file://{url}"


def read_properties(path: str) -> dict[str, str]:
    """The settings in a file of properties. Raises: CommandError."""
    from barnabas.storage.files.checkpoints import CorruptCheckpoint, decode_properties

    try:
        with open(path, "rb") as file:
            return decode_properties(file.read())
    except (OSError, CorruptCheckpoint) as error:
        raise CommandError(f"cannot read {path}: {error}") from error


class Connection:
    """The addresses, settings and timeout for a cluster. It creates the clients of the cluster."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_config: str | None,
        timeout_s: float,
        more_settings: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
    ) -> None:
        """Takes: more_settings, the settings that the file of --client-config overrides, and the
        settings that override the file.
        """
        self.bootstrap_servers = bootstrap_servers
        self.timeout_s = timeout_s
        self._client_config = client_config
        self._more_settings = more_settings

    @property
    def waiting(self) -> Waiting:
        """The `Waiting` with which commands wait for this cluster."""
        return Waiting(self.bootstrap_servers, self.timeout_s)

    @property
    def timeout_ms(self) -> int:
        """The time limit for a response, in ms."""
        return round(self.timeout_s * 1000)

    def addresses(self) -> list[tuple[str, int]]:
        """The bootstrap addresses. Raises: CommandError if one is malformed."""
        addresses = []
        for text in self.bootstrap_servers.split(","):
            host, colon, port = text.strip().rpartition(":")
            if not colon or host.endswith(":"):
                host, port = text.strip(), "9092"
            if not port.isdigit() or not 0 < int(port) < 65536:
                raise CommandError(
                    f"{text!r} is not an address: write HOST:PORT, as in 127.0.0.1:9092"
                )
            addresses.append((host.strip("[]") or "127.0.0.1", int(port)))
        return addresses

    def properties(self) -> dict[str, str]:
        """The client's settings from all sources, by Kafka's names."""
        below, above = self._more_settings
        return {**below, **self._of_file(), **above}

    def _of_file(self) -> dict[str, str]:
        """The settings in the file of --client-config."""
        return {} if not self._client_config else read_properties(self._client_config)

    def registry_properties(self) -> dict[str, str]:
        """The settings that are for a schema registry."""
        properties = self.properties()
        return {name: properties[name] for name in properties if name.startswith(OF_REGISTRY)}

    def principal(self) -> str:
        """The principal that the client authenticates as. A client certificate's name is not read,
        so it is shown as CN=NAME.
        """
        settings = client_settings(self.properties())
        if settings.get("security_protocol", "PLAINTEXT") == "SSL" and "ssl_certfile" in settings:
            return "User:CN=NAME"
        return f"User:{settings.get('sasl_plain_username', 'ANONYMOUS')}"

    def has_login(self) -> bool:
        """Whether the client's settings have a SASL login."""
        return "sasl_mechanism" in client_settings(self.properties())

    def settings(self) -> dict[str, Any]:
        """The client's settings from all sources, by the names of `client_settings`."""
        properties = self.properties()
        _check_files(properties)
        return {"client_id": CLIENT_ID, **client_settings(properties)}

    def _client(self) -> ClusterClient:
        """A client of the cluster that is not connected yet. Raises: CommandError for a wrong
        setting.
        """
        settings = self.settings()
        return ClusterClient(
            self.addresses(), settings, self.waiting, functools.partial(self._mistake, settings)
        )

    def check(self) -> None:
        """Connect and log in, and close the connection.

        A TwoPhaseProducer would retry for a long time, so this is done before one is created.

        Raises: CommandError at once if nothing listens or a setting is wrong.
        """
        client = self._client()
        client.connect()
        client.close()

    def _mistake(self, settings: Mapping[str, Any]) -> str:
        """The error in the security settings, found by a probe of the first address that
        responds.
        """
        from barnabas.cli.probe import mistake, probe

        protocol = str(settings.get("security_protocol", "PLAINTEXT"))
        for host, port in self.addresses():
            if (spoken := probe(host, port)) is not None:
                mechanism = settings.get("sasl_mechanism")
                return mistake(spoken, f"{host}:{port}", protocol, mechanism)
        return ""

    @contextmanager
    def admin(self) -> Iterator[ClusterClient]:
        """A connected client that administers the cluster."""
        client = self._client()
        try:
            client.connect()
            yield client
        finally:
            client.close()

    def two_phase_producer(self, transactional_id: str) -> TwoPhaseProducer:
        """A producer for two-phase commit. It accepts settings only by Kafka's names."""
        self.check()
        from barnabas import TwoPhaseProducer

        of_kafka = {
            name: value
            for name, value in self.properties().items()
            if not name.startswith(OF_REGISTRY)
        }
        settings = {"client.id": CLIENT_ID, **of_kafka}
        return TwoPhaseProducer(
            self.bootstrap_servers,
            transactional_id,
            settings=settings,
            patience_ms=self.timeout_ms,
        )
