"""Connections to a cluster: kafka-python's clients, made from the options that commands share.

They work with any Kafka broker, over TLS and SASL too, and negotiate versions. kafka-python is
imported when a client is created, since the import takes a third of a second.
"""

from __future__ import annotations

import functools
import logging
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.cli.errors import CommandError
from barnabas.cli.waiting import Patient, Waiting, closing
from barnabas.storage.files.checkpoints import CorruptCheckpoint, decode_properties

if TYPE_CHECKING:
    from barnabas import TwoPhaseProducer

CLIENT_ID = "barnabas-cli"
CONNECT_TIMEOUT_S = 5.0
PROBE_AFTER_S = 1.0
CLIENT_CONFIG = "in the file of --client-config"
DELIVERY_TIMEOUT_MS = 120_000
COORDINATOR_PART = 0.8  # of --timeout: its reason is better than that of a wait that is over
MAX_IDLE_MS = 540_000  # kafka-python demands that it is above its request timeout
CONSUMER_AT_ONCE = frozenset({"poll", "position", "assign", "seek", "pause", "resume", "last_read"})
PRODUCER_AT_ONCE = frozenset({"send", "begin_transaction"})
_DIRECT = {  # Kafka's name (or librdkafka's) -> kafka-python's
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
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TOKEN_FILE = "sasl.oauthbearer.token.endpoint.url"
_PASSED_OVER = ("ssl.truststore.type", "ssl.keystore.type")  # only PEM is supported
OF_REGISTRY = ("schema.registry.", "basic.auth.", "bearer.auth.")  # of a schema registry
_JAAS = re.compile(r'(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^\s;]+))')


def client_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """Kafka's client settings by kafka-python's names. Raises CommandError for an unknown one."""
    settings: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _DIRECT:
            settings[_DIRECT[name]] = value
        elif name == "sasl.jaas.config":
            for match in _JAAS.finditer(value):
                text = next(part for part in match.groups()[1:] if part is not None)
                settings[f"sasl_plain_{match[1]}"] = text
        elif name == TOKEN_FILE:
            settings["sasl_oauth_token_provider"] = _token_provider(value)
        elif name == "ssl.endpoint.identification.algorithm":
            settings["ssl_check_hostname"] = value.lower() not in ("", "none")
        elif name not in (*_PASSED_OVER, "bootstrap.servers") and not name.startswith(OF_REGISTRY):
            raise CommandError(
                f"--client-config: {name} is unknown here; known are "
                f"{', '.join(sorted([*_DIRECT, 'sasl.jaas.config', TOKEN_FILE]))}"
            )
    for key in ("ssl_cafile", "ssl_certfile"):
        if str(settings.get(key, "")).endswith((".jks", ".p12", ".pfx")):
            raise CommandError(
                f"--client-config: {settings[key]} is a Java key store; only PEM files are read: "
                "`keytool -importkeystore … -deststoretype PKCS12`, then `openssl pkcs12 -nodes`"
            )
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


def _check_files(properties: Mapping[str, str]) -> None:
    """Raise CommandError for a file of TLS that does not exist."""
    for name, key in _DIRECT.items():
        path = (
            properties.get(name) if key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile") else None
        )
        if path is not None and not Path(path).exists():
            raise CommandError(f"--client-config: {name}={path}: no such file")


def _token_provider(url: str) -> Any:
    """A provider that gives kafka-python the current OAUTHBEARER token of a file.

    Raises: CommandError where the URL names no file.
    """
    from kafka.net.sasl.oauth import AbstractTokenProvider

    path = url.removeprefix("file://")
    if not path.startswith("/"):
        raise CommandError(
            f"--client-config: {TOKEN_FILE}={url} must be file:///PATH, a file with the token: get "
            "one from the issuer by its own tool"
        )

    class TokenOfFile(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            try:
                return Path(path).read_text(encoding="ascii").strip()
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "it is no token"
                raise CommandError(f"--client-config: {TOKEN_FILE}={url}: {reason}") from error

    return TokenOfFile()


CERTIFICATE_REFUSED = re.compile(r"CERTIFICATE_VERIFY_FAILED\] (.*?)(?: \(_ssl\.c:.*)?$")


class _Refusals(logging.Handler):
    """Why connections fail: kafka-python logs the reason, and retries.

    Takes: probe, gives what is wrong with the client's settings for the port; it is called once,
           after a failure without a reason, or after a second without an answer.
    """

    def __init__(self, probe: Callable[[], str]) -> None:
        super().__init__(logging.WARNING)
        self._probe: Callable[[], str] | None = probe
        self._reason = ""
        self._has_failed = False
        self._began = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Look for a refused login or certificate in a log record."""
        said = " ".join(record.getMessage().split())
        if record.levelno >= logging.ERROR or "failed" in said:
            self._has_failed = True
        login = "SaslAuthenticationFailedError: "
        if login in said:
            why = said.rpartition(login)[2].partition(" (backoff")[0].rstrip(".")
            self._reason = (
                f"the broker refuses the login: {why}; see sasl.username and sasl.password, or "
                f"sasl.jaas.config, {CLIENT_CONFIG}"
            )
        elif match := CERTIFICATE_REFUSED.search(said):
            self._reason = _certificate_reason(match[1].rstrip("."))
        elif "CERTIFICATE_REQUIRED" in said.upper().replace(" ", "_"):
            self._reason = (
                "the broker asks for the client's certificate: set ssl.keystore.location, and "
                f"ssl.key.location if the key is in another file, {CLIENT_CONFIG}"
            )

    def reason(self) -> str:
        """Why no connection will be made; empty where it is not known."""
        is_late = time.monotonic() - self._began > PROBE_AFTER_S
        if not self._reason and self._probe is not None and (self._has_failed or is_late):
            probe, self._probe = self._probe, None
            self._reason = probe() or self._reason
        return self._reason

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Raise CommandError with the reason where a client cannot connect."""
        logger = logging.getLogger("kafka")
        logger.setLevel(logging.WARNING)
        logger.propagate = False  # we report errors, once
        logger.addHandler(self)
        try:
            yield
        except CommandError:
            raise
        except Exception as error:
            if reason := self.reason():
                raise CommandError(reason) from error
            raise
        finally:
            logger.removeHandler(self)
            logger.setLevel(logging.CRITICAL)


def _certificate_reason(why: str) -> str:
    if "mismatch" in why.lower():
        return f"{why}: connect by a name of the certificate, with -b NAME:PORT"
    return (
        f"the broker's certificate is not trusted ({why.partition(': ')[2] or why}): set "
        f"ssl.truststore.location to a PEM file with its CA {CLIENT_CONFIG}"
    )


class Connection:
    """The connection to a cluster, and its clients."""

    def __init__(self, bootstrap_servers: str, client_config: str | None, timeout_s: float) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.timeout_s = timeout_s
        self._client_config = client_config

    @property
    def waiting(self) -> Waiting:
        """How commands wait for this cluster."""
        return Waiting(self.bootstrap_servers, self.timeout_s)

    @property
    def timeout_ms(self) -> int:
        """How long to wait for an answer."""
        return round(self.timeout_s * 1000)

    def addresses(self) -> list[tuple[str, int]]:
        """The bootstrap addresses. Raises CommandError where one is wrong."""
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

    def _properties(self) -> dict[str, str]:
        """The settings in the file of --client-config."""
        if not self._client_config:
            return {}
        try:
            with open(self._client_config, "rb") as file:
                return decode_properties(file.read())
        except (OSError, CorruptCheckpoint) as error:
            raise CommandError(f"cannot read {self._client_config}: {error}") from error

    def registry_properties(self) -> dict[str, str]:
        """The settings that are for a schema registry."""
        properties = self._properties()
        return {name: properties[name] for name in properties if name.startswith(OF_REGISTRY)}

    def principal(self) -> str:
        """The principal as which the client logs in, as far as its settings say."""
        settings = client_settings(self._properties())
        if settings.get("security_protocol", "PLAINTEXT") == "SSL" and "ssl_certfile" in settings:
            return "User:CN=NAME"
        return f"User:{settings.get('sasl_plain_username', 'ANONYMOUS')}"

    def settings(self) -> dict[str, Any]:
        """kafka-python's settings, for any of its clients."""
        properties = self._properties()
        _check_files(properties)
        settings = {"client_id": CLIENT_ID, **client_settings(properties)}
        settings["bootstrap_servers"] = self.bootstrap_servers.split(",")
        settings["bootstrap_timeout_ms"] = self.timeout_ms
        settings["request_timeout_ms"] = self.timeout_ms
        settings["connections_max_idle_ms"] = max(MAX_IDLE_MS, 2 * self.timeout_ms)
        return settings

    def try_connect(self) -> None:
        """Raise CommandError at once where nothing listens: the clients would retry for long."""
        problem = ""
        for host, port in self.addresses():
            try:
                self.waiting.call("a connection", _connect_once, host, port, self.timeout_s)
                return
            except OSError as error:
                reason = "it did not answer in time" if isinstance(error, TimeoutError) else ""
                problem = problem or f"{host}:{port}: {reason or error.strerror or error}"
        raise CommandError(
            f"no broker at {problem}. Start one with `barnabas start`, or say where it is with -b "
            "HOST:PORT (or the environment's BARNABAS_BOOTSTRAP_SERVER)"
        )

    def _make(self, kind: Any, *args: Any, **settings: Any) -> Any:
        """A client of kafka-python, connected."""
        refusals = _Refusals(lambda: self._mistake(settings))
        with refusals.explaining():
            waiting = Waiting(self.bootstrap_servers, self.timeout_s, refusals.reason)
            return waiting.call("its answer to a new client", kind, *args, **settings)

    def _mistake(self, settings: Mapping[str, Any]) -> str:
        """What is wrong with the security settings for the first address that answers."""
        from barnabas.cli.probe import mistake, probe

        protocol = str(settings.get("security_protocol", "PLAINTEXT"))
        for host, port in self.addresses():
            if (spoken := probe(host, port)) is not None:
                mechanism = settings.get("sasl_mechanism")
                return mistake(spoken, f"{host}:{port}", protocol, mechanism)
        return ""

    def _prepare(self) -> dict[str, Any]:
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self.try_connect()
        return self.settings()

    @contextmanager
    def admin(self) -> Iterator[Any]:
        """An admin client."""
        settings = self._prepare()
        from barnabas.cli.admin_client import AdminClient

        client = self._make(AdminClient, COORDINATOR_PART * self.timeout_s, **settings)
        with closing(Patient(client, self.waiting), client.close, client.close) as patient:
            yield patient

    @contextmanager
    def consumer(self, **settings: Any) -> Iterator[Any]:
        """A consumer. By default it commits nothing and creates no topic."""
        own = self._prepare()
        from kafka import KafkaConsumer

        own["request_timeout_ms"] = max(self.timeout_ms, 30_000)  # above its group's timeouts
        defaults = {"enable_auto_commit": False, "allow_auto_create_topics": False}
        consumer = self._make(
            KafkaConsumer, **{**own, **defaults, "exclude_internal_topics": False, **settings}
        )
        consumer.last_read = functools.partial(_last_read, consumer)
        patient = Patient(consumer, self.waiting, CONSUMER_AT_ONCE)
        close = functools.partial(consumer.close, autocommit=False)
        with closing(patient, close, functools.partial(close, timeout_ms=0)):
            yield patient

    def two_phase_producer(self, transactional_id: str) -> TwoPhaseProducer:
        """A producer for two-phase commit. It takes settings by Kafka's names only."""
        self.try_connect()
        from barnabas import TwoPhaseProducer

        of_kafka = {
            name: value
            for name, value in self._properties().items()
            if not name.startswith(OF_REGISTRY)
        }
        settings = {"client.id": CLIENT_ID, **of_kafka}
        return TwoPhaseProducer(
            self.bootstrap_servers,
            transactional_id,
            settings=settings,
            patience_ms=self.timeout_ms,
        )

    @contextmanager
    def producer(self, **settings: Any) -> Iterator[Any]:
        """A producer."""
        own = self._prepare()
        from kafka import KafkaProducer

        bounds = {
            "max_block_ms": 2 * self.timeout_ms,  # `Waiting` ends before
            "delivery_timeout_ms": max(DELIVERY_TIMEOUT_MS, 2 * self.timeout_ms),
        }
        producer = self._make(KafkaProducer, **{**own, **bounds, **settings})
        patient = Patient(producer, self.waiting, PRODUCER_AT_ONCE)
        close = functools.partial(producer.close, timeout=self.timeout_s)
        with closing(patient, close, lambda: _abandon(producer)):
            yield patient


def _connect_once(host: str, port: int, timeout_s: float) -> None:
    socket.create_connection((host, port), timeout=min(CONNECT_TIMEOUT_S, timeout_s)).close()


def _last_read(consumer: Any) -> float:
    """When a broker last sent something to a consumer, by the monotonic clock."""
    connections = list(consumer._manager._conns.values())
    return max((row.transport.last_read for row in connections if row.transport), default=0.0)


def _abandon(producer: Any) -> None:
    """Close a producer without its records."""
    producer._sender.force_close()
    with suppress(Exception):
        producer.close(timeout=0)
