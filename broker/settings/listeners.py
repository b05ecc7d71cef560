"""The listeners: their addresses, their protocols, and the addresses for clients. Pure values.

    listeners                        where to listen, for each name
    listener.security.protocol.map   the protocol of each name
    advertised.listeners             the address that clients of that name get
    listener.name.NAME....           settings of one listener; they override those of all

What holds for a listener without a setting of its own is the same as in Apache Kafka:

    setting                                     without the listener's form
    ssl.*, sasl.enabled.mechanisms,             that of all listeners
    sasl.oauthbearer.*, connections.max.reauth.ms
    ssl.client.auth of a listener with SASL     none: its clients prove themselves by SASL (KIP-684)
    max.connections, and its creation rate      no limit of its own; that of the broker counts all
    sasl.jaas.config                            none; there is no form without a listener

Each name occurs once, and so does each port, except that an IPv4 and an IPv6 listener may share
a port. Names are compared without regard to case. Listeners that are named in
`controller.listener.names` are skipped. `unix:///PATH`, a Unix domain socket, is an extension of
this broker. Its name is UNIX, and its protocol is PLAINTEXT, unless the map says otherwise. Its
clients get the same address.

Source: KIP-103 (listener names), KIP-226 (settings of a listener), KIP-684 (certificates on
SASL_SSL), KIP-797 (one port, two addresses).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.broker.settings.setting import Setting
from barnabas.installing import install_command
from barnabas.protocol.request_context import UNIX_SCHEME

if TYPE_CHECKING:
    from barnabas.broker.security.oauth import KeySet, TokenSettings
    from barnabas.broker.security.principals import PrincipalMapper

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
SASL_MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER)
PREFIX = "listener.name."
OWN_SETTINGS = (
    "sasl.enabled.mechanisms",
    "connections.max.reauth.ms",
    "max.connections",
    "max.connection.creation.rate",
)
OWN_SETTINGS_PREFIXES = ("ssl.", "sasl.oauthbearer.")
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
BELIEVES_UNSIGNED = "barnabas.oauthbearer.believe.unsigned.tokens.of.anybody"
VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
CLIENT_AUTH = "ssl.client.auth"
_HANDLER = "oauthbearer.sasl.server.callback.handler.class"
# settings that a listener may have for one SASL mechanism
OF_MECHANISMS = ("sasl.jaas.config", "connections.max.reauth.ms")
UNIX = "UNIX"
ANYWHERE = ("0.0.0.0", "::")
_PORT = re.compile(r"[0-9]{1,5}")


class Tls(Protocol):
    """Makes a listener's TLS connections: `TlsListener` in `broker/rim/tls.py`."""

    @property
    def asks_for_certificates(self) -> bool: ...

    def reload(self) -> None: ...

    def wrap(self, sock: Any, on_shaken: Callable[[Any], None] | None = None) -> Any: ...


class ListenerError(ValueError):
    """The settings of listeners are wrong. The text says which setting is wrong, and what to do."""


class Endpoint(NamedTuple):
    """One entry of `listeners` or `advertised.listeners`. host: the host's name or address. For a
    Unix domain socket it is `unix:///PATH`, and the port is 0.
    """

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        if self.host.startswith(UNIX_SCHEME):
            return self.host
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class ListenerConfig:
    """One listener.

    advertised: the address that its clients get; None for the address to which they connected. own:
    its settings `listener.name.NAME....`, without that prefix. tls: makes TLS connections, once the
    rim has read the certificates. oauth: the requirements on tokens. oauth_keys: the keys that
    verify the signatures of tokens, which the rim sets. oauth and oauth_keys are None without
    OAUTHBEARER.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        protocol: str,
        advertised: Endpoint | None,
        own: Mapping[str, str],
        values: Mapping[str, Any],
        settings: Mapping[str, Setting[Any]],
    ) -> None:
        """Takes: values, the typed settings of all listeners; settings, the table that describes
               how the listener's own settings are read.

        Raises: ListenerError; ConfigError for a value that is not allowed.
        """
        self.endpoint, self.name = endpoint, endpoint.name
        self.security_protocol = protocol
        self.has_sasl = protocol.startswith("SASL_")
        self.has_tls = protocol.endswith("SSL")
        self.advertised = None if advertised is None else (advertised.host, advertised.port)
        self.own = dict(own)
        self._values, self._settings = values, settings
        self.tls: Tls | None = None
        self.sasl_mechanisms: tuple[str, ...] = tuple(sorted(self["sasl.enabled.mechanisms"]))
        if self.has_sasl and not self.sasl_mechanisms:
            raise ListenerError(
                f"sasl.enabled.mechanisms is empty: name some of {', '.join(SASL_MECHANISMS)}"
            )
        self.plain_passwords = self._plain_passwords()
        self._principals = self._principal_mapper()
        self.oauth = self._token_settings()
        self.oauth_keys = None if self.oauth is None else _no_keys()

    def __getitem__(self, name: str) -> Any:
        """The typed value of a setting: the listener's own value, or else that of all listeners,
        where it applies.
        """
        text = self.own.get(name)
        if text is not None:
            return self._settings[name].parse(text)
        setting = self._settings[name]
        return setting.default if name in self._only_own else self._values[name]

    @property
    def _only_own(self) -> tuple[str, ...]:
        """The settings whose value for all listeners does not apply to this listener."""
        return (CLIENT_AUTH,) if self.has_sasl else ()

    @property
    def path(self) -> str | None:
        """The path of the listener's Unix domain socket; None if the listener has an IP address."""
        host = self.endpoint.host
        return host.removeprefix(UNIX_SCHEME) if host.startswith(UNIX_SCHEME) else None

    @property
    def limits_connections(self) -> bool:
        """Whether the listener's own settings bound the number or the rate of its connections."""
        return "max.connections" in self.own or "max.connection.creation.rate" in self.own

    @property
    def max_reauth_ms(self) -> dict[str, int]:
        """How long an authentication is valid, in ms, by mechanism; 0 if it has no end."""
        name = "connections.max.reauth.ms"
        every = self[name]
        return {
            mechanism: int(self.own.get(f"{mechanism.lower()}.{name}", every))
            for mechanism in SASL_MECHANISMS
        }

    def tls_settings(self, of_all: Mapping[str, str]) -> dict[str, str]:
        """The listener's settings `ssl.*` as text, by Kafka's names. The listener's own settings
        override those of all listeners.
        """
        own = {name: text for name, text in self.own.items() if name.startswith("ssl.")}
        common = {
            name: text
            for name, text in of_all.items()
            if name.startswith("ssl.") and name not in self._only_own
        }
        return common | own

    def tls_principal(self, certificate: Mapping[str, Any] | None) -> str:
        """The principal for a client's certificate, as decoded by `ssl`.

        Raises: OSError if no rule of ssl.principal.mapping.rules matches.
        """
        assert self._principals is not None, "a certificate on a listener without TLS"
        return self._principals.principal(certificate)

    def _principal_mapper(self) -> PrincipalMapper | None:
        """The rules that map certificates to principals; None without TLS. Raises:
        ListenerError.
        """
        if not self.has_tls:
            return None
        from barnabas.broker.security.principals import MappingError, PrincipalMapper

        try:
            return PrincipalMapper(self["ssl.principal.mapping.rules"])
        except MappingError as error:
            raise ListenerError(f"ssl.principal.mapping.rules: {error}") from error

    def _plain_passwords(self) -> dict[str, str]:
        """The passwords of the JAAS text for PLAIN, by user. Raises: ListenerError."""
        text = self.own.get("plain.sasl.jaas.config")
        if text is None:
            return {}
        from barnabas.broker.security.jaas import JaasError, parse_jaas

        try:
            return parse_jaas(text).passwords
        except JaasError as error:
            raise ListenerError(
                f"{PREFIX}{self.name.lower()}.plain.sasl.jaas.config: {error}"
            ) from error

    def _token_settings(self) -> TokenSettings | None:
        """The settings of OAUTHBEARER. Raises: ListenerError."""
        if not self.has_sasl or OAUTHBEARER not in self.sasl_mechanisms:
            return None
        believes_unsigned: bool = self[BELIEVES_UNSIGNED]
        if not self[JWKS_URL] and not believes_unsigned:
            raise ListenerError(
                f"OAUTHBEARER needs {JWKS_URL}, the keys that sign tokens: https://... or "
                "file:///PATH"
            )
        try:
            from barnabas.broker.security.oauth import TokenSettings
        except ImportError as error:
            raise ListenerError(f"OAUTHBEARER needs `{install_command('oauth')}`") from error
        prefix = "sasl.oauthbearer."
        return TokenSettings(
            audiences=self[f"{prefix}expected.audience"],
            issuer=self[f"{prefix}expected.issuer"] or None,
            clock_skew_s=self[f"{prefix}clock.skew.seconds"],
            subject_claim=self[f"{prefix}sub.claim.name"],
            scope_claim=self[f"{prefix}scope.claim.name"],
            believes_unsigned=believes_unsigned,
        )


def _no_keys() -> KeySet:
    from barnabas.broker.security.oauth import KeySet

    return KeySet()


def read_listeners(
    values: Mapping[str, Any],
    of_listeners: Mapping[str, str],
    settings: Mapping[str, Setting[Any]],
    warnings: list[str],
) -> tuple[ListenerConfig, ...]:
    """The listeners, in the order in which the setting `listeners` names them.

    Takes:  values, the broker's settings, typed; of_listeners, the settings `listener.name.NAME...`
            as text; settings, the table that describes the settings; warnings, a list to which a
            line is added for each setting without effect.
    Raises: ListenerError; ConfigError for a value that is not allowed.
    """
    controllers = {name.upper() for name in values["controller.listener.names"]}
    endpoints = _endpoints("listeners", values["listeners"], controllers)
    if not endpoints:
        raise ListenerError(
            f"listeners={values['listeners']}: name one, such as PLAINTEXT://127.0.0.1:9092"
        )
    _check_ports(endpoints, values["barnabas.brokers"])
    protocols = _protocols(values["listener.security.protocol.map"])
    for endpoint in endpoints:
        if endpoint.name not in protocols:
            raise ListenerError(
                f"listeners={values['listeners']}: the protocol of {endpoint.name} is missing: "
                f"listener.security.protocol.map={endpoint.name}:PROTOCOL, of "
                f"{', '.join(SECURITY_PROTOCOLS)}"
            )
    names = [endpoint.name for endpoint in endpoints]
    advertised = _advertised(values["advertised.listeners"], controllers, names)
    _check_inter_broker_name(values, names)
    own = _own_settings(of_listeners, settings, names, controllers, warnings)
    return tuple(
        ListenerConfig(endpoint, protocols[name], advertised.get(name), own[name], values, settings)
        for endpoint, name in zip(endpoints, names, strict=True)
    )


def _endpoints(setting: str, text: str, controllers: set[str]) -> list[Endpoint]:
    """The entries of a list of listeners, without those of controllers. Raises: ListenerError."""
    endpoints = []
    for part in (part.strip() for part in text.split(",")):
        name = part.partition("://")[0].upper()
        if part and name not in controllers:
            endpoints.append(_endpoint(setting, text, part))
    counts = Counter(endpoint.name for endpoint in endpoints)
    for name, count in counts.items():
        if count > 1:
            raise ListenerError(
                f"{setting}={text}: two are called {name}: give each its own name, and its "
                "protocol in listener.security.protocol.map"
            )
    return endpoints


def _endpoint(setting: str, text: str, part: str) -> Endpoint:
    """One entry of a list of listeners. Takes: text, the whole list, and part, the entry. Raises:
    ListenerError.
    """
    name, separator, address = part.partition("://")
    if name.lower() == "unix" and separator and setting == "listeners":
        if not address.startswith("/") or len(address) < 2:
            raise ListenerError(f"{setting}={text}: {part} must have the form unix:///PATH")
        return Endpoint(UNIX, f"{UNIX_SCHEME}{address}", 0)
    host, colon, port = address.rpartition(":")
    if not (name and separator and colon) or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ListenerError(f"{setting}={text}: {part} must have the form NAME://ADDRESS:PORT")
    anywhere = "0.0.0.0" if setting == "listeners" else "localhost"
    return Endpoint(name.upper(), host.strip("[]") or anywhere, int(port))


def _check_ports(endpoints: Sequence[Endpoint], brokers: int) -> None:
    """Check that no two endpoints would listen at the same port. Raises: ListenerError."""
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        if brokers > 1 and endpoint.name == UNIX:
            raise ListenerError(f"{endpoint}: several brokers cannot share one socket")
        # port 0 is not checked: the system chooses a free port
        for port in range(endpoint.port, endpoint.port + brokers) if endpoint.port else ():
            by_port.setdefault(port, []).append(endpoint)
    for port, same in by_port.items():
        # an IPv4 and an IPv6 address may have the same port
        if len(same) > 1 and sorted(_family(endpoint.host) for endpoint in same) != [4, 6]:
            of_brokers = f" (each has {brokers} ports in a row)" if brokers > 1 else ""
            raise ListenerError(
                f"listeners: {' and '.join(map(str, same))} both have the port "
                f"{port}{of_brokers}: give each its own port, or one an IPv4 address and the "
                "other an IPv6 address"
            )


def _family(host: str) -> int:
    """The version of an IP address, 4 or 6; 0 for a host name."""
    import ipaddress  # slow to import, and rarely needed

    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def _protocols(text: str) -> dict[str, str]:
    """The protocol of each listener's name. Raises: ListenerError."""
    protocols = {UNIX: "PLAINTEXT"}
    seen: set[str] = set()
    for pair in filter(None, (pair.strip() for pair in text.upper().split(","))):
        name, colon, protocol = (word.strip() for word in pair.partition(":"))
        problem = ""
        if not (name and colon):
            problem = f"{pair} must have the form NAME:PROTOCOL"
        elif protocol not in SECURITY_PROTOCOLS:
            problem = f"{protocol} is not supported, only {', '.join(SECURITY_PROTOCOLS)}"
        elif name in seen:
            problem = f"{name} occurs twice"
        if problem:
            raise ListenerError(f"listener.security.protocol.map={text}: {problem}")
        seen.add(name)
        protocols[name] = protocol
    return protocols


def _advertised(
    text: str | None, controllers: set[str], names: Sequence[str]
) -> dict[str, Endpoint]:
    """The addresses that clients get, by listener. Raises: ListenerError."""
    setting = "advertised.listeners"
    endpoints = _endpoints(setting, text or "", controllers)
    for endpoint in endpoints:
        if endpoint.name not in names:
            raise ListenerError(
                f"{setting}={text}: there is no listener {endpoint.name}: listeners names "
                f"{', '.join(names)}"
            )
        if endpoint.host in ANYWHERE:
            raise ListenerError(
                f"{setting}={text}: {endpoint.host} is every address of this machine, and no "
                "client can connect to it: give a name or an address of this machine"
            )
    return {endpoint.name: endpoint for endpoint in endpoints}


def _check_inter_broker_name(values: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise ListenerError if inter.broker.listener.name names no listener."""
    name = values["inter.broker.listener.name"]
    if name and name.upper() not in names:
        raise ListenerError(
            f"inter.broker.listener.name={name}: this listener does not exist: listeners names "
            f"{', '.join(names)}"
        )


def is_setting_of_listeners(full_name: str) -> bool:
    """Whether a name `listener.name.NAME....` is a setting here, or one of Apache Kafka's whose
    user relies on its effect: of TLS, SASL or a mechanism that is supported.
    """
    name = full_name.removeprefix(PREFIX).partition(".")[2].lower()
    mechanism = name.partition(".")[0].upper()
    return (
        name in OWN_SETTINGS or mechanism in SASL_MECHANISMS or name.startswith(("ssl.", "sasl."))
    )


def _own_settings(
    of_listeners: Mapping[str, str],
    settings: Mapping[str, Setting[Any]],
    names: Sequence[str],
    controllers: set[str],
    warnings: list[str],
) -> dict[str, dict[str, str]]:
    """The settings of each listener that apply to it alone, without their prefix.

    Raises: ListenerError, ConfigError.
    """
    own: dict[str, dict[str, str]] = {name: {} for name in names}
    for full_name, text in of_listeners.items():
        listener, _, name = full_name.removeprefix(PREFIX).partition(".")
        if name.startswith("oauthbearer.sasl.oauthbearer."):  # KIP-768 allows both spellings
            name = name.removeprefix("oauthbearer.")
        mechanism, _, rest = name.partition(".")
        is_of_mechanism = mechanism.upper() in SASL_MECHANISMS and rest in OF_MECHANISMS
        is_own = name in OWN_SETTINGS or (
            name.startswith(OWN_SETTINGS_PREFIXES) and name in settings
        )
        if listener.upper() in controllers and listener.upper() not in own:
            continue  # without effect, like the listener itself
        if name == _HANDLER and text in VALIDATORS:
            continue  # the setting has no effect, since tokens are verified in any case
        if not is_own and not is_of_mechanism:
            raise ListenerError(
                f"{full_name}: a listener has settings of its own only for "
                f"{', '.join(f'{prefix}*' for prefix in OWN_SETTINGS_PREFIXES)}, "
                f"{', '.join(OWN_SETTINGS)} and, by mechanism, {', '.join(OF_MECHANISMS)}"
            )
        if listener.upper() not in own:
            warnings.append(f"{full_name} has no effect: no listener has that name")
            continue
        kind = rest if is_of_mechanism else name
        if kind in settings:
            settings[kind].parse(text)
        own[listener.upper()][name.lower()] = text
    return own
